"""The updates that sources receive: in files, not read yet, in slices that any process can read.

A run reads the new rows of its inputs by `ddcli.store.log.reader`. The slices here are the past from which a changed pipeline's state is built:
the contents of arrangements as of a frontier, and the updates of outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from ddcli.dataclass import frozen
from ddcli.engine.lanes import encode
from ddcli.engine.rounds import as_of, times_of
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.files.access import reading
from ddcli.store.log.writer import in_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Columns, Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Frontier, Time
    from ddcli.store.batch.layout import BatchLayout
    from ddcli.store.state.entries import FileEntry


class Slice(Protocol):
    """Some updates, not read yet."""

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        """Return them as `[data lanes | time lanes | diff]`; threads may read different ones at once."""

    def updates(self, layout: Layout, pool: Pool) -> np.ndarray | Columns:
        """Return them so, or in the columns in which they were read."""


class Feed(Protocol):
    """The input of a source: `rows` updates or fewer."""

    @property
    def slices(self) -> Sequence[Slice]:
        """Return their parts."""

    @property
    def rows(self) -> int:
        """Return an upper bound of the number of its updates."""


@frozen
class InputSlice:
    """The input of a source, wherever it is from (see `Feed`)."""

    slices: Sequence[Slice]
    rows: int


@frozen
class Settled:
    """Updates that matter only by their sums as of a frontier, in times of `nt` coordinates."""

    part: Slice
    frontier: Frontier
    nt: int

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        return as_of(self.part.matrix(layout, pool), self.frontier, self.nt)

    updates = matrix


@frozen
class Corrected:
    """The updates of a file that was replaced, or that replaces it: inserted or, with the `sign` -1, taken back, at one time or after it."""

    part: Slice
    time: Time
    sign: int

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        found = self.part.matrix(layout, pool).copy()
        times = times_of(found, len(self.time))
        np.maximum(times, np.array(self.time, np.int64), out=times)
        found[:, -1] *= self.sign
        return found

    updates = matrix


@frozen
class ArrangementFile:
    """A file of an arrangement, whose lanes it has in the order of its `layout`."""

    path: Path
    file: FileEntry
    layout: BatchLayout

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        found: np.ndarray = StoredBatch(self.path, self.file, self.layout, pool).matrix()
        return found

    updates = matrix


@frozen
class LoggedRows:
    """Some rows of a file of an output's own log, with these time columns. A column that came later is null, and a type may have been another, whose values the present one holds."""

    path: Path
    start: int
    rows: int
    times: tuple[str, ...]

    def matrix(self, layout: Layout, pool: Pool) -> np.ndarray:
        with reading(self.path) as file:
            scan = pl.scan_parquet(file, glob=False, hive_partitioning=False)
            frame = in_columns(scan.slice(self.start, self.rows).collect(), layout.schema)
        width = layout.width + len(self.times) + 1
        matrix = encode(frame, layout, pool, np.empty((frame.height, width), np.int64))
        for at, column in enumerate((*self.times, "diff"), start=layout.width):
            matrix[:, at] = frame[column].to_physical().cast(pl.Int64).to_numpy()
        return matrix

    updates = matrix
