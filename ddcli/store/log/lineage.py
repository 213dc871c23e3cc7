"""Files of a log that grow: a commit adds its rows to the newest file, where there are many files and it is small.

Such a file is written anew beside the old one and renamed over it: any reader finds the one or the other, and each has whole commits.
The rows of the file before come first and keep their order, so whoever has read them finds the rest after so many rows. Which versions
there were stands in the file's footer, so that it proves itself that it continues one.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, NamedTuple

from ddcli.errors import DdError
from ddcli.store.log.joint_file import read_footer
from ddcli.store.parquet.row_groups import ROWS
from ddcli.store.parquet.thrift import fields, number, structs, varint

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.store.state.entries import FileEntry

KEY = "dd.commits"
"""The key of the footer's metadata that has the versions before."""
METADATA = 5
"""The field of a Parquet footer that has them: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift"""
APART = 64
"""Files that a log has before one grows: a commit each."""
LARGE = 128 << 10
"""Bytes that a file doesn't outgrow: a commit writes at most so many again."""
COMMITS = 256
"""Commits that a file has at most: each is a line in its footer."""


class FileVersion(NamedTuple):
    """A file as it was after the commit of this number: how many rows it had, and its fingerprint as an input's listing has it."""

    commit: int
    rows: int
    fingerprint: str


def grows(count: int, newest: FileEntry, rows: int, size: int, most: int) -> bool:
    """Return whether a commit of so many rows and bytes is added to the newest of a log's `count` files, which may have `most` rows."""
    return count >= APART and newest.rows + rows <= most and newest.size + size <= LARGE


def appended(path: Path, newest: FileEntry, mark: str, data: memoryview) -> memoryview | None:
    """Return the content of a log's newest file, whose fingerprint is `mark`, with a commit's rows, those of the file `data`, after its own.

    None where the columns are others, or it has as many commits as a file may have.
    """
    import polars as pl

    from ddcli.store.parquet.writer import CHUNK, parquet_bytes
    from ddcli.store.state.verify import read_checked

    before = read_versions(path)
    known, added = pl.read_parquet(io.BytesIO(read_checked(path, newest))), pl.read_parquet(io.BytesIO(data))
    if known.schema != added.schema or len(before) >= COMMITS:
        return None
    kept = json.dumps((*before, FileVersion(newest.commit, newest.rows, mark)), separators=(",", ":"))
    whole = pl.concat([known, added], rechunk=True)
    return parquet_bytes(len(whole), lambda start, end: whole[start:end], group=CHUNK, metadata={KEY: kept})


def read_versions(path: Path) -> tuple[FileVersion, ...]:
    """Return the versions of a file before it, oldest first; none where its footer has none that make sense, or is gone."""
    text = read_metadata(path, KEY)
    try:
        found = [FileVersion(*row) for row in json.loads(text or "[]")]
        rows = number(fields(read_footer(path))[ROWS][1]) if found else 0
    except (DdError, OSError, ValueError, IndexError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(found) if all(_is_version(each, rows) for each in found) else ()


def read_metadata(path: Path, key: str) -> str | None:
    """Return a text of the metadata in a file's footer; None where there is none, or no file."""
    try:
        kept = fields(read_footer(path)).get(METADATA, (0, b"\0"))[1]
        texts = [{at: _text(value) for at, (_, value) in fields(pair).items()} for pair in structs(kept)]
        return next((pair[2] for pair in texts if pair[1] == key), None)
    except (DdError, OSError, ValueError, IndexError, KeyError):
        return None


def rows_of(path: Path, known: str) -> int | None:
    """Return how many rows of a file are those of the version with this fingerprint, the first ones; None: it doesn't continue it."""
    return next((each.rows for each in read_versions(path) if each.fingerprint == known), None)


def rows_through(path: Path, commit: int) -> int | None:
    """Return how many rows of a file are of this commit and those before it, the first ones; None: its footer has none of them."""
    return max((each.rows for each in read_versions(path) if each.commit <= commit), default=None)


def _text(value: bytes) -> str:
    size, at = varint(value, 0)
    return value[at : at + size].decode()


def _is_version(found: FileVersion, rows: int) -> bool:
    return [type(value) for value in found] == [int, int, str] and 0 <= found.rows <= rows
