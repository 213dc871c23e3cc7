"""The time lanes of updates: the input's coordinates, compared with frontiers and corrected in the past, and the rounds of loops, added, dropped and compared.

In a loop the time lanes of a matrix are the coordinates of the input's time, then a round for each loop, outermost first.

A log may not change at a closed time. A new plan's difference in the past is therefore stated from the frontier on: at every open
time the log accumulates to the same as if the difference were stated at its own time.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.times import LEAST, Frontier, Time, join

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


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


def between(times: np.ndarray, lower: Iterable[Sequence[int]] | None, upper: Iterable[Sequence[int]]) -> np.ndarray:
    """Return which rows of a matrix of times are at or after `lower` (None: from the beginning) and not at or after `upper`."""
    return before(times, upper) & (lower is None or ~before(times, lower))


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


def as_of(matrix: np.ndarray, frontier: Frontier, nt: int) -> np.ndarray:
    """Return updates `[.. | times | diff]`, closed or advanced to `frontier`, at closed times that stand for theirs, consolidated.

    To readers at open times an update is the same at t and at t join m, m being the meet of the frontier. That may be an open
    time; but where a coordinate is not beyond m's, one less than m's does as well, and that is closed: no element of
    the frontier, all at or after m, is at or before it.
    """
    moved = matrix.copy()
    advance_to_closed(times_of(moved, nt), frontier)
    return kernels.consolidate(moved)


def advance_to_closed(times: np.ndarray, frontier: Frontier) -> None:
    """Advance times, closed or advanced to `frontier`, to the closed times that stand for theirs in `as_of`, in place."""
    meet = np.array(frontier.as_time(), np.int64)
    np.copyto(times, np.where(meet == LEAST, LEAST, meet - (meet != LEAST)), where=times <= meet)


def reopened(matrix: np.ndarray, frontier: Frontier, nt: int) -> np.ndarray:
    """Return updates at open times only, which accumulate at each open time to the same as `matrix`, consolidated.

    The open times are those at or after some element of the frontier: a union, written by inclusion and exclusion as a sum of
    factors at times f. Those at or after a closed time t, too, are at or after t join f, with the same factors.
    """
    closed = before(times_of(matrix, nt), frontier)
    parts = [np.ascontiguousarray(matrix[~closed])]
    past = matrix[closed]
    for then, factor in union(list(frontier)).items() if len(past) else ():
        part = past.copy()
        times = times_of(part, nt)
        np.maximum(times, np.array(then, np.int64), out=times)
        part[:, -1] *= factor
        parts.append(part)
    return kernels.consolidate(np.concatenate(parts))


def union(corners: list[Time]) -> Mapping[Time, int]:
    """Return factors at times whose sum at or before any time is 1 if it is at or after some corner, else 0.

    >>> union([(0, 4), (3, 0)])
    {(0, 4): 1, (3, 0): 1, (3, 4): -1}
    """
    factors: dict[Time, int] = {}
    for corner in Frontier(corners):
        # One more set: itself, without its parts that are in the others already.
        both: dict[Time, int] = {}
        for time, factor in factors.items():
            both[join(time, corner)] = both.get(join(time, corner), 0) - factor
        factors[corner] = factors.get(corner, 0) + 1
        for time, factor in both.items():
            factors[time] = factors.get(time, 0) + factor
        factors = {time: factor for time, factor in factors.items() if factor}
    return factors
