"""Memory of large matrices, used again for those that come after them: what is new has to be cleared by the system, which takes as long as to sort it."""

from __future__ import annotations

import sys
import threading
from typing import Final

import numpy as np

LARGE: Final = 4 << 20
"""Numbers of a matrix from which its memory is worth to be used again: the library of C keeps less than that itself."""


def references(rooms: list[np.ndarray]) -> list[int]:
    """Return how many references there are to each room: those of matrices that lie in it, and of who counts."""
    return [sys.getrefcount(room) for room in rooms]


(UNUSED,) = references([np.empty(0)])
"""References to a room in which no matrix lies: it depends on the version of Python."""


class Rooms:
    """Matrices whose memory is that of earlier ones to which nobody refers any more. Threads may ask at once.

    No memory waits beside fresh one: where a matrix fits into none that is unused, all that is unused goes first.
    """

    def __init__(self) -> None:
        self._rooms: list[np.ndarray] = []
        self._lock = threading.Lock()

    def matrix(self, rows: int, width: int) -> np.ndarray:
        """Return a matrix of any content."""
        size = rows * width
        if size < LARGE:
            return np.empty((rows, width), np.int64)
        with self._lock:
            return self._room(size)[:size].reshape(rows, width)

    def _room(self, size: int) -> np.ndarray:
        """Return the memory of a matrix of so many numbers."""
        free = [count <= UNUSED for count in references(self._rooms)]
        for room, unused in zip(self._rooms, free, strict=True):
            if unused and size <= room.size <= 2 * size:
                return room
        self._rooms = [room for room, unused in zip(self._rooms, free, strict=True) if not unused]
        # Shards are of much the same size: the next one may be a bit larger.
        self._rooms.append(np.empty(size + size // 16, np.int64))
        return self._rooms[-1]
