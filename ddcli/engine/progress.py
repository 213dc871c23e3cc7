"""The progress of a run: workers, in one thread or several, only notify; a higher room displays."""

from __future__ import annotations


class Progress:
    """Receives notifications of a run while it works; this one ignores them.

    A run does one stage after the other, and a stage is done when all of its tasks are. Nothing depends on a notification: it may
    come late or not at all, so a call returns at once and raises nothing. Any thread may call.
    """

    def begin(self, what: str, tasks: int | None = None) -> None:
        """Begin a stage, described for a person, with the number of its tasks where it is known; the previous stage has ended."""

    def advance(self, tasks: int = 1) -> None:
        """Count more finished tasks of the stage."""

    def follow(self, done: int, active: int, failed: int) -> None:
        """Take the numbers of the stage's tasks that are done, that run, and that have failed so far; some may be tried again."""

    def read(self, rows: int, size: int = 0) -> None:
        """Count more rows of inputs that were read, in `size` bytes of files."""

    def wrote(self, rows: int, size: int = 0) -> None:
        """Count more rows of outputs or state that were written, in `size` bytes of files."""

    def end(self) -> None:
        """End: the run is done, or has failed."""


SILENT = Progress()
