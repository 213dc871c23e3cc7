"""What all operators share: a delta in, a delta out, over one closed interval of times."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from ddcli.engine import kernels
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.engine.lanes import Columns, Decoded
    from ddcli.engine.operators.reduce_replay import SumOverflow
    from ddcli.engine.operators.revisit import Revisiting
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Trace


SOLE: Final = 3 if sys.version_info < (3, 14) else 0
"""References to an object that is in one variable of a caller: this, its own, and one of who counts. Later versions of Python do not count all."""


class Delta(NamedTuple):
    """New updates of a collection: `[data lanes | time lanes | diff]`, and whether no two rows share data and time.

    `distinct` spares a reader that needs no order the consolidation; it does not state the order of rows. `inserts` states
    that no row retracts, so that counting needs no look at the rows. A part of what is read has, in `decoded`, the columns that one of
    its readers has decoded, for the others; or its data are in `columns` still, and `updates` have none. What was brought to a shard may be `taken`: in the lanes that its reader asked for.
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
    """The lanes that an operator takes of its input first of all, diff included, and by how many of the first ones it sorts them, stably."""

    lanes: tuple[int, ...]
    by: int


def consolidated(delta: Delta) -> np.ndarray:
    """Return updates with at most one for a record and time."""
    return delta.updates if delta.distinct else kernels.consolidate(delta.updates)


def taken_out(deltas: Sequence[Delta]) -> np.ndarray:
    """Return the updates of the only delta, which a list has no more: they may be nobody else's then."""
    return (deltas.pop() if isinstance(deltas, list) else deltas[0]).updates


def is_sole(updates: np.ndarray) -> bool:
    """Return whether a matrix is in one variable of the caller and nowhere else, nor part of another: nobody else can read it."""
    return updates.base is None and sys.getrefcount(updates) == SOLE


class Operator(Protocol):
    """One node of a dataflow. State, where there is any, lives in the operator's traces.

    The deltas that a step is given may be in nothing but their list: it may take one out and write over updates of which it finds
    that nobody else has them.
    """

    @property
    def wakes(self) -> list[Rounds]:
        """Where a step schedules something for later rounds it adds them here; the scope takes them out."""

    @property
    def takes_columns(self) -> bool:
        """Return whether its deltas may have their data in columns still."""

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Return the rounds in which something waits since earlier intervals. Called before the interval's first step."""

    def takes(self, width: int) -> TakenLanes | None:
        """Return what it would take first of all of its input of so many lanes; None: all, as they are."""

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        """Return the result's updates for the interval; traces still read as of its lower frontier, or its last round."""

    def seal(self, interval: Interval) -> None:
        """Take the step's updates into the operator's traces; called once all readers have stepped."""

    @property
    def seals(self) -> bool:
        """Return whether it takes in anything in `seal`."""

    def close(self, interval: Interval) -> None:
        """Learn that nobody reads before the interval's upper any more: all its rounds are done."""

    @property
    def traces(self) -> Sequence[Trace]:
        """Return the traces that it keeps."""

    @property
    def shared(self) -> bool:
        """Return whether others read its trace: then it is closed and sealed when all of them have stepped."""

    @property
    def rows_read(self) -> int:
        """Return how many rows that are not new it has looked at so far, where that is more than a few for each new one."""

    @property
    def revisiting(self) -> Revisiting | None:
        """Return what decides when groups of a reduction in a loop are looked at again."""

    @property
    def report(self) -> Callable[[SumOverflow], Exception] | None:
        """Return what makes another error of a sum that its type can't hold, in words that the engine doesn't know; None: the error stays."""


def empty(width: int) -> np.ndarray:
    """Return a matrix of no updates with `width` lanes, diff included."""
    return np.empty((0, width), np.int64)


class Stateless:
    """An operator that keeps nothing from one step to the next."""

    wakes: list[Rounds] = []  # noqa: RUF012 - nothing is added here: an operator that schedules has a list of its own
    traces: Sequence[Trace] = ()
    shared = False
    seals = False
    takes_columns = False
    revisiting: Revisiting | None = None
    report: Callable[[SumOverflow], Exception] | None = None

    @property
    def rows_read(self) -> int:
        """Nothing that is worth counting: as many rows for each new one, at most."""
        return 0

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Return nothing."""
        return ()

    def takes(self, width: int) -> TakenLanes | None:
        """Return None: it takes all."""
        return None

    def seal(self, interval: Interval) -> None:
        """Do nothing."""

    def close(self, interval: Interval) -> None:
        """Do nothing."""


class Keeping(Stateless):
    """An operator whose step makes a batch of its trace, which takes it in when all readers have stepped."""

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
        """Let go of the batch: a slice without rows would hold its memory."""
        self.batch = self._none

    def close(self, interval: Interval) -> None:
        """Let the times before the interval's upper become equal, now that nobody reads them apart any more."""
        self.trace.set_logical_compaction(interval.upper)
        self.trace.settle(interval.upper)
