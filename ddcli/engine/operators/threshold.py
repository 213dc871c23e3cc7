"""Operators that read multiplicities only: `threshold(f)` and its most used case, `distinct`.

The record is the key and there is no value: matrices `[record | time | diff]`. With f applied to accumulated counts,

    delta(t) = f(count at t) - accumulated output at t

In totally ordered time the output before the batch is f of the counts before it, so no output need be kept. Otherwise
it is not: at an interesting time that the last step only announced, the output is still that of earlier times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels import threshold as threshold_kernels
from ddcli.engine.operators.base import Delta, StatefulOperator
from ddcli.engine.operators.reduce_difference import FormerOutput, Reduced, difference
from ddcli.engine.operators.reduce_instances import NOTHING_DUE, Due, History, interesting, new_instances
from ddcli.engine.operators.reduce_replay import checked
from ddcli.engine.times import LEAST
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.engine.columns import Lanes
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace


def positive(counts: Lanes) -> Lanes:
    """Return 1 for each positive count, else 0: the f of `distinct`.

    >>> positive(np.array([-2, 0, 3])).tolist()
    [0, 0, 1]
    """
    return (counts > 0).astype(np.int64)


class Threshold:
    """Each record of an arrangement by whole records, with `function` of its count as multiplicity.

    `function` takes and returns int64 vectors, of any length, element by element. It must map 0 to 0, or else every record that
    never existed would be in the result: EngineError.
    """

    rows_read = 0

    def __init__(self, nk: int, nt: int, function: Callable[[Lanes], Lanes] = positive):
        self.nk, self.nt = nk, nt
        self.function = function
        absent = self._apply(np.zeros(1, np.int64))[0]
        if absent != 0:
            raise EngineError(
                f"the threshold function makes {absent} of 0: records that are not there would be in the result",
                hint="give 0 for a count of 0",
            )

    def step(self, delta: Lanes, inputs: Reader, output: Reader | None = None, due: Due = NOTHING_DUE) -> Reduced:
        """Return the output's updates for the sorted new updates `delta`; see `Reduce.step` for the rest.

        `output` is the trace of the output before the batch, [record | time | diff]; it may be left out where time is totally
        ordered and no times are `ahead`.
        """
        nk, nt = self.nk, self.nt
        seeds, upper, ahead = due
        assert output is not None or (nt == 1 and not ahead), "in partially ordered time the output must be kept"
        instances = new_instances(delta, nk, nk, nt, seeds)
        pending = np.empty((0, nk + nt), np.int64)
        if not len(instances):
            return Reduced(np.empty((0, nk + nt + 1), np.int64), pending)
        past = inputs.batches_for(instances.keys)
        sources = [*past, delta]
        bounds, rows = kernels.locate(instances.keys, sources)
        kept = output.batches_for(instances.keys) if output else []
        outputs = FormerOutput(kept, *kernels.locate(instances.keys, kept))
        if nt > 1 or ahead:
            former = History(outputs.sources, outputs.bounds, nk, outputs.rows)
            instances, pending, left = interesting(instances, History(past, bounds, nk, rows), former, upper)
            bounds, outputs = bounds[left], outputs._replace(bounds=outputs.bounds[left])
        old, new = np.zeros(len(instances), np.int64), np.zeros(len(instances), np.int64)
        checked(threshold_kernels.count_at(sources, bounds, nk, nt, instances.first, instances.times, old, new))
        if output:
            # A record without value lanes, as often as its count.
            counts = self._apply(new)
            some = np.flatnonzero(counts)
            want = np.stack([some, counts[some]], axis=1)
            return Reduced(difference(instances, want, outputs), pending)
        changed = self._apply(new) - self._apply(old)
        inner = np.ones(len(changed), np.bool_)
        inner[instances.first[:-1]] = False
        changed[1:] -= np.where(inner[1:], changed[:-1], 0)
        some = np.flatnonzero(changed)
        out = np.empty((len(some), nk + nt + 1), np.int64)
        out[:, :nk] = instances.keys[instances.groups()[some]]
        out[:, nk:-1] = instances.times[some]
        out[:, -1] = changed[some]
        return Reduced(out, pending)

    def _apply(self, counts: Lanes) -> Lanes:
        out = np.asarray(self.function(counts))
        if out.shape != counts.shape or out.dtype != np.int64:
            raise EngineError(
                f"the threshold function returned {out.dtype} of shape {out.shape} for int64 of shape {counts.shape}"
            )
        return np.ascontiguousarray(out)


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
        # Sorted by record, then time, history first; a record's running sums are the sums of all rows minus the sum before the record.
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
