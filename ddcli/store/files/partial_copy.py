"""A file of this machine that stands in for an object, or for a part of one: as large, with the bytes that were fetched."""

from __future__ import annotations

import mmap
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.store.files.objects import ObjectPath


class PartialCopy:
    """The stand-in of `size` > 0 bytes of an object that never changes, from the byte `at` on: `data`, with zeros in the parts that were not fetched.

    It is a mapped file without a name, so it is no memory of the process, and is removed with its last reader.
    """

    def __init__(self, path: ObjectPath, size: int, at: int = 0) -> None:
        self.path = path
        self._at = at
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            self.data = mmap.mmap(file.fileno(), size)
        self._there: set[tuple[int, int]] = set()

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Bring ranges of bytes [start, end) here, together, unless they have been brought already."""
        missing = [some for some in ranges if some not in self._there]
        wanted = [(self._at + start, self._at + end) for start, end in missing]
        for (start, _), data in zip(missing, self.path.read_ranges(wanted), strict=True):
            self.data[start : start + len(data)] = bytes(data)
        self._there.update(missing)
