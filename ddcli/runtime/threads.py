"""Tasks in threads of this process: what is too little for anybody else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.progress import Progress


class Threads:
    """Does tasks here, as many at once as it has `slots` (the driver's protocol `Cluster`)."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._attempts = count()

    def task_memory(self, here: int) -> int:
        """Return the bytes that a task may have, where all that is done on this machine may have `here`."""
        return here // self.slots

    def run(
        self,
        function: Callable[[bytes, bytes, str], bytes],
        common: bytes,
        tasks: Sequence[bytes],
        about: str,
        progress: Progress,
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
