"""The interface of all operators: deltas in, a delta out, over one closed interval of times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.engine import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.engine.lanes import Columns, Decoded
    from ddcli.engine.operators.reduce_aggregates import SumOverflow
    from ddcli.engine.operators.revisit import IterativeReduce
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Trace


class Delta(NamedTuple):
    """New updates of a collection: `[data lanes | time lanes | diff]`, and whether no two rows share data and time.

    `distinct` spares a reader that needs no order the consolidation; it does not state the order of rows. `inserts` states
    that no row retracts, so that counting need not read the rows. A part of an input has, in `decoded`, the columns that one of
    its readers has decoded, for the others; or its data are still in `columns`, and `updates` have no data lanes. Exchanged updates may be `taken`: in the lanes that their reader wants;
    or `owned`: their only reader may overwrite them.
    """

    updates: np.ndarray
    distinct: bool = False
    inserts: bool = False
    decoded: Decoded | None = None
    columns: Columns | None = None
    taken: bool = False
    owned: bool = False

    @property
    def rows(self) -> int:
        """The number of updates."""
        return len(self[0])


def consolidated(delta: Delta) -> np.ndarray:
    """Return updates with at most one for a record and time."""
    return delta.updates if delta.distinct else kernels.consolidate(delta.updates)


def summed(deltas: Sequence[Delta]) -> Delta:
    """Return deltas as one; those without rows are skipped."""
    filled = [delta for delta in deltas if delta.rows]
    if len(filled) == 1:
        return filled[0]
    return Delta(kernels.concat([delta.updates for delta in filled or deltas]))


def concatenated(deltas: Sequence[Delta]) -> np.ndarray:
    """Return the updates of the only delta, and remove it from its list, so that no other reference may remain."""
    return (deltas.pop() if isinstance(deltas, list) else deltas[0]).updates


def empty(width: int) -> np.ndarray:
    """Return a matrix of no updates with `width` lanes, diff included."""
    return np.empty((0, width), np.int64)


class Operator:
    """One node of a dataflow, by default one that keeps nothing from one step to the next. State, where there is any, lives in the operator's traces.

    A step may remove a delta from its list, as that may be the last reference to large updates. It overwrites none but `owned` ones: others may read them,
    and a result may be the updates that an operator was given.
    """

    wakes: list[Rounds] = []  # noqa: RUF012 - never added to: an operator that schedules has a list of its own
    """The later rounds for which steps have scheduled work; the scope removes them."""
    takes_columns = False
    """True if its deltas may still have their data in columns."""
    seals = False
    """True if `seal` takes in updates."""
    traces: Sequence[Trace] = ()
    """The traces that it keeps."""
    shared = False
    """True if others read its trace: then it is closed and sealed when all of them have stepped."""
    revisiting: IterativeReduce | None = None
    """The object that decides when groups of a reduction in a loop are evaluated again."""
    report: Callable[[SumOverflow], Exception] | None = None
    """The function that turns a SumOverflow into an error in the words of the pipeline file; None where it is raised as it is."""

    @property
    def rows_read(self) -> int:
        """The old rows that it has read so far; 0 where that is at most a few for each new one."""
        return 0

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Return the rounds in which updates wait since earlier intervals. Called before the interval's first step."""
        return ()

    def takes(self, width: int) -> tuple[int, ...] | None:
        """Return the distinct lanes, diff included, to which it would first reduce an input of `width` lanes; None for all, in their order."""
        return None

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        """Return the result's updates for the interval; traces still read as of its lower frontier, or its last round."""
        raise NotImplementedError

    def seal(self, interval: Interval) -> None:
        """Take the step's updates into the operator's traces; called once all readers have stepped."""

    def close(self, interval: Interval) -> None:
        """End the interval: all its rounds are done, and times before its upper have no more readers."""


class StatefulOperator(Operator):
    """An operator whose step computes its trace's next batch, which the trace takes in when all readers have stepped."""

    seals = True

    def __init__(self, trace: Trace):
        self.trace = trace
        self.traces = (trace,)
        self._none = empty(trace.nk + trace.nv + trace.nt + 1)
        self.batch = self._none

    def seal(self, interval: Interval) -> None:
        """Take the step's batch into the trace."""
        if interval.rounds:
            self.trace.append(self.batch)
        else:
            self.trace.insert(self.batch, interval.upper)
        self.batch = self._none

    def drop(self) -> None:
        """Release the batch: a slice without rows would hold its memory."""
        self.batch = self._none

    def close(self, interval: Interval) -> None:
        """Allow times before the interval's upper to be advanced: no reader distinguishes them any more."""
        self.trace.set_logical_compaction(interval.upper)
        self.trace.advance_frontier(interval.upper)
