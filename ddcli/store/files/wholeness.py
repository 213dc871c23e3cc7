"""The wholeness of files: a reader must not read half of one while others write.

A Parquet file ends with its footer, an Arrow file with its magic; text has no recognizable end, so it counts as whole
when it has not changed for a moment. An object appears whole or not at all. Imports no third-party library.
"""

from __future__ import annotations

import time
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.store.files.objects import ObjectPath

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUIET = 1.0
"""Seconds without a change after which a text file counts as written."""
MAGIC, ENCRYPTED, ARROW = b"PAR1", b"PARE", b"ARROW1"
LEAST = 12
"""Bytes of the smallest Parquet file: its magic twice, and the size of its footer."""
PARQUET_ENDINGS, ARROW_ENDINGS = (".parquet", ".parq", ".pq"), (".arrow", ".ipc", ".feather")


@dataclass
class Wholeness:
    """Decides whether files are whole, and reports each that lacks its end, once."""

    tell: Callable[[Path], None]
    unsettled: bool = False
    """True: one of them may be whole soon, without a further change."""
    _reported: set[Path] = field(default_factory=set)

    def __call__(self, path: Path) -> bool:
        """Return whether a file is whole."""
        try:
            whole = isinstance(path, ObjectPath) or self._is_whole(path)
        except OSError:
            return True  # it can't be read: its reader reports why
        if path.suffix.lower() not in (*PARQUET_ENDINGS, *ARROW_ENDINGS):
            self.unsettled = self.unsettled or not whole
        elif whole:
            self._reported.discard(path)
        elif path not in self._reported:
            self._reported.add(path)
            self.tell(path)
        return whole

    def _is_whole(self, path: Path) -> bool:
        if path.suffix.lower() in (*PARQUET_ENDINGS, *ARROW_ENDINGS):
            return _ends(path)
        return abs(time.time() - path.stat().st_mtime) >= QUIET


def has_end(path: Path) -> bool:
    """Return whether a file is of a kind that has an end, and has it; an unreadable file has none."""
    try:
        return path.suffix.lower() in (*PARQUET_ENDINGS, *ARROW_ENDINGS) and _ends(path)
    except OSError:
        return False


def _ends(path: Path) -> bool:
    """Return whether a Parquet or Arrow file has its end."""
    return _is_parquet(path) if path.suffix.lower() in PARQUET_ENDINGS else _begins_and_ends(path, ARROW)


def _is_parquet(path: Path) -> bool:
    size = path.stat().st_size
    if size < LEAST:
        return False
    with path.open("rb", buffering=0) as file:
        first = file.read(4)
        file.seek(size - 8)
        length, last = int.from_bytes(file.read(4), "little"), file.read(4)
    return first == last and last in {MAGIC, ENCRYPTED} and LEAST + length <= size


def _begins_and_ends(path: Path, magic: bytes) -> bool:
    size = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        first = file.read(len(magic))
        file.seek(max(0, size - len(magic)))
        return size >= 2 * len(magic) and first == file.read(len(magic)) == magic
