"""The progress of a change log: `_progress.json`, in which who appends to a log says what it will not touch any more.

A reader must read it *before* it lists the log's files: the writer publishes files first and progress last, so that whatever
lies before the upper that was read is in files that are there by then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ddcli.errors import InputError
from ddcli.store.manifest import Times, times

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS = "_progress.json"


def progress_bytes(upper: Times) -> bytes:
    r"""Return the content of a progress file.

    >>> progress_bytes(((3, 0), (0, 4)))
    b'{"upper": [[3, 0], [0, 4]]}\n'
    """
    return json.dumps({"upper": upper}).encode() + b"\n"


def read_progress(directory: Path) -> Times | None:
    """Return the upper of a log that carries its progress, else None. One that says nothing sensible is an `InputError`."""
    path = directory / PROGRESS
    try:
        tree = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        tree = None
    upper = tree.get("upper") if isinstance(tree, dict) else None
    if not isinstance(upper, list) or not all(_is_time(time) and len(time) == len(upper[0]) for time in upper):
        raise InputError(
            "the progress of the log can't be read",
            place=str(path),
            hint='it must look like {"upper": [[42]]}; remove it to close the times up to the largest one seen',
        )
    frontier: Times = times(upper)
    return frontier


def _is_time(tree: object) -> bool:
    return isinstance(tree, list) and bool(tree) and all(type(value) is int for value in tree)
