"""The inputs of a run under a progress display: each part that is read is timed and reported."""

from __future__ import annotations

import threading
import time as clock
from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass, frozen
from ddcli.engine.lanes import Columns
from ddcli.sources.slices import InputSlice

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.progress import Progress
    from ddcli.sources.readers import Reader
    from ddcli.sources.slices import Feed, Slice


@dataclass
class ProgressMeter:
    """Reports to `progress` which input is read, and sums up by input the time that takes, over all threads (`seconds`)."""

    progress: Progress
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watched(self, taken: Mapping[str, Feed], readers: Mapping[str, Reader]) -> dict[str, InputSlice]:
        """Return the input of each source, with its reading watched."""
        widths = widths_of(taken, readers)
        return {
            name: InputSlice([WatchedSlice(part, name, widths[name], self) for part in given.slices], given.rows)
            for name, given in taken.items()
        }

    def note(self, name: str, rows: int, size: float, seconds: float) -> None:
        """Count and report some rows of an input that were read."""
        with self._lock:
            self.seconds[name] += seconds
        self.progress.read(rows, int(size))


def widths_of(taken: Mapping[str, Feed], readers: Mapping[str, Reader]) -> dict[str, float]:
    """Return the bytes of an input's files per row: files don't state their rows' sizes, so each row counts as the mean."""
    sizes = {name: sum(file.size for file in readers[name].listing.to_read) for name in taken}
    return {name: sizes[name] / max(given.rows, 1) for name, given in taken.items()}


@frozen
class WatchedSlice:
    """Some updates of the input `name`, not read yet; a row takes `width` bytes of its file."""

    part: Slice
    name: str
    width: float
    watching: ProgressMeter

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        began = clock.perf_counter()
        found = self.part.matrix(layout, pool)
        self._note(len(found), began)
        return found

    def updates(self, layout: Layout, pool: Pool) -> np.ndarray | Columns:
        began = clock.perf_counter()
        found = self.part.updates(layout, pool)
        self._note(len(found.tail if isinstance(found, Columns) else found), began)
        return found

    def _note(self, rows: int, began: float) -> None:
        self.watching.note(self.name, rows, rows * self.width, clock.perf_counter() - began)
