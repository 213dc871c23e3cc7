"""The return of freed memory to the system: glibc keeps the pieces that lie between small matrices that are still in use."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

SLACK = 128 << 20
"""Bytes that may be resident more than when memory was last given back, beside a quarter of what was then."""
STATM = Path("/proc/self/statm")
LARGE = 4 << 20
"""Bytes from which on a matrix has pages of its own, as numpy asks for large ones from there on: no more than a few faults each."""
UNUSED = 64 << 20
"""Bytes behind the last matrix in use that are kept for those to come."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt


@cache
def give_back_large() -> None:
    """Have each large matrix given back to the system when it is freed: for a process that stays, and keeps others.

    glibc does so at first, but learns from each one freed to keep those up to its size, of at most 32 MiB: what many of them leave between others was
    a quarter of what a loop over a million nodes had resident. Faults take a tenth of the time of its load. Where there is no glibc, nothing is changed.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGE)
    mallopt(M_TRIM_THRESHOLD, UNUSED)


class Heap:
    """Looks how much memory is resident, and gives back what is free once that is much more than before.

    It takes some 30 ms a GB, and what is taken again has to be cleared again. Does nothing where the system's library is another one.
    """

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if STATM.exists() else None
        self._kept = self._resident()

    def give_back(self) -> None:
        """Give back what is free, if that may be much."""
        if self._trim is not None and self._resident() > self._kept + self._kept // 4 + SLACK:
            self._trim(0)
            self._kept = self._resident()

    def _resident(self) -> int:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if self._trim is not None else 0
