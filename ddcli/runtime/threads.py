"""Tasks in threads of this process, which small runs use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.progress import Progress
    from ddcli.runtime.spark.session import Function


class Threads:
    """Runs tasks here, as many at once as it has `slots`; the scheduler uses it as it does a `Spark`."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._attempts = count()

    def task_memory(self, here: int) -> int:
        """Return the bytes of memory of one task, of the `here` bytes that all tasks on this machine may use."""
        return here // self.slots

    def run(
        self, function: Function, common: bytes, tasks: Sequence[bytes], about: str, progress: Progress
    ) -> list[bytes]:
        named = [(task, f"here-{next(self._attempts)}") for task in tasks]
        if len(named) == 1:
            return [function(common, *named[0])]

        def do(given: tuple[bytes, str]) -> bytes:
            done = function(common, *given)
            progress.advance()
            return done

        with ThreadPoolExecutor(self.slots, "dd-task") as threads:
            return list(threads.map(do, named))
