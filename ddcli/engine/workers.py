"""Workers: the threads that step the shards of an operator side by side. Kernels let go of the interpreter's lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

FEW = 2_000
"""Rows below which it takes longer to wake a thread than to do its work."""


class Workers:
    """A number of shards, and threads to step them in."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(count - 1, "dd-worker") if count > 1 else None

    def each(self, task: Callable[[int], T], shards: Sequence[int], rows: int) -> list[T]:
        """Return what `task` gives for each of the `shards`, in their order; `rows` says how much work it is."""
        if self._threads is None or len(shards) < 2 or rows < FEW:
            return [task(shard) for shard in shards]
        *others, last = shards
        futures = [self._threads.submit(task, shard) for shard in others]
        try:
            mine = task(last)
        finally:
            # All of them are done with their traces before anyone hears of a failure.
            results = [future.exception() or future for future in futures]
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [*(future.result() for future in futures), mine]

    def close(self) -> None:
        """Let the threads go: from now on all is done in the thread that asks for it."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
