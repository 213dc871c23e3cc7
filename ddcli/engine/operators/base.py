"""The interface of all operators: deltas in, a delta out, over one closed interval of times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ddcli.engine import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.engine.lanes import Columns, Decoded
    from ddcli.engine.operators.reduce_replay import SumOverflow
    from ddcli.engine.operators.revisit import IterativeReduce
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Trace


class Delta(NamedTuple):
    """New updates of a collection: `[data lanes | time lanes | diff]`, and whether no two rows share data and time.

    `distinct` spares a reader that needs no order the consolidation; it does not state the order of rows. `inserts` states
    that no row retracts, so that counting need not read the rows. A part of an input has, in `decoded`, the columns that one of
    its readers has decoded, for the others; or its data are still in `columns`, and `updates` have no data lanes. Exchanged updates may be `taken`: in the lanes that their reader wants.
    """

    updates: np.ndarray
    distinct: bool = False
    inserts: bool = False
    decoded: Decoded | None = None
    columns: Columns | None = None
    taken: bool = False

    @property
    def rows(self) -> int:
        """The number of updates."""
        return len(self[0])


class TakenLanes(NamedTuple):
    """The lanes, diff included, to which an operator first reduces its input, and the number of leading ones that it stably sorts them by."""

    lanes: tuple[int, ...]
    by: int


def consolidated(delta: Delta) -> np.ndarray:
    """Return updates with at most one for a record and time."""
    return delta.updates if delta.distinct else kernels.consolidate(delta.updates)


def concatenated(deltas: Sequence[Delta]) -> np.ndarray:
    """Return the updates of the only delta, and remove it from its list, so that no other reference may remain."""
    return (deltas.pop() if isinstance(deltas, list) else deltas[0]).updates


class Operator(Protocol):
    """One node of a dataflow. State, where there is any, lives in the operator's traces.

    A step may remove a delta from its list, as that may be the last reference to large updates. It never overwrites them: others may read them,
    and a result may be the updates that an operator was given.
    """

    @property
    def wakes(self) -> list[Rounds]:
        """The later rounds for which steps have scheduled work; the scope removes them."""

    @property
    def takes_columns(self) -> bool:
        """Return whether its deltas may still have their data in columns."""

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Return the rounds in which updates wait since earlier intervals. Called before the interval's first step."""

    def takes(self, width: int) -> TakenLanes | None:
        """Return the lanes to which it would first reduce an input of `width` lanes; None for all, in their order."""

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        """Return the result's updates for the interval; traces still read as of its lower frontier, or its last round."""

    def seal(self, interval: Interval) -> None:
        """Take the step's updates into the operator's traces; called once all readers have stepped."""

    @property
    def seals(self) -> bool:
        """Return whether `seal` takes in updates."""

    def close(self, interval: Interval) -> None:
        """End the interval: all its rounds are done, and times before its upper have no more readers."""

    @property
    def traces(self) -> Sequence[Trace]:
        """Return the traces that it keeps."""

    @property
    def shared(self) -> bool:
        """Return whether others read its trace: then it is closed and sealed when all of them have stepped."""

    @property
    def rows_read(self) -> int:
        """Return how many old rows it has read so far; 0 where that is at most a few for each new one."""

    @property
    def revisiting(self) -> IterativeReduce | None:
        """Return the object that decides when groups of a reduction in a loop are evaluated again."""

    @property
    def report(self) -> Callable[[SumOverflow], Exception] | None:
        """Return the function that turns a SumOverflow into an error in the words of the pipeline file; None where it is raised as it is."""


def empty(width: int) -> np.ndarray:
    """Return a matrix of no updates with `width` lanes, diff included."""
    return np.empty((0, width), np.int64)


class Stateless:
    """An operator that keeps nothing from one step to the next."""

    wakes: list[Rounds] = []  # noqa: RUF012 - never added to: an operator that schedules has a list of its own
    traces: Sequence[Trace] = ()
    shared = False
    seals = False
    takes_columns = False
    revisiting: IterativeReduce | None = None
    report: Callable[[SumOverflow], Exception] | None = None

    @property
    def rows_read(self) -> int:
        """None that is counted: at most about as many rows as are new."""
        return 0

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Return nothing."""
        return ()

    def takes(self, width: int) -> TakenLanes | None:
        """Return None: it takes all lanes."""
        return None

    def seal(self, interval: Interval) -> None:
        """Do nothing."""

    def close(self, interval: Interval) -> None:
        """Do nothing."""


class StatefulOperator(Stateless):
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
