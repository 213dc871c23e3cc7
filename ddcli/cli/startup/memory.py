"""The memory of a command's process: freed memory is reused instead of being returned to the system.

A run makes and drops matrices of hundreds of megabytes. Giving each back to the system and asking for the next costs more than
half of a large run's time in page faults; a command ends soon, and returns everything then.
"""

from __future__ import annotations

import ctypes
import os

from ddcli.engine.workers import processors

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # parameters of glibc's mallopt
SETTING, LEFT = "_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:1000"
"""The setting of polars' allocator, and its value that polars' import sets, which processes started by a program with polars inherit."""
SHARED = f"{LEFT},narenas:"
"""The beginning of our own setting; the number of arenas follows."""


def keep_freed_memory() -> None:
    """Have the allocators of numpy (glibc's) and polars (jemalloc) keep freed memory, the latter for a second. Call it before polars is imported.

    If polars kept its freed memory for ever, a load of 10 M rows would have 1.42 GB resident instead of 1.12, and with 400 MiB allowed 720 MB instead of 490, in the same time.

    All threads and libraries should be able to use kept memory: so pyarrow takes its memory from glibc, too, and all threads take it from one
    arena. Else each keeps the memory that it once used: a run with 300 MiB allowed had 438 resident, and now has 349.
    Without glibc, numpy's memory is handled as usual. polars would have four arenas a processor: with one for two processors, a sum of
    6 M rows had 0.34 GB resident instead of 0.40, in the same time.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _set(f"{SHARED}{max(1, processors() // 2)}")
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    mallopt(M_ARENA_MAX, 1)


def give_freed_memory_back() -> None:
    """Have polars' allocator return freed memory at once. Call it before polars is imported.

    With a small limit, caches are most of the process's memory: without this, a comparison under a limit of 384 MiB had 550 resident,
    with it 411, for a third more time.
    """
    _set("dirty_decay_ms:0,muzzy_decay_ms:0")


def _set(setting: str) -> None:
    """Set polars' allocator, unless the user has set it."""
    made = os.environ.get(SETTING, LEFT)
    if made == LEFT or made.startswith(SHARED):
        os.environ[SETTING] = setting
