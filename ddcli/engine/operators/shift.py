"""Operators that move updates to later times, and the one that holds updates until their times are reached.

A time is the input's coordinates, then a round for each loop around. Only `EnterAt` moves rounds, of the innermost loop; the
others move the input's coordinates, and their updates may be beyond the interval: a `Delay` reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.lanes import decode, encode
from ddcli.engine.operators.base import Delta, Operator, StatefulOperator, empty
from ddcli.engine.operators.linear import weigh
from ddcli.engine.rounds import some_before, split_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import polars as pl

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Trace


class EnterAt(Operator):
    """Insert each record in a loop at the round in its last data lane; a negative round counts as 0."""

    def __init__(self, nt: int):
        self.nt = nt

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return Delta(kernels.enter_at(deltas[0].updates, self.nt))


class Shift(Operator):
    """Have each record exist between the two times in its last data lanes: a temporal filter, `from <= now < until`.

    Either may be missing: `lower` and `upper` state which of them the lanes hold. An update at a time t is inserted at t join `from`
    and retracted at t join `until`; so a retraction in between takes effect at once, and cancels the one at `until`. Time has one input
    coordinate; `nt` counts the rounds behind it, too.
    """

    def __init__(self, nt: int, *, lower: bool, upper: bool):
        self.nt = nt
        self.lower = lower
        self.upper = upper

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return Delta(kernels.shift(deltas[0].updates, self.nt, lower=self.lower, upper=self.upper))


class PythonShift(Operator):
    """Turn each update (data, time, diff) into any number of (data2, time join time2, diff * diff2).

    It generalises all linear operators. `logic` takes the input's columns and returns the result's columns, the input row of each result
    row (None: each once, in order), a factor for each diff (None: 1), and int64 times, (n, input coordinates); None, like the least
    integer in their place, is no delay.
    """

    def __init__(
        self,
        logic: Callable[[pl.DataFrame], tuple[pl.DataFrame, np.ndarray | None, np.ndarray | None, np.ndarray | None]],
        source: Layout,
        result: Layout,
        pool: Pool,
        nt: int,
    ):
        self.logic = logic
        self.source = source
        self.result = result
        self.pool = pool
        self.nt = nt

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = deltas[0].updates
        if not len(updates):
            return Delta(empty(self.result.width + self.nt + 1), distinct=True)
        frame, rows, weights, times = self.logic(decode(updates, self.source, self.pool))
        tail = updates[:, self.source.width :] if rows is None else updates[rows, self.source.width :]
        out = np.empty((len(tail), self.result.width + self.nt + 1), np.int64)
        encode(frame, self.result, self.pool, out)
        out[:, self.result.width :] = tail
        if times is not None:
            kernels.join_times(out, self.result.width, np.ascontiguousarray(times))
        return Delta(weigh(out, weights, "a diff that `join_function` returned"))


class DelayedRows(StatefulOperator):
    """Rows [data | times | diff] that wait until their time is in the interval. The trace holds them with the time as the key.

    Its matrices are [times | data | times | diff]: those in front stay as they are when the others are compacted, and
    with one input coordinate due rows are a range. A row that leaves is retracted, and both updates vanish when
    their batches merge. All rows with a time before the interval's lower have left: they are not read.

    `depth` of the times are rounds. Rows that wait with rounds of a loop leave in those rounds.
    """

    def __init__(self, trace: Trace, depth: int = 0):
        super().__init__(trace)
        nt, nv = trace.nt, trace.nv
        self.depth = depth
        self._in = [*range(nv, nv + nt), *range(nv + nt + 1)]
        self._out = [*range(nt, nt + nv), *range(nt), 2 * nt + nv]
        self._due: dict[Rounds, np.ndarray] = {}

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Find the rows that are due in the interval, and return their rounds."""
        if not self.trace.rows:
            return ()
        due = kernels.consolidate(kernels.take(self._within(interval), self._out))
        self._due = dict(split_rounds(due, self.trace.nv + self.trace.nt - self.depth, self.depth))
        return self._due

    def _within(self, interval: Interval) -> np.ndarray:
        """Return the trace's rows whose time is in the interval, with the retractions of those that have left."""
        matrices = self.trace.matrices()
        nt = self.trace.nt - self.depth
        if nt == 1:
            edges = [element for frontier in (interval.lower, interval.upper) for element in frontier]
            found = kernels.locate(np.array(edges, np.int64), matrices)[0][:, ::2]
            end = found[1] if interval.upper else [len(matrix) for matrix in matrices]
            return kernels.gather_bounds(matrices, np.stack([found[0], end], axis=1).reshape(1, -1))
        parts = []
        for matrix in matrices:
            past = some_before(matrix[:, :nt], interval.lower.elements)
            if past is None:
                continue
            early = some_before(matrix[:, :nt], interval.upper.elements)
            parts.append(matrix[~past] if early is None else matrix[early & ~past])
        return kernels.concat(parts) if parts else matrices[0][:0]

    def exchange(self, interval: Interval, fresh: np.ndarray) -> np.ndarray:
        """Return the rows that are due in these rounds, and store `fresh` rows whose time is later."""
        due = self._due.pop(interval.rounds, self.batch[:0, self.trace.nt :])
        moves = []
        if len(fresh):
            moves.append(kernels.take(fresh, self._in))
        if len(due):
            left = kernels.take(due, self._in)
            kernels.negate(left)
            moves.append(left)
        if moves:
            self.batch = kernels.consolidate(kernels.concat([self.batch, *moves]))
        return due

    def close(self, interval: Interval) -> None:
        assert not self._due, "a round in which something was due has not been stepped"
        super().close(interval)


class Delay(DelayedRows):
    """Hold updates back until their time is in the interval."""

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates, distinct = deltas[0].updates, deltas[0].distinct
        nt, nv = self.trace.nt, self.trace.nv
        early = some_before(updates[:, nv : nv + nt - self.depth], interval.upper.elements)
        fresh = updates[:0] if early is None else updates[~early]
        if early is not None:
            updates = updates[early]
        due = self.exchange(interval, fresh)
        if not len(due):
            return Delta(updates, distinct)
        return Delta(kernels.concat([updates, due]), distinct=not len(updates))
