"""Operators over groups and multiplicities as nodes of a dataflow: the reduction of `reduce` with its traces, and `threshold` with `distinct`.

In a loop a reduction reads its groups as of the current round (see `revisit`); its traces take in the updates at the end.

To `threshold(f)`, and its most used case `distinct`, the record is the key and there is no value: matrices `[record | time | diff]`. With f applied
to accumulated counts,

    delta(t) = f(count at t) - accumulated output at t

In totally ordered time the output before the batch is f of the counts before it, so no output need be kept. Otherwise
it is not: at an interesting time that the last step only announced, the output is still as at earlier times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels import upsert as threshold_kernels
from ddcli.engine.operators.base import Delta, Operator, StatefulOperator, empty
from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.operators.reduce_instances import (
    NOTHING_DUE,
    Due,
    History,
    Reduced,
    difference,
    interesting,
    new_instances,
)
from ddcli.engine.operators.reduce_replay import checked
from ddcli.engine.times import LEAST
from ddcli.engine.trace.spine import Trace
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.asof import AsofJoin, Neighbours
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.operators.shift import DelayedRows
    from ddcli.engine.rounds import Interval, Rounds


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
        outputs = History(kept, *kernels.locate(instances.keys, kept), nk)
        if nt > 1 or ahead:
            instances, pending, left = interesting(instances, History(past, bounds, rows, nk), outputs, upper)
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


class Group(StatefulOperator):
    """A reduction that reads the rows of its groups from an arrangement, in a loop of `depth`. Its trace holds its output.

    In partially ordered time a step finds interesting times that are not closed yet: they wait in `waiting`.
    """

    def __init__(
        self,
        reduce: Reduce | Threshold,
        inputs: Reader | None,
        trace: Trace,
        waiting: DelayedRows | None = None,
        depth: int = 0,
    ):
        super().__init__(trace)
        self.reduce = reduce
        self.inputs: Reader = trace if inputs is None else inputs
        self.waiting = waiting
        self.traces = (trace, waiting.trace) if waiting else (trace,)
        if depth:
            assert inputs is None or isinstance(inputs, Trace), "a reduction in a loop reads an arrangement of the loop"
            from ddcli.engine.operators.revisit import IterativeReduce

            self.revisiting = IterativeReduce(
                inputs, trace, depth, reduce.search if isinstance(reduce, Reduce) else None
            )
            self.wakes = self.revisiting.wakes

    @property
    def rows_read(self) -> int:
        """The rows of its groups that it has evaluated. In a loop they are not counted, as they depend on how the run is cut."""
        return 0 if self.revisiting else self.reduce.rows_read

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        return self.waiting.begin(interval) if self.waiting else ()

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = deltas[0].updates
        seeds = self._seeds(interval) if self.waiting else None
        if self.revisiting:
            self.batch, pending = self.revisiting.step(self.reduce.step, updates, seeds, interval)
        else:
            due = Due(seeds, interval.upper.elements)
            self.batch, pending = self.reduce.step(updates, output=self.trace, inputs=self.inputs, due=due)
        if self.waiting and len(pending):
            self.waiting.exchange(interval, np.concatenate([pending, np.ones((len(pending), 1), np.int64)], axis=1))
        return Delta(self.batch, distinct=True)

    def _seeds(self, interval: Interval) -> np.ndarray | None:
        """Return rows [key | time] that were to be evaluated in this interval and these rounds."""
        assert self.waiting is not None
        due = self.waiting.exchange(interval, self.waiting.batch[:0])
        return np.ascontiguousarray(due[:, : due.shape[1] - 1 - len(interval.rounds)]) if len(due) else None

    def seal(self, interval: Interval) -> None:
        super().seal(interval)
        if self.waiting:
            self.waiting.seal(interval)

    def close(self, interval: Interval) -> None:
        if self.revisiting:
            self.revisiting.close()
        super().close(interval)
        if self.waiting:
            self.waiting.close(interval)


class Accumulate(Group):
    """Counts and sums of groups. Its trace holds them, `[key | number of records | sums | time | diff]`, and no input."""

    def __init__(self, reduce: Reduce, trace: Trace, waiting: DelayedRows | None = None, depth: int = 0):
        super().__init__(reduce, None, trace, waiting, depth)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        """Step over the new rows, and over the combined sums of other rows, if there are any."""
        nk = self.trace.nk
        updates, *combined = (kernels.sort_by(delta.updates, range(nk), owned=delta.owned) for delta in deltas)
        if not combined or not len(combined[0]):
            return super().step([Delta(updates)], interval)
        assert isinstance(self.reduce, Reduce)
        (sums,) = combined
        seeds = np.concatenate([sums[:, :nk], sums[:, -2:-1]], axis=1)
        found = self.reduce.step(updates, self.trace, due=Due(seeds, interval.upper.elements), combined=sums)
        self.batch = found.updates
        return Delta(self.batch, distinct=True)


class Combine(Operator):
    """Add up a part of an accumulation's input, if many rows are of few groups: `found` has the sums for its `CombinedSums`.

    Passes on the other rows.
    """

    def __init__(self, reduce: Reduce):
        self.reduce = reduce
        self.found: np.ndarray | None = None

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        (delta,) = deltas
        self.found = self.reduce.combine(delta.updates)
        return delta if self.found is None else Delta(empty(delta.updates.shape[1]), distinct=True)


class CombinedSums(Operator):
    """The sums of a `Combine` that has just stepped over the same rows: rows [key | digits | time | 1]."""

    def __init__(self, combine: Combine):
        self.combine = combine
        self.none = empty(combine.reduce.nk + combine.reduce.digits + 2)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        found, self.combine.found = self.combine.found, None
        return Delta(self.none if found is None else found)


class Local(Operator):
    """A window or an as-of join that reads few rows around each, or a threshold, which reads only its records. Reads an arrangement in its own order.

    It is for totally ordered time outside of loops, where the output before follows from the input; elsewhere `Group` keeps the output.
    """

    def __init__(self, near: Neighbours | AsofJoin | Threshold, inputs: Reader):
        self.near = near
        self.inputs = inputs

    @property
    def rows_read(self) -> int:
        """The rows around changes that it has read."""
        return self.near.rows_read

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        found = self.near.step(deltas[0].updates, self.inputs)
        return Delta(found.updates if isinstance(found, Reduced) else found, distinct=True)
