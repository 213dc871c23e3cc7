"""The one file that a commit adds to an output, made of the row groups of its parts, in the order in which they come.

A reader that takes all files of a directory, as a glob does, sees a commit in one step only if it is in one file.
"""

from __future__ import annotations

import mmap
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ddcli.errors import EngineError
from ddcli.store.files.access import reading
from ddcli.store.files.gate import Files, Written, checksum
from ddcli.store.files.objects import BLOCK, ObjectPath
from ddcli.store.parquet.row_groups import MAGIC, RowGroups, footer_in, footer_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddcli.store.files.access import Bytes


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
        with _opened(path) as part, self._lock:
            body = len(MAGIC) + self._groups.add(len(part), footer_of(len(part), part.read))
            first = self._first()
            found = checksum(part.read(0, first))
            for start in range(first, body, BLOCK):
                block = part.read(start, min(start + BLOCK, body))
                found = checksum(block, int(found, 16))
                self._append(block)
            found = checksum(part.read(body, len(part)), int(found, 16))
            if Written(len(part), found) != written:
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


class _Mapped:
    """A part in a file of this machine, which is mapped."""

    def __init__(self, data: mmap.mmap) -> None:
        self._view = data

    def __len__(self) -> int:
        return len(self._view)

    def read(self, start: int, end: int) -> bytes:
        return self._view[start:end]


class _Fetched:
    """A part in an object store."""

    def __init__(self, path: ObjectPath) -> None:
        self._path = path
        self._size: int = path.head()["size"]

    def __len__(self) -> int:
        return self._size

    def read(self, start: int, end: int) -> bytes:
        if start == end:
            return b""
        (data,) = self._path.read_ranges([(start, end)])
        return bytes(data)


def footer_checksum(path: Path) -> str:
    """Return the checksum of a Parquet file's footer."""
    return checksum(read_footer(path))


def read_footer(path: Path) -> bytes:
    """Return a Parquet file's footer with its length and magic. Raises ValueError for a file that has none."""
    with _opened(path) as part:
        return footer_of(len(part), part.read)


@contextmanager
def _opened(path: Path) -> Iterator[_Mapped | _Fetched]:
    if isinstance(path, ObjectPath):
        yield _Fetched(path)
        return
    with reading(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield _Mapped(data)
