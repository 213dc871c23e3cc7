"""Rounds of loops as time lanes: added, dropped, and told apart.

The time lanes of a matrix in a loop are the coordinates of the input's time, then a round a loop, outermost first.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels

if TYPE_CHECKING:
    from collections.abc import Iterator

Rounds = tuple[int, ...]
"""The current round of each loop around, outermost first; () outside of all loops."""


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
    """Return the lanes of updates that are no rounds."""
    return np.array([*range(width - 1 - depth), width - 1], np.int64)


def split_rounds(m: np.ndarray, at: int, depth: int) -> Iterator[tuple[Rounds, np.ndarray]]:
    """Yield the rounds that occur in the lanes from `at` on, in ascending order, each with its rows, in their order."""
    if not len(m):
        return
    ordered = kernels.sort_by(m, range(at, at + depth)) if len(m) > 1 else m
    rounds = ordered[:, at : at + depth]
    ends = np.flatnonzero((rounds[1:] != rounds[:-1]).any(axis=1)) + 1
    start = 0
    for stop in [*ends.tolist(), len(m)]:
        yield tuple(rounds[start].tolist()), ordered[start:stop]
        start = stop
