"""Files of a state that are checked against their entries in the manifest: the size when one is opened, the checksum when one is read whole; and the bundles that a run reads.

A local bundle is mapped; a sparse file stands in for an object whose parts were fetched.
"""

from __future__ import annotations

import mmap
import re
import threading
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import EngineError, StateError
from ddcli.store.files.access import fs, read_bytes, reading
from ddcli.store.files.gate import checksum

OPEN = 128
"""Bundles that a run has open at once: each takes a descriptor."""
HELD = 512 << 20
"""Bytes of objects that stay on this machine's disk for their next reader."""
NEAR = 1 << 20
"""Bytes of a block of a bundle in an object store that are fetched together: a run that reads a small batch mostly reads its neighbours, too, and each request takes some 20 ms."""
RESTORE = "restore the state directory from a backup, or start again: `dd reset PIPELINE --outputs`"

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ddcli.store.state.entries import FileEntry


def check_size(path: Path, entry: FileEntry) -> None:
    """Refuse a file that is gone or has another size than in the manifest (StateError)."""
    try:
        size = fs(path).size()
    except OSError as error:
        raise unreadable(path, error) from None
    if entry.bundle and size >= entry.at + entry.size:
        return
    if size != entry.size or entry.bundle:
        raise StateError(
            f"the file has {size} bytes, the manifest states {entry.at + entry.size}", place=str(path), hint=RESTORE
        )


def check_bytes(path: Path, entry: FileEntry) -> None:
    """Refuse a file (StateError) whose bytes are not those that were written.

    They are mapped, not read: a copy in fresh memory would take longer than the checksum.
    """
    check_size(path, entry)
    if not entry.size:
        return
    if entry.bundle or not fs(path).is_local:
        read_checked(path, entry)
        return
    with reading(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if checksum(data) != entry.checksum:
            raise damaged(path)


def read_checked(path: Path, entry: FileEntry) -> bytes:
    """Return the bytes of a file, or refuse it (StateError) if it is gone or they are not those that were written."""
    if not entry.bundle:
        check_size(path, entry)
    try:
        found = [(entry.at, entry.at + entry.size)]
        data = bytes(fs(path).read_ranges(found)[0]) if entry.bundle else read_bytes(path, entry.size)
    except OSError as error:
        raise unreadable(path, error) from None
    if len(data) != entry.size or checksum(data) != entry.checksum:
        raise damaged(path)
    return data


class MappedFile:
    """The bytes of a file, which are all here (see `PartialCopy`). Raises OSError, and ValueError for an empty one."""

    def __init__(self, path: Path) -> None:
        with reading(path) as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    fetched = 0
    """It takes no room of its own."""


class PartialCopy:
    """The stand-in of an object of `size` > 0 bytes that never changes: `data`, with zeros in the parts that were not fetched.

    It is a mapped file without a name, so it is no memory of the process, and is removed with its last reader.
    """

    def __init__(self, path: Path, size: int) -> None:
        import tempfile

        self.path = path
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            self.data = mmap.mmap(file.fileno(), size)
        self._there = bytearray(-(-size // FETCHED))
        """1 for each block that is here."""

    @property
    def fetched(self) -> int:
        """Return the number of bytes that are here, rounded up to blocks."""
        return FETCHED * self._there.count(1)

    def has(self, start: int, end: int) -> bool:
        """Return whether a range of bytes is here."""
        return _ABSENT.search(self._there, start // FETCHED, -(-end // FETCHED)) is None

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Bring ranges of bytes [start, end) here, together; what is here already isn't requested again. The object may end before."""
        missing: list[tuple[int, int]] = []
        for start, end in sorted(ranges):
            for found in _ABSENT.finditer(self._there, start // FETCHED, -(-end // FETCHED)):
                first, last = found.span()
                if missing and first - missing[-1][1] < NEIGHBOURS:
                    first, last = missing[-1][0], max(last, missing.pop()[1])
                missing.append((first, last))
        waiting: list[tuple[int, int]] = []
        for first, last in missing:
            for at in range(first, last, TOGETHER):
                part = at, min(at + TOGETHER, last)
                if sum(end - start for start, end in (*waiting, part)) > TOGETHER:
                    self._bring(waiting)
                    waiting = []
                waiting.append(part)
        self._bring(waiting)

    def _bring(self, blocks: Sequence[tuple[int, int]]) -> None:
        """Request ranges of blocks, all at once."""
        places = [(first * FETCHED, min(last * FETCHED, len(self.data))) for first, last in blocks]
        for (start, _), data in zip(places, fs(self.path).read_ranges(places), strict=True):
            self.data[start : start + len(data)] = bytes(data)
        for first, last in blocks:
            self._there[first:last] = b"\1" * (last - first)


FETCHED = 1 << 14
"""Bytes of a block of an object, which is fetched as a whole."""
NEIGHBOURS = 1 << 6
"""Blocks between two ranges that are fetched with them: a megabyte takes as long as a request."""
TOGETHER = 1 << 11
"""Blocks that are requested together at most: 32 MB are in memory on their way."""
_ABSENT = re.compile(rb"\0+")


@dataclass
class OpenBundles:
    """The bundles whose batches a run reads: they never change, so the `OPEN` latest stay open. Of object stores it keeps what was fetched, also of batches that have an object of their own.

    `sizes` has the sizes of bundles, as a manifest has them: an object store is asked for the others.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    _open: dict[Path, MappedFile | PartialCopy] = field(default_factory=dict)
    _opening: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[type[OpenBundles], tuple[Mapping[str, int]]]:
        return OpenBundles, (self.sizes,)  # another process opens its own

    def check_size(self, path: Path, entry: FileEntry) -> None:
        """Refuse a batch of a local bundle (StateError) that it has no room for."""
        if len(self._content(path, entry).data) < entry.at + entry.size:
            check_size(path, entry)

    def view(self, path: Path, entry: FileEntry) -> memoryview:
        """Return the bytes of a batch as they are in its local bundle, unchecked."""
        found = memoryview(self._content(path, entry).data)[entry.at : entry.at + entry.size]
        if len(found) != entry.size:
            raise damaged(path)
        return found

    def read_checked(self, path: Path, entry: FileEntry) -> bytes:
        """Return the bytes of a batch, or refuse it (StateError) if its bundle is gone or they are not those that were written.

        It is fetched from an object store with its neighbours.
        """
        content, end = self._content(path, entry), entry.at + entry.size
        if isinstance(content, PartialCopy) and not content.has(entry.at, end):
            fetch(content, entry, [(entry.at // NEAR * NEAR, min(-(-end // NEAR) * NEAR, len(content.data)))])
        found = content.data[entry.at : end]
        if len(found) != entry.size or checksum(found) != entry.checksum:
            check_size(path, entry)
            raise damaged(path)
        return found

    def copy(self, path: Path, entry: FileEntry) -> PartialCopy:
        """Return the copy, empty at first, of the object that has a batch."""
        found = self._content(path, entry)
        assert isinstance(found, PartialCopy), "a local file is mapped"
        if len(found.data) < entry.at + entry.size:
            raise damaged(path)
        return found

    def _content(self, path: Path, entry: FileEntry) -> MappedFile | PartialCopy:
        with self._opening:
            found = self._open.pop(path, None)
            if found is None:
                try:
                    found = MappedFile(path) if fs(path).is_local else PartialCopy(path, self._size(path, entry))
                except OSError as error:
                    raise unreadable(path, error) from None
                except ValueError:  # it is empty
                    raise damaged(path) from None
                while len(self._open) >= OPEN or sum(each.fetched for each in self._open.values()) > HELD:
                    del self._open[next(iter(self._open))]
            self._open[path] = found
        return found

    def _size(self, path: Path, entry: FileEntry) -> int:
        return (self.sizes.get(path.name) or fs(path).size()) if entry.bundle else entry.size


def fetch(copy: PartialCopy, entry: FileEntry, ranges: Sequence[tuple[int, int]]) -> None:
    """Fetch ranges of the object that has a batch. Raises StateError where it is gone, or ends before them."""
    try:
        copy.fetch(ranges)
    except OSError as error:
        raise unreadable(copy.path, error) from None
    except EngineError:
        check_size(copy.path, entry)  # stores refuse a range that begins behind the end
        raise


def unreadable(path: Path, error: OSError) -> StateError:
    """Return the error for a file that is gone, or can't be read."""
    return StateError(f"the file can't be read: {error.strerror}", place=str(path), hint=RESTORE)


def damaged(path: Path) -> StateError:
    """Return the error for a file whose bytes are not those that were written."""
    return StateError("the file is damaged: its bytes are not those that were written", place=str(path), hint=RESTORE)


def other_columns(path: Path) -> StateError:
    """Return the error for a batch that has not the columns of its arrangement."""
    return StateError("the batch has other columns than the manifest states", place=str(path), hint=RESTORE)
