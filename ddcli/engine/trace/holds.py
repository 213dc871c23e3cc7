"""Holds: readers' claims on a trace beside those of the operators that keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ddcli.engine.times import Frontier
    from ddcli.engine.trace.spine import Trace


class Hold:
    """A claim: the trace tells times from `since` on apart, and merges no batch that reaches beyond `through`.

    A closed frontier claims nothing. Both only move forward. Where two readers hold a trace, it keeps to the meet of what they say.
    """

    __slots__ = ("since", "through", "trace")

    def __init__(self, trace: Trace, since: Frontier, through: Frontier):
        self.trace = trace
        self.since = since
        self.through = through

    def advance(self, since: Frontier, through: Frontier) -> None:
        """Claim less."""
        self.since, self.through = since, through
        self.trace.claim()

    def release(self) -> None:
        """Claim nothing any more."""
        self.trace.unhold(self)


def before(times: np.ndarray, frontier: Frontier) -> np.ndarray:
    """Say which rows of a matrix of times are not at or after any element of a frontier.

    >>> from ddcli.engine.times import Frontier
    >>> before(np.array([[0, 5], [1, 1], [2, 3]]), Frontier([(1, 2), (2, 0)])).tolist()
    [True, True, False]
    """
    late = np.zeros(len(times), np.bool_)
    for element in frontier:
        after = times[:, 0] >= element[0]
        for at in range(1, times.shape[1]):
            after &= times[:, at] >= element[at]
        late |= after
    return ~late


def times_of(matrix: np.ndarray, nt: int) -> np.ndarray:
    """Return the time lanes of a batch."""
    return matrix[:, matrix.shape[1] - 1 - nt : -1]
