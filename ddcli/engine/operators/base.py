"""What all operators share: a delta in, a delta out, over one closed interval of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.times import Frontier


class Delta(NamedTuple):
    """New updates of a collection: `[data lanes | time lanes | diff]`, and whether no two rows share data and time.

    `distinct` spares a reader that needs no order the consolidation; it says nothing of the order of rows.
    """

    updates: np.ndarray
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """The times a step closes: at or after `lower`, not at or after `upper`."""

    lower: Frontier
    upper: Frontier


class Operator(Protocol):
    """One node of a dataflow. State, where there is any, lives in the operator's traces."""

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        """Return the result's updates for the interval; traces still read as of its lower frontier."""

    def seal(self, interval: Interval) -> None:
        """Take the step's updates into the operator's traces; called once all readers have stepped."""


def empty(width: int) -> np.ndarray:
    """Return a matrix of no updates with `width` lanes, diff included."""
    return np.empty((0, width), np.int64)


class Stateless:
    """An operator with nothing to take in at the end of a step."""

    def seal(self, interval: Interval) -> None:
        """Do nothing."""


class Keeping:
    """An operator whose step makes a batch of its trace, which takes it in when all readers have stepped."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.batch = empty(trace.nk + trace.nv + trace.nt + 1)

    def seal(self, interval: Interval) -> None:
        """Take the step's batch into the trace: nobody asks for a time before it any more."""
        self.trace.set_logical_compaction(interval.upper)
        self.trace.insert(self.batch, interval.upper)
        self.batch = self.batch[:0]
