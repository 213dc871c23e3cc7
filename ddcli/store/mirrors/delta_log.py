"""The check of a Delta log before its package reads it: its entries are plain files, and name only files in the folder of the table.

The package follows the paths of deletion vectors and of a checkpoint's sidecars wherever they lead, and would wait for a pipe for ever.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import InputError
from ddcli.store.files.gate import one_by_one
from ddcli.store.files.objects import ObjectPath
from ddcli.store.mirrors.delta_commits import COMMIT, LOG
from ddcli.store.tables.files import READ_ERRORS
from ddcli.store.tables.table_folder import check_names, check_plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKPOINT = re.compile(r"[0-9]{20}\.checkpoint\..*(parquet|json)")
SIDECARS = "_sidecars"
NAMING = ("add", "cdc", "sidecar")
"""The actions whose files are read. One that is removed is read only by its change, which checks its path."""
IN_FILE = ("p", "u")
"""The kinds of deletion vectors that are in files: by an absolute path, and by an identifier below the table."""


def check_log(table: Path) -> None:
    """Raise InputError for a log with anything but plain files, or with paths that lead out of the table's folder.

    A log in an object store is read by requests side by side. Its paths reach no other place either: the package resolves them in the whole bucket.
    """
    log = table / LOG
    found = [path for path in _files_of(log) if _is_read(path.name)] + [
        path for path in _files_of(log / SIDECARS) if path.name.endswith(".parquet")
    ]
    one_by_one(lambda path: check_names(_named_in(path), str(table)), sorted(found))


def _files_of(folder: Path) -> list[Path]:
    """Return the plain files of a folder. Raises InputError for a pipe and the like."""
    if isinstance(folder, ObjectPath):
        return [path for path, tag in folder.tagged() if tag is not None]
    found = [path for path in folder.glob("*") if not path.is_dir()]
    for path in found:
        check_plain(path)
    return found


def _is_read(name: str) -> bool:
    """Return whether the package reads a file of the log."""
    return COMMIT.fullmatch(name) is not None or CHECKPOINT.fullmatch(name) is not None


def _named_in(path: Path) -> Iterator[str]:
    return _of_commit(path) if path.name.endswith(".json") else _of_checkpoint(path)


def _of_commit(path: Path) -> Iterator[str]:
    try:
        actions = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
        for action in actions:
            for kind, value in action.items():
                if kind in NAMING:
                    yield from _named(value)
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise InputError("the commit of the table can't be read", place=str(path)) from None


def _named(action: dict[str, Any]) -> Iterator[str]:
    yield str(action["path"])
    vector = action.get("deletionVector")
    if vector and vector.get("storageType") in IN_FILE:
        yield from _vector(vector)


def _vector(vector: dict[str, Any]) -> Iterator[str]:
    """Yield a path that leads out for a deletion vector by an absolute path; one by an identifier is always in the table's folder."""
    if vector["storageType"] == "p":
        yield str(vector["pathOrInlineDv"])
    elif re.search(r"\.\.|^/", prefix := str(vector["pathOrInlineDv"])[:-20]):
        yield f"/{prefix}"


def _of_checkpoint(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            scan = pl.scan_parquet(file, glob=False, hive_partitioning=False)
            kinds = scan.collect_schema()
            for kind in NAMING:
                dtype = kinds.get(kind)
                fields = {field.name for field in dtype.fields} if isinstance(dtype, pl.Struct) else set()
                wanted = [name for name in ("path", "deletionVector") if name in fields]
                if "path" not in wanted:
                    continue
                one = pl.col(kind)
                found = scan.select(one.struct.field(name) for name in wanted).filter(pl.col("path").is_not_null())
                for row in found.collect().iter_rows(named=True):
                    yield from _named(row)
    except (OSError, KeyError, *READ_ERRORS):
        raise InputError("the checkpoint of the table can't be read", place=str(path)) from None
