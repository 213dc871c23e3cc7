"""Time lanes of updates: compared with frontiers; and the rounds of loops in them, added, dropped and compared.

The time lanes of a matrix in a loop are the coordinates of the input's time, then a round for each loop, outermost first.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddcli.engine.times import Frontier, Time

Rounds = tuple[int, ...]
"""The current round of each enclosing loop, outermost first; () outside of all loops."""


class Interval(NamedTuple):
    """The times that a step closes: at or after `lower`, not at or after `upper`, and in loops exactly of these `rounds`.

    The frontiers are over the input's coordinates of time: those are data to the operators, which process all of them together. Only rounds
    run one after the other.
    """

    lower: Frontier
    upper: Frontier
    rounds: Rounds = ()

    def at(self, rounds: Rounds) -> Interval:
        """Return the interval in these rounds."""
        return Interval(self.lower, self.upper, rounds)

    def has(self, time: Time) -> bool:
        """Return whether a step over the interval closes a time."""
        return self.lower.less_equal(time) and not self.upper.less_equal(time)


def before(times: np.ndarray, frontier: Iterable[Sequence[int]]) -> np.ndarray:
    """Return which rows of a matrix of times are not at or after any element of a frontier.

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


def some_before(times: np.ndarray, upper: Sequence[Sequence[int]] | None) -> np.ndarray | None:
    """Return which rows of a matrix of times are before the frontier `upper`; None when all are."""
    if upper is None:
        return None
    if times.shape[1] == 1 and len(times) and (not upper or times.max() < min(element[0] for element in upper)):
        return None  # the common case, and quickly tested where order is total
    found = before(times, upper)
    return None if found.all() else found


def times_of(matrix: np.ndarray, nt: int) -> np.ndarray:
    """Return the time lanes of a batch."""
    return matrix[:, matrix.shape[1] - 1 - nt : -1]


def with_rounds(m: np.ndarray, rounds: Rounds, tail: int) -> np.ndarray:
    """Return rows with constant lanes for `rounds` before their last `tail` lanes.

    >>> with_rounds(np.array([[7, 0, 1]]), (3,), 1).tolist()
    [[7, 0, 3, 1]]
    """
    at = m.shape[1] - tail
    if not len(m):
        return np.empty((0, m.shape[1] + len(rounds)), np.int64)
    out = np.empty((len(m), m.shape[1] + len(rounds)), np.int64)
    out[:, :at] = m[:, :at]
    out[:, at : at + len(rounds)] = rounds
    out[:, at + len(rounds) :] = m[:, at:]
    return out


def without_rounds(m: np.ndarray, depth: int) -> np.ndarray:
    """Return updates without the lanes of their rounds, in their order.

    >>> without_rounds(np.array([[7, 0, 3, 1]]), 1).tolist()
    [[7, 0, 1]]
    """
    return kernels.take(m, _others(m.shape[1], depth))


@cache
def _others(width: int, depth: int) -> np.ndarray:
    """Return the lanes of updates that are not rounds."""
    return np.array([*range(width - 1 - depth), width - 1], np.int64)


def split_rounds(m: np.ndarray, at: int, depth: int) -> Iterator[tuple[Rounds, np.ndarray]]:
    """Yield the rounds that occur in the lanes from `at` on, in ascending order, each with its rows, in their order."""
    if len(m) < 2:
        if len(m):
            yield tuple(m[0, at : at + depth].tolist()), m
        return
    ordered = kernels.sort_by(m, range(at, at + depth))
    rounds = ordered[:, at : at + depth]
    if len(m) <= kernels.FEW:
        each = rounds.tolist()
        ends = [end for end in range(1, len(m)) if each[end] != each[end - 1]]
    else:
        ends = (np.flatnonzero((rounds[1:] != rounds[:-1]).any(axis=1)) + 1).tolist()
    start = 0
    for stop in [*ends, len(m)]:
        yield tuple(rounds[start].tolist()), ordered[start:stop]
        start = stop
