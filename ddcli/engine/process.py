"""A process at work: its processors, the threads that step the shards of an operator side by side, and what its allocators do with freed memory.

Kernels release the interpreter's lock. The allocators are numpy's (glibc's) and polars' (jemalloc): they keep freed memory for later, or return it to the system.
A run makes and drops matrices of hundreds of megabytes. To give each back to the system and ask for the next costs more than half of a large run's time in page faults. So
commands, and processes that do tasks on Spark, keep freed memory.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

FEW = 2_000
"""Rows below which it takes longer to wake a thread than to do its work."""

LARGE = 1 << 40
"""A number of rows that is always worth a thread."""

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # parameters of glibc's mallopt
SETTING, LEFT = "_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:1000"
"""The setting of polars' allocator, and its value that polars' import sets, which processes started by a program with polars inherit."""
SHARED = f"{LEFT},narenas:"
"""The beginning of our own setting; the number of arenas follows."""


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """A number of shards, and threads to step them in: as many, or fewer."""

    most = processors()
    """The number of threads that the latest run of this process may use."""

    def __init__(self, count: int = 1, threads: int | None = None) -> None:
        self.count = count
        self.threads = min(count, threads or count)
        self._threads: ThreadPoolExecutor | None = None
        if self.threads > 1:
            from concurrent.futures import ThreadPoolExecutor

            self._threads = ThreadPoolExecutor(self.threads - 1, "dd-worker")

    def each(self, task: Callable[[int], T], shards: Sequence[int], rows: int) -> list[T]:
        """Return the results of `task` for each of the `shards`, in their order; `rows` is the amount of work."""
        if self._threads is None or len(shards) < 2 or rows < FEW:
            return [task(shard) for shard in shards]
        waiting = iter(list(shards))  # a list's iterator is safe in threads
        results: dict[int, T] = {}

        def work() -> None:
            for shard in waiting:
                results[shard] = task(shard)

        futures = [self._threads.submit(work) for _ in range(min(self.threads, len(shards)) - 1)]
        try:
            work()
        finally:
            # All threads are done with their traces before a failure is raised; threads that have not begun find no work left.
            errors = [future.exception() for future in futures if not future.cancel()]
        for error in errors:
            if error is not None:
                raise error
        return [results[shard] for shard in shards]

    def close(self) -> None:
        """End the threads: from now on tasks run in the calling thread."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


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
    import ctypes  # three ms, which commands without a run need not take

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, -1)  # never: a large loop frees and takes more than 2 GB, the largest size, in each round
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
