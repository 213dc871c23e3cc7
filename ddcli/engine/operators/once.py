"""A record that exists for good from the first time on at which its input holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, StatefulOperator, Stateless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace


class Once(StatefulOperator):
    """Emit the input's one record, once, at the first time at which its multiplicity is positive.

    Time has one coordinate. The trace holds the record once it was emitted. While the trace is empty, the input was empty so far, so
    that the sum of the new updates is the input's multiplicity.
    """

    def __init__(self, trace: Trace):
        assert trace.nt == 1, "times that are not ordered have no first one"
        assert trace.nv == 0, "a record is the same only as a whole"
        super().__init__(trace)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = deltas[0].updates
        if not self.trace.rows and len(updates):
            # The rows of a load mostly have one time: the sum at the first time needs no sorting.
            first = updates[updates[:, -2] == updates[:, -2].min()]
            if first[:, -1].sum() <= 0:
                updates = kernels.consolidate(updates)
                first = updates[np.cumsum(updates[:, -1]) > 0]
            if len(first):
                self.batch = first[:1].copy()
                self.batch[0, -1] = 1
        return Delta(self.batch, distinct=True)


class SummedTimes(Stateless):
    """Sum up a part of a `Once`'s input, whose rows are all one record, to one row for each time, where they are sorted.

    Unsorted rows are passed on: sorting would cost more than it saves.
    """

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        (delta,) = deltas
        if delta.distinct or not kernels.is_sorted(delta.updates):
            return delta
        return Delta(kernels.consolidate(delta.updates), distinct=True)
