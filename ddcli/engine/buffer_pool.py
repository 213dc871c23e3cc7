"""Memory of large matrices, reused for later ones: the system has to clear fresh memory, which takes as long as sorting it."""

from __future__ import annotations

import sys
import threading
from typing import Final

import numpy as np

LARGE: Final = 1 << 20
"""The least numbers of a matrix whose memory is pooled: the C library itself keeps smaller pieces."""


def references(buffers: list[np.ndarray]) -> list[int]:
    """Return the number of references to each buffer: from the matrices in it, and from the count itself."""
    return [sys.getrefcount(buffer) for buffer in buffers]


class BufferPool:
    """Matrices in the memory of earlier ones without references. Threads may call at once.

    Unused memory never stays beside fresh memory: if a matrix fits into no unused buffer, all unused buffers are released first.
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
        (unused,) = references([np.empty(0)])  # depends on the version of Python
        free = [count <= unused for count in references(self._rooms)]
        for buffer, unused in zip(self._rooms, free, strict=True):
            if unused and size <= buffer.size <= 2 * size:
                return buffer
        self._rooms = [buffer for buffer, unused in zip(self._rooms, free, strict=True) if not unused]
        # Shards are of much the same size: the next one may be a bit larger.
        self._rooms.append(np.empty(size + size // 16, np.int64))
        return self._rooms[-1]
