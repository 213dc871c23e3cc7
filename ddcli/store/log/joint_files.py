"""Files of a log that are put together from others: from the parts of a commit, from several commits, from older files that they stand for.

A commit adds one file to an output, made of the row groups of its parts, in the order in which they come: a reader that takes all files of a
directory, as a glob does, sees a commit in one step only if it is in one file.

Where a log has many files and the newest is small, a commit adds its rows to that one. Such a file is written anew beside the old one and renamed
over it: any reader finds the one or the other, and each has whole commits. The rows of the file before come first and keep their order, so a reader
that has read them finds the rest after that number of rows. The file's footer lists its earlier versions, which proves that it continues them.

A file that stands for older ones has the sum of their updates, as of the last of their times, the horizon. From the horizon on the log has the same
contents; earlier times are no longer kept apart. The new file appears first, then those that it stands for are removed, one after the other. So its
footer names them: readers ignore those that still exist. They are named with their fingerprints, and with the files for which they stood themselves:
so a reader in another pipeline finds whether it has taken all.
"""

from __future__ import annotations

import io
import json
import re
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.errors import DdError, EngineError
from ddcli.store.files.access import fs
from ddcli.store.files.gate import Files, Written, checksum
from ddcli.store.files.objects import BLOCK, ObjectPath
from ddcli.store.parquet.row_groups import MAGIC, ROWS, RowGroups, fields, footer_in, footer_of, metadata_of, number
from ddcli.store.state.entries import split_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.store.files.access import Bytes
    from ddcli.store.state.entries import FileEntry


class JointFile:
    """A file at `path` in the making, which has no readers yet, with the `expected` bytes or more. Threads may add parts at once, in any order."""

    def __init__(self, files: Files, path: Path, expected: int = 0) -> None:
        self.path = path
        self.footer = ""
        """The checksum of the footer, when the file is finished."""
        self._files = files
        self._groups = RowGroups()
        self._size = 0
        self._checksum = checksum(b"")
        self._object: Any = path.appender(expected=2 * expected) if isinstance(path, ObjectPath) else None
        self._lock = threading.Lock()

    def add(self, data: bytes | memoryview) -> None:
        """Add the content of a Parquet file. All parts must have the same columns (ValueError)."""
        view = memoryview(data).cast("B")
        with self._lock:
            body = self._groups.add(len(view), footer_in(view))
            self._append(view[self._first() : len(MAGIC) + body])

    @property
    def size(self) -> int:
        """The bytes so far."""
        return self._size

    def add_file(self, path: Path, written: Written) -> None:
        """Add a copy of a Parquet file that other processes have written. Raises EngineError if its bytes are not those that were written."""
        size, read = _reader(path)
        with self._lock:
            body = len(MAGIC) + self._groups.add(size, footer_of(size, read))
            first = self._first()
            found = checksum(read(0, first))
            for start in range(first, body, BLOCK):
                block = read(start, min(start + BLOCK, body))
                found = checksum(block, int(found, 16))
                self._append(block)
            found = checksum(read(body, size), int(found, 16))
            if Written(size, found) != written:
                raise EngineError("a part of an output isn't what was written", place=str(path), hint="run again")

    def finish(self) -> Written:
        """Write the footer; return the file's size and checksum."""
        with self._lock:
            tail = self._groups.finish()
            self.footer = checksum(tail)
            self._append(tail)
            self.close()
            return Written(self._size, self._checksum)

    def close(self) -> None:
        """Close all that is open. Done again, it does nothing."""
        if self._object is not None:
            self._files.do("write", self.path, self._object.close)
            self._object = None

    def _first(self) -> int:
        """Return the offset from which the bytes of the next part are copied: the first part brings the magic before its row groups."""
        return len(MAGIC) if self._size else 0

    def _append(self, data: Bytes) -> None:
        if self._object is not None:
            self._files.do("write", self.path, partial(self._object.write, data))
        else:
            self._files.append(self.path, data, begin=not self._size)
        self._size += memoryview(data).nbytes
        self._checksum = checksum(data, int(self._checksum, 16))


def footer_checksum(path: Path) -> str:
    """Return the checksum of a Parquet file's footer."""
    return checksum(read_footer(path))


def read_footer(path: Path) -> bytes:
    """Return a Parquet file's footer with its length and magic. Raises ValueError for a file that has none."""
    return footer_of(*_reader(path))


def _reader(path: Path) -> tuple[int, Callable[[int, int], bytes]]:
    """Return the size of a file, and a function that reads its bytes from a begin to an end."""
    return fs(path).size(), lambda start, end: bytes(*fs(path).read_ranges([(start, end)]))


KEY = "dd.commits"
"""The key of the footer's metadata that has the versions before."""
APART = 64
"""The number of files, one for each commit, after which a log's newest file grows."""
LARGE = 128 << 10
"""The bytes up to which a file grows: a commit writes at most these again."""
COMMITS = 256
"""Commits that a file has at most: each is a line in its footer."""


class FileVersion(NamedTuple):
    """A file as it was after the commit of this number: how many rows it had, and its fingerprint as an input's listing has it."""

    commit: int
    rows: int
    fingerprint: str


def grows(count: int, newest: FileEntry, rows: int, size: int, most: int) -> bool:
    """Return whether a commit of `rows` rows and `size` bytes is added to the newest of a log's `count` files, which may have `most` rows."""
    return count >= APART and newest.rows + rows <= most and newest.size + size <= LARGE


def appended(content: bytes, newest: FileEntry, mark: str, data: memoryview) -> memoryview | None:
    """Return the `content` of a log's newest file, whose fingerprint is `mark`, with a commit's rows, the rows of the file `data`, after its own.

    None if the columns differ, or the file has as many commits as it may have.
    """
    import polars as pl

    from ddcli.store.log.writer import parquet_bytes

    before = _versions(footer_in(content))
    known, added = (pl.read_parquet(io.BytesIO(part)) for part in (content, data))
    if len(before) >= COMMITS or known.schema != added.schema:
        return None
    versions = (*before, FileVersion(newest.commit, newest.rows, mark))
    whole = pl.concat([known, added], rechunk=True)
    metadata = {KEY: json.dumps(versions, separators=(",", ":"))}
    return parquet_bytes(len(whole), lambda start, end: whole[start:end], metadata)


def read_versions(path: Path) -> tuple[FileVersion, ...]:
    """Return the versions of a file before it, oldest first; none if its footer lacks valid ones, or can't be read."""
    try:
        return _versions(read_footer(path))
    except (DdError, OSError, ValueError):
        return ()


def _versions(footer: bytes) -> tuple[FileVersion, ...]:
    """Return the versions in a footer; none if they are invalid."""
    try:
        struct = fields(footer)
        found = [FileVersion(*row) for row in json.loads(metadata_of(struct).get(KEY, "[]"))]
        rows = number(struct[ROWS][1]) if found else 0
    except (ValueError, IndexError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(found) if all(_is_version(each, rows) for each in found) else ()


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata in a file's footer; none where it can't be read, or there is no file."""
    try:
        return metadata_of(fields(read_footer(path)))
    except (DdError, OSError, ValueError, IndexError, KeyError):
        return {}


def rows_of(path: Path, known: str) -> int | None:
    """Return how many of a file's first rows belong to the version with this fingerprint; None: the file doesn't continue it."""
    return next((each.rows for each in read_versions(path) if each.fingerprint == known), None)


def rows_through(path: Path, commit: int) -> int | None:
    """Return how many rows, the first ones of a file, are of this commit and those before it; None: its footer has none of them."""
    return max((each.rows for each in read_versions(path) if each.commit <= commit), default=None)


def updates_after(log: Path, files: Sequence[FileEntry], commit: int) -> tuple[list[FileEntry], int] | None:
    """Return the files of a log with updates of commits after one, and the number of the first one's rows that are of earlier commits: it has grown since.

    None where files were summed up on both sides of the commit: then the updates after it are no longer known. All files are after commit 0.
    """
    newer = [file for file in files if not commit or file.commit > commit]
    if not commit or all(file.first > commit for file in newer):
        return newer, 0
    known = rows_through(log / newer[0].name, commit)
    return None if known is None or any(file.first <= commit for file in newer[1:]) else (newer, known)


def _is_version(found: FileVersion, rows: int) -> bool:
    return [type(value) for value in found] == [int, int, str] and 0 <= found.rows <= rows


SUMMED = "dd.summed"
"""The key of the footer's metadata that has the horizon and the files."""
NAME = re.compile(r"updates-[\w+-]+-summed[0-9]+\.parquet", re.ASCII)
DEEP = 8
"""The depth of summaries of summaries that a footer names."""


class Part(NamedTuple):
    """A file that another one stands for: its name, its fingerprint as an input's listing has it, and the files that it stood for."""

    name: str
    fingerprint: str
    parts: tuple[Part, ...] = ()

    @classmethod
    def from_row(cls, row: list[Any]) -> Part:
        """Return the part that a footer has as `row`. Raises ValueError or TypeError for another row."""
        name, fingerprint, parts = row
        if not isinstance(name, str) or not isinstance(fingerprint, str) or "/" in split_path(f"/{name}")[0]:
            raise TypeError(f"no file: {row!r:.80}")
        return cls(name, fingerprint, tuple(map(cls.from_row, parts)))

    def names(self) -> Iterator[str]:
        """Yield its name, and the names of all files that it stood for."""
        yield self.name
        for part in self.parts:
            yield from part.names()

    def is_known(self, known: Mapping[str, str]) -> bool:
        """Return whether it, or all that it stood for, is among files of these fingerprints."""
        return known.get(self.name) == self.fingerprint or (
            bool(self.parts) and all(part.is_known(known) for part in self.parts)
        )

    def cut(self, depth: int = DEEP) -> Part:
        """Return the part with the parts for which it stood, to this depth."""
        return self._replace(parts=tuple(part.cut(depth - 1) for part in self.parts) if depth else ())


class Summary(NamedTuple):
    """The updates that a file sums up: their files, and the horizon, the time that they are summed up as of.

    There are no files if rows were forgotten since: then no reader of these has the same updates.
    """

    horizon: tuple[int, ...]
    parts: tuple[Part, ...]

    def metadata(self) -> dict[str, str]:
        """Return the summary's entry in the file's footer."""
        return {SUMMED: json.dumps([self.horizon, [part.cut() for part in self.parts]], separators=(",", ":"))}


def read_summary(path: Path) -> Summary | None:
    """Return a file's summary; None for a file without one, or that is gone."""
    text = read_metadata(path).get(SUMMED)
    try:
        horizon, rows = json.loads(text or "")
        found = Summary(tuple(horizon), tuple(map(Part.from_row, rows)))
    except (ValueError, TypeError, RecursionError):
        return None
    return found if found.horizon and all(type(value) is int for value in found.horizon) else None
