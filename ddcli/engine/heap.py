"""The memory of large steps: matrices in the memory of earlier ones, and free memory that is returned to the system.

glibc keeps the pieces between small matrices that are still in use, until it is asked to return them.

The memory of large matrices is reused for later ones: the system has to clear fresh memory, which takes as long as sorting it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ddcli.engine.process import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

SLACK = 128 << 20
"""Memory is returned once this many bytes, and a quarter of those that were resident then, have been added since the last return."""
STATM = Path("/proc/self/statm")


@cache
def _trim() -> Callable[[int], int] | None:
    """Return the function that returns free memory to the system; None with another library than glibc."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if STATM.exists() else None


def give_back() -> None:
    """Return free memory to the system, however much is resident: a ms or two for half a GB."""
    if (trim := _trim()) is not None:
        trim(0)


class Heap:
    """Measures the resident memory, and returns free memory to the system once much more is resident than before.

    That takes some 30 ms a GB, and memory that is allocated again has to be cleared again. Does nothing with a C library other than glibc.
    """

    def __init__(self) -> None:
        self._trim = _trim()
        self._kept = self._resident()

    def give_back(self, most: int = 0) -> None:
        """Return free memory, if it may be much, and more than `most` bytes are resident."""
        if self._trim is not None and self._resident() > max(most, self._kept + self._kept // 4 + SLACK):
            self._trim(0)
            self._kept = self._resident()

    def _resident(self) -> int:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if self._trim is not None else 0


@cache
def heap_of_tasks() -> Heap:
    """Have this process, which only does tasks, keep freed memory; return the heap that gives it back between them. Call it before polars is imported."""
    keep_freed_memory()
    return Heap()


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
        self._buffers: list[np.ndarray] = []
        self._lock = threading.Lock()

    def matrix(self, rows: int, width: int) -> np.ndarray:
        """Return a matrix of any content."""
        import numpy as np  # commands set the allocators up before it is imported

        size = rows * width
        if size < LARGE:
            return np.empty((rows, width), np.int64)
        with self._lock:
            return self._buffer(size)[:size].reshape(rows, width)

    def _buffer(self, size: int) -> np.ndarray:
        """Return the memory of a matrix of `size` numbers."""
        import numpy as np

        (unused,) = references([np.empty(0)])  # depends on the version of Python
        free = [count <= unused for count in references(self._buffers)]
        for buffer, unused in zip(self._buffers, free, strict=True):
            if unused and size <= buffer.size <= 2 * size:
                return buffer
        self._buffers = [buffer for buffer, unused in zip(self._buffers, free, strict=True) if not unused]
        # Shards are of much the same size: the next one may be a bit larger.
        self._buffers.append(np.empty(size + size // 16, np.int64))
        return self._buffers[-1]
