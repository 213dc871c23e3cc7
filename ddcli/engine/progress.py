"""The progress of a run: workers, in one thread or several, only notify; the display is above."""

from __future__ import annotations


class Progress:
    """Gets notified of a run while it works; this one ignores all of it.

    A run goes from stage to stage, and a stage is done when all of its tasks are. No notification is needed: it may
    come late or not at all, so a call returns at once and raises nothing. Any thread may call.
    """

    def begin(self, what: str, tasks: int | None = None) -> None:
        """Hear that a stage begins, in words for a person, and that it has so many tasks, where that is known; the one before has ended."""

    def advance(self, tasks: int = 1) -> None:
        """Hear that some more tasks of the stage are done."""

    def follow(self, done: int, active: int, failed: int) -> None:
        """Hear how many tasks of the stage are done in all, are being done, and have failed so far: some may be tried again."""

    def read(self, rows: int, size: int = 0) -> None:
        """Hear that some more rows of inputs, in so many bytes of files, were read."""

    def wrote(self, rows: int, size: int = 0) -> None:
        """Hear that some more rows of outputs or state, in so many bytes of files, were written."""

    def end(self) -> None:
        """Hear that nothing more comes: the run is done, or has failed."""


SILENT = Progress()
