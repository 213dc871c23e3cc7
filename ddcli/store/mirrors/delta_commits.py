"""The commits in the log of a table of Delta Lake: the files that each of them adds and removes, and its change feed.

A commit that only rearranges rows (OPTIMIZE) states that (`dataChange: false`), and its files are left out here: rows in them are no
changes. Imports no third-party library, so that a run with nothing new costs a look at one name.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.errors import InputError
from ddcli.store.files.access import fs, read_bytes
from ddcli.store.files.gate import checksum
from ddcli.store.mirrors.mirror import UnknownChange

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = re.compile(r"[0-9]{20}\.json")
LOG, LAST = "_delta_log", "_last_checkpoint"
UNFAITHFUL = "delta-rs"
"""A writer whose change feed lacks a row that an update makes equal to another one (seen of deltalake 1.6): its files count instead."""


@frozen
class DataFile:
    """A file with rows of a table: its path in the log, the values of the columns that aren't in it, and which of its rows are deleted."""

    path: str
    partition: tuple[tuple[str, str | None], ...]
    deleted: str = ""
    """The identity of its deletion vector; none: all rows count."""


@frozen
class DeltaCommit:
    """The changes of a version. `feed` are the files of its change feed, where these alone state them."""

    version: int
    committed: int | None
    added: list[DataFile] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)
    feed: list[DataFile] = field(default_factory=list)
    columns: dict[str, Any] | None = None
    """The columns with their types as the log writes them, where it changes the table's description."""


def has_changed(table: Path, version: int, tip: str) -> bool:
    """Return whether a table seems to have a newer version than the one of this tip, or to be another one."""
    log = table / LOG
    if fs(log / f"{version + 1:020d}.json").exists() or tip_of(table, version) != tip:
        return True
    try:
        return int(json.loads(read_bytes(log / LAST))["version"]) > version
    except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False


def is_as_left(table: Path, left: dict[str, Any]) -> bool:
    """Return whether a table is as a commit left it that was noted so: with this version, and its tip."""
    return {*left} == {"version", "tip"} and not has_changed(table, left["version"], left["tip"])


def tip_of(table: Path, version: int) -> str:
    """Return the checksum of a commit; "" for one that the log no longer has."""
    try:
        return checksum(read_bytes(table / LOG / f"{version:020d}.json"))
    except FileNotFoundError:
        return ""


def read_commit(table: Path, version: int, *, partitioned: bool) -> DeltaCommit:
    """Return the changes of a version of a table, which may be `partitioned` then. Raises UnknownChange where the log doesn't state them."""
    path = table / LOG / f"{version:020d}.json"
    try:
        actions = [json.loads(line) for line in read_bytes(path).splitlines() if line.strip()]
        return _commit(actions, version, partitioned=partitioned)
    except FileNotFoundError:
        raise UnknownChange from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise InputError("the commit of the table can't be read", place=str(path)) from None


def _commit(actions: list[dict[str, dict[str, Any]]], version: int, *, partitioned: bool) -> DeltaCommit:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        for kind, value in action.items():
            by_kind.setdefault(kind, []).append(value)
    info = next(iter(by_kind.get("commitInfo", ())), {})
    committed = info.get("inCommitTimestamp", info.get("timestamp"))
    changed = {
        kind: [_file(one, partitioned=partitioned) for one in by_kind.get(kind, ()) if one["dataChange"]]
        for kind in ("add", "remove")
    }
    feed = [_file(one, partitioned=True) for one in by_kind.get("cdc", ())]
    if str(info.get("engineInfo", UNFAITHFUL)).startswith(UNFAITHFUL):
        feed = []
    columns = None
    for one in by_kind.get("metaData", ()):
        columns = {each["name"]: each["type"] for each in json.loads(one["schemaString"])["fields"]}
    at = None if committed is None else int(committed) * 1000
    return DeltaCommit(version, at, changed["add"], changed["remove"], feed, columns)


def _file(action: dict[str, Any], *, partitioned: bool) -> DataFile:
    partition = action.get("partitionValues")
    if partition is None and partitioned:  # a removed file need not have one
        raise UnknownChange
    partition = partition or {}
    vector = action.get("deletionVector")
    deleted = (
        ":".join(str(vector.get(key, "")) for key in ("storageType", "pathOrInlineDv", "offset")) if vector else ""
    )
    return DataFile(str(action["path"]), tuple(sorted(partition.items())), deleted)
