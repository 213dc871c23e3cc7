"""Memory of large matrices, reused for later ones: the system has to clear fresh memory, which takes as long as sorting it."""

from __future__ import annotations

import sys
import threading
from typing import Final

import numpy as np

LARGE: Final = 1 << 20
"""Numbers of a matrix from which on its memory is worth reusing: the C library itself keeps smaller pieces."""


def references(rooms: list[np.ndarray]) -> list[int]:
    """Return the number of references to each room: those of the matrices in it, and those of the count itself."""
    return [sys.getrefcount(room) for room in rooms]


(UNUSED,) = references([np.empty(0)])
"""The references to a room without a matrix, which depend on the version of Python."""


class Rooms:
    """Matrices in the memory of earlier ones without references. Threads may call at once.

    Unused memory never stays beside fresh memory: if a matrix fits into no unused room, all unused rooms are released first.
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
        """Return the memory of a matrix of `size` numbers."""
        free = [count <= UNUSED for count in references(self._rooms)]
        for room, unused in zip(self._rooms, free, strict=True):
            if unused and size <= room.size <= 2 * size:
                return room
        self._rooms = [room for room, unused in zip(self._rooms, free, strict=True) if not unused]
        # Shards are of much the same size: the next one may be a bit larger.
        self._rooms.append(np.empty(size + size // 16, np.int64))
        return self._rooms[-1]
