"""The progress of a run on a terminal: its present stage, rows and bytes read and written, and rates. It vanishes at the end.

A short run shows nothing and imports nothing: a thread waits for `PATIENCE` first, and imports rich only then.
"""

from __future__ import annotations

import sys
import threading
import time as clock
from collections import deque
from typing import TYPE_CHECKING, TextIO

from ddcli.engine.counts import Progress
from ddcli.job.summary import size_of
from ddcli.render.units import amount
from ddcli.screen import say, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

PATIENCE = 0.5
"""The seconds of a run before its progress is shown."""
TIMES_A_SECOND = 8
WINDOW = 3
"""The seconds over which rates are averaged."""


class LiveProgress(Progress):
    """The progress of a run on a terminal, from `PATIENCE` seconds after its first stage began until its end.

    Messages must be printed by `say`, which puts them above the progress. One object serves several runs, one after the other.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._live: Live | None = None
        self._thread: threading.Thread | None = None
        self._forget()

    def _forget(self) -> None:
        self.what = ""
        self.number: int | None = None
        self.done = self.active = self.failed = 0
        self.rows_read = self.bytes_read = self.rows_written = self.bytes_written = 0
        self._began = clock.monotonic()
        self._seen: deque[tuple[float, int, int]] = deque(maxlen=WINDOW * TIMES_A_SECOND)

    # --- reports of the run ---------------------------------------------------------------------------------------

    def begin(self, what: str, tasks: int | None = None) -> None:
        if self._thread is None:
            self._forget()
            self._over.clear()
            self._thread = threading.Thread(target=self._show, name="dd-progress", daemon=True)
            self._thread.start()
        with self._lock:
            self.what, self.number = what, tasks
            self.done = self.active = self.failed = 0

    def advance(self, tasks: int = 1) -> None:
        with self._lock:
            self.done += tasks

    def follow(self, done: int, active: int, failed: int) -> None:
        with self._lock:
            self.done, self.active, self.failed = done, active, failed

    def read(self, rows: int, size: int = 0) -> None:
        with self._lock:
            self.rows_read += rows
            self.bytes_read += size

    def wrote(self, rows: int, size: int = 0) -> None:
        with self._lock:
            self.rows_written += rows
            self.bytes_written += size

    def end(self) -> None:
        if self._thread is not None:
            self._over.set()
            self._thread.join()
            self._thread = None

    def say(self, line: str) -> None:
        """Print a line above the progress."""
        with self._lock:
            live = self._live
        if live is None:
            say(line, file=self.stream)
        else:
            live.console.print(visible(line), markup=False, highlight=False, soft_wrap=True)

    # --- the terminal ---------------------------------------------------------------------------------------------

    def _show(self) -> None:
        if self._over.wait(PATIENCE):
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self.stream)
        live = Live(self, console=console, auto_refresh=False, transient=True)
        with live:
            with self._lock:
                self._live = live
            while not self._over.wait(1 / TIMES_A_SECOND):
                live.refresh()
            with self._lock:
                self._live = None

    def __rich__(self) -> RenderableType:
        """Return the present progress as two lines: the stage and the amounts."""
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            now = clock.monotonic()
            self._seen.append((now, self.rows_read, self.rows_written))
            lines = [self._stage(now - self._began), self._amounts()]
        table = Table.grid()
        for line in lines:
            table.add_row(Text(visible(line), no_wrap=True, overflow="ellipsis"))
        return table

    def _stage(self, seconds: float) -> str:
        minutes, rest = divmod(int(seconds), 60)
        numbers = []
        if self.number is not None and self.number > 1:
            numbers.append(f"{bar(self.done, self.number)} {self.done}/{self.number}")
        if self.active:
            numbers.append(f"{self.active} at work")
        if self.failed:
            numbers.append(f"{self.failed} failed and retried")
        return "  ".join([f"{minutes}:{rest:02d}", *([", ".join(numbers)] if numbers else []), self.what])

    def _amounts(self) -> str:
        """Return the rows and bytes read and written, and their rates in the last seconds, in words."""
        (first, *before), (last, *now) = self._seen[0], self._seen[-1]
        words, sizes, parts = ("read", "wrote"), (self.bytes_read, self.bytes_written), []
        for word, rows, earlier, size in zip(words, now, before, sizes, strict=True):
            facts = [size_of(size)] if size else []
            if rows > earlier:
                facts.append(f"{amount((rows - earlier) / (last - first))} rows/s")
            if rows:
                parts.append(f"{word} {amount(rows)} rows" + (f" ({', '.join(facts)})" if facts else ""))
        return "      " + ", ".join(parts)


def bar(done: int, number: int, width: int = 20) -> str:
    """Return a progress bar.

    >>> bar(1, 4, 8)
    '[##      ]'
    """
    filled = width * min(done, number) // number
    return f"[{'#' * filled}{' ' * (width - filled)}]"
