"""The return of freed memory to the system: glibc keeps the pieces between small matrices that are still in use."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def give_back(self) -> None:
        """Return free memory, if it may be much."""
        if self._trim is not None and self._resident() > self._kept + self._kept // 4 + SLACK:
            self._trim(0)
            self._kept = self._resident()

    def _resident(self) -> int:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if self._trim is not None else 0
