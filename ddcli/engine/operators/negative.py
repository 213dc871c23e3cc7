"""The detection of records whose multiplicity is negative: a sign that the input is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, StatefulOperator
from ddcli.engine.times import LEAST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace


class Negative(StatefulOperator):
    """Pass updates on, and call `found` with those after which a record's multiplicity is negative: rows `[record | time | count]`.

    The trace holds the whole collection, all of a record being its key. Time has one coordinate.
    """

    def __init__(self, trace: Trace, found: Callable[[np.ndarray], None]):
        assert trace.nt == 1, "at times that are not ordered there is no multiplicity after an update"
        assert trace.nv == 0, "a record is the same only as a whole"
        super().__init__(trace)
        self.found = found

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        self.batch = kernels.consolidate(deltas[0].updates)
        if len(self.batch):
            self._look(self.batch)
        return Delta(self.batch, distinct=True)

    def _look(self, updates: np.ndarray) -> None:
        width = self.trace.nk
        matrices = self.trace.batches_for(kernels.distinct_keys(updates, width))
        keys = kernels.distinct_keys(updates, width)
        before = [kernels.gather(np.ascontiguousarray(matrix), width, keys) for matrix in matrices]
        held = np.concatenate([np.empty((0, width + 2), np.int64), *before])
        held[:, width] = LEAST
        # Sorted by record, then time, history first; a record's running sums are those of all rows minus the sum before the record.
        rows = kernels.merge([kernels.consolidate(held), updates])
        sums = np.cumsum(rows[:, -1])
        starts = np.append(True, (rows[1:, :width] != rows[:-1, :width]).any(axis=1))
        first = np.flatnonzero(starts)
        counts = sums - np.repeat(sums[first] - rows[first, -1], np.diff(np.append(first, len(rows))))
        wrong = (counts < 0) & (rows[:, width] != LEAST)
        if wrong.any():
            rejected = rows[wrong]
            rejected[:, -1] = counts[wrong]
            self.found(rejected)
