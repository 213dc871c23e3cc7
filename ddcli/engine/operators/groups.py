"""Operators over groups and multiplicities as nodes of a dataflow: the reduction of `reduce`, with its traces around it.

In a loop a reduction reads its groups as of the current round (see `revisit`); its traces take in the updates at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, StatefulOperator, Stateless, TakenLanes, empty
from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.operators.reduce_instances import Due
from ddcli.engine.trace.spine import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ddcli.engine.operators.asof import AsofJoin, Neighbours
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.operators.shift import Waiting
    from ddcli.engine.operators.threshold import Threshold
    from ddcli.engine.rounds import Interval, Rounds


class Indexed(Protocol):
    """An operator that keeps the input of a reduction, arranged by its groups."""

    @property
    def trace(self) -> Reader:
        """Return the trace as of before the step."""


class Group(StatefulOperator):
    """A reduction that reads the rows of its groups from an arrangement, in a loop of `depth`. Its trace holds its output.

    In partially ordered time a step finds interesting times that are not closed yet: they wait in `waiting`.
    """

    def __init__(
        self,
        reduce: Reduce | Threshold,
        arranged: Indexed | None,
        trace: Trace,
        waiting: Waiting | None = None,
        depth: int = 0,
    ):
        super().__init__(trace)
        self.reduce = reduce
        self.arranged = arranged
        self.waiting = waiting
        self.traces = (trace, waiting.trace) if waiting else (trace,)
        if depth:
            inputs = arranged.trace if arranged else None
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
            self.batch, pending = self.revisiting.step(self.reduce, updates, seeds, interval)
        else:
            inputs = self.arranged.trace if self.arranged else self.trace
            due = Due(seeds, interval.upper.elements)
            self.batch, pending = self.reduce.step(updates, output=self.trace, inputs=inputs, due=due)
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

    def __init__(self, reduce: Reduce, trace: Trace, waiting: Waiting | None = None, depth: int = 0):
        super().__init__(reduce, None, trace, waiting, depth)

    def takes(self, width: int) -> TakenLanes | None:
        return TakenLanes(tuple(range(width)), self.trace.nk)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        """Step over the new rows, and over the combined sums of other rows, if there are any."""
        nk = self.trace.nk
        updates, *combined = (kernels.sort_by(delta.updates, range(nk)) for delta in deltas)
        if not combined or not len(combined[0]):
            return super().step([Delta(updates)], interval)
        assert isinstance(self.reduce, Reduce)
        (sums,) = combined
        seeds = np.concatenate([sums[:, :nk], sums[:, -2:-1]], axis=1)
        found = self.reduce.step(updates, self.trace, due=Due(seeds, interval.upper.elements), combined=sums)
        self.batch = found.updates
        return Delta(self.batch, distinct=True)


class Combine(Stateless):
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


class CombinedSums(Stateless):
    """The sums of a `Combine` that has just stepped over the same rows: rows [key | digits | time | 1]."""

    def __init__(self, combine: Combine):
        self.combine = combine
        self.none = empty(combine.reduce.nk + combine.reduce.digits + 2)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        found, self.combine.found = self.combine.found, None
        return Delta(self.none if found is None else found)


class Local(Stateless):
    """A window or an as-of join that reads few rows around each. Reads an arrangement in its own order.

    It is for totally ordered time outside of loops, where the output before follows from the input; elsewhere `Group` keeps the output.
    """

    def __init__(self, near: Neighbours | AsofJoin, arranged: Indexed):
        self.near = near
        self.arranged = arranged

    @property
    def rows_read(self) -> int:
        """The rows around changes that it has read."""
        return self.near.rows_read

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return Delta(self.near.step(deltas[0].updates, self.arranged.trace), distinct=True)


class Multiplicity(Stateless):
    """Records with a function of their multiplicity as multiplicity. Reads an arrangement whose key is the whole record.

    It is for totally ordered time outside of loops, where the output before follows from the input; elsewhere `Group` keeps the output.
    """

    def __init__(self, threshold: Threshold, arranged: Indexed):
        self.threshold = threshold
        self.arranged = arranged

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return Delta(self.threshold.step(deltas[0].updates, self.arranged.trace).updates, distinct=True)
