"""Workers: the threads that step the shards of an operator side by side. Kernels release the interpreter's lock."""

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
