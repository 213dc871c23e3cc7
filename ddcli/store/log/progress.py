"""The progress of a change log: `_progress.json`, in which the writer of a log states the times that it has closed.

A reader must read it *before* it lists the log's files: the writer publishes files first and progress last, so all updates
before the upper that was read are in files that exist by then.

`upper` lists the elements of the frontier, times as lists of physical integers. A null stands for the least
value of a coordinate: `[[3, null], [null, 4]]` closes the times before 3 in the first and before 4 in the second coordinate.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.engine.times import BEYOND, LEAST
from ddcli.errors import DdError, InputError
from ddcli.expressions.types import RowOrder, parse_order
from ddcli.store.files.access import read_given
from ddcli.store.files.objects import locate
from ddcli.store.state.document import path_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ddcli.privacy import Tags
    from ddcli.store.state.entries import Times

PROGRESS = "_progress.json"


class Owner(NamedTuple):
    """The state that writes a log: its identity, its path at the last write, relative to the log's directory, the number of its reopenings,
    the horizon before which the log has no times, as logs that it reads have none, the order in which the log's contents are shown,
    the identity of the log, which is another one after it was written anew, and the tags of its columns.
    """

    state: str
    path: str
    reopenings: int = 0
    horizon: int | None = None
    order: RowOrder = ()
    log: str = ""
    tags: Tags = {}  # noqa: RUF012 - nobody changes it


OPTIONAL: dict[str, Any] = {"reopenings": 0, "horizon": None, "order": (), "log": "", "tags": {}}
"""The facts of a log's owner that a progress may leave out."""


def progress_bytes(upper: Times, owner: Owner | None = None) -> bytes:
    r"""Return the content of a progress file.

    >>> progress_bytes(((LEAST, 4), (3, LEAST)))
    b'{"upper": [[null, 4], [3, null]]}\n'
    """
    tree = [[None if value == LEAST else value for value in time] for time in upper]
    owned = (
        {}
        if owner is None
        else {"owner": {name: value for name, value in owner._asdict().items() if value != OPTIONAL.get(name, "")}}
    )
    return json.dumps({"upper": tree} | owned).encode() + b"\n"


def read_progress(directory: Path) -> Times | None:
    """Return the upper of a log that carries its progress, else None. One that is malformed is an `InputError`."""
    return read_owned(directory)[0]


def read_owned(directory: Path) -> tuple[Times | None, Owner | None]:
    """Return the upper of a log and the state that writes it, each None if the file lacks it. Raises as `read_progress` does."""
    path = directory / PROGRESS
    try:
        tree = json.loads(read_given(path))
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        raise InputError(f"the progress of the log can't be read: {error.strerror}", place=str(path)) from None
    except (ValueError, RecursionError):
        tree = None
    upper = tree.get("upper") if isinstance(tree, dict) else None
    if not isinstance(upper, list) or not all(_is_time(time) and len(time) == len(upper[0]) for time in upper):
        raise InputError(
            "the progress of the log can't be read",
            place=str(path),
            hint='it must look like {"upper": [[42]]}; remove it to close the times up to the largest one seen',
        )
    return tuple(tuple(LEAST if value is None else value for value in time) for time in upper), _owner(tree, directory)


def _owner(tree: dict[str, Any], directory: Path) -> Owner | None:
    """Return the writer of a log, if its progress names one. The file is not trusted: anybody may have written it."""
    owner = tree.get("owner")
    if not isinstance(owner, dict) or not all(isinstance(owner.get(name), str) for name in ("state", "path")):
        return None
    path, reopenings = owner["path"], owner.get("reopenings", 0)
    try:
        path_of(path)
        locate(directory, path)
    except (ValueError, DdError):
        path = "."  # the path is for people only: the identity counts
    horizon = owner.get("horizon")
    return Owner(
        owner["state"],
        path,
        reopenings if type(reopenings) is int else 0,
        horizon if type(horizon) is int else None,
        parse_order(owner.get("order")),
        log if isinstance(log := owner.get("log"), str) else "",
        tags_from(owner.get("tags")),
    )


def tags_from(tree: object) -> Tags:
    """Return the tags of columns; a column whose tags can't be read has one of its own, so that it stays hidden."""
    columns = tree if isinstance(tree, dict) else {}
    return {
        name: tuple(filter(lambda tag: isinstance(tag, str), tags if isinstance(tags, list) else ())) or ("tagged",)
        for name, tags in columns.items()
    }


TAGS = "dd:tags"
"""The key of columns' tags in the metadata of the files of a log without progress."""
STATE = "dd:state"
"""The key of the state's identity there: that of digests."""


def tags_metadata(tags: Tags, state: str) -> dict[str, str] | None:
    """Return the metadata for files that lie beside no progress: tables, and rows that are put aside; `state` is their state's identity."""
    return {TAGS: json.dumps(tags), STATE: state} if tags else None


def tags_within(metadata: Mapping[str, str]) -> tuple[Tags, str]:
    """Return the tags in a file's metadata, and the identity of the state that wrote it; none and "" without."""
    if TAGS not in metadata:
        return {}, ""
    try:
        return tags_from(json.loads(metadata[TAGS])), metadata.get(STATE, "")
    except (ValueError, RecursionError):
        return {}, ""


def _is_time(tree: object) -> bool:
    return isinstance(tree, list) and bool(tree) and all(_is_coordinate(value) for value in tree)


def _is_coordinate(value: object) -> bool:
    return value is None or (type(value) is int and LEAST <= value < BEYOND)
