"""Corrections of the past: a difference at closed times, stated at times that are still open.

A log may not change at a closed time. A new plan's difference in the past is therefore stated from the frontier on: at every open
time the log accumulates to the same as if the difference were stated at its own time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.rounds import before, times_of
from ddcli.engine.times import LEAST, Frontier, Time, join

if TYPE_CHECKING:
    from collections.abc import Mapping


def as_of(matrix: np.ndarray, frontier: Frontier, nt: int) -> np.ndarray:
    """Return updates `[.. | times | diff]`, closed or advanced to `frontier`, at closed times that stand for theirs, consolidated.

    To readers at open times an update is the same at t and at t join m, m being the meet of the frontier. That may be an open
    time; but where a coordinate is not beyond m's, one less than m's does as well, and that is closed: no element of
    the frontier, all at or after m, is at or before it.
    """
    meet = np.array(frontier.as_time(), np.int64)
    moved = matrix.copy()
    times = times_of(moved, nt)
    settled = np.where(meet == LEAST, LEAST, meet - (meet != LEAST))
    np.copyto(times, settled, where=times <= meet)
    return kernels.consolidate(moved)


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
