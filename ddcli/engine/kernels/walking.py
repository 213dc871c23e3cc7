"""Walk the histories of a few groups in a loop: what they hold up to a round, and when they change after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.kernels.errors import DiffOverflow
from ddcli.engine.kernels.loader import inline, kernel, matrix_of
from ddcli.engine.kernels.reduce_times import sort_rows
from ddcli.engine.kernels.rows import copy_row, same, sum_overflows

if TYPE_CHECKING:
    from collections.abc import Sequence

OVERFLOW: Final = -1


@inline
def sum_group(held: np.ndarray, start: int, end: int) -> int:
    """Sort and consolidate held[start:end] in place; gives the row after its last one, or OVERFLOW."""
    d = held.shape[1] - 1
    sort_rows(held, start, end, d)
    o = start
    for i in range(start, end):
        if o > start and same(held, o - 1, held, i, d):
            total = held[o - 1, d] + held[i, d]
            if sum_overflows(held[o - 1, d], held[i, d], total):
                return OVERFLOW
            held[o - 1, d] = total
        else:
            if o > start and held[o - 1, d] == 0:
                o -= 1
            copy_row(held, i, held, o)
            o += 1
    if o > start and held[o - 1, d] == 0:
        o -= 1
    return o


@kernel("LMiiVVMMVV")
def walk_groups(
    sources: list[np.ndarray],
    bounds: np.ndarray,
    old: int,
    nt: int,
    since: np.ndarray,
    rounds: np.ndarray,
    held: np.ndarray,
    later: np.ndarray,
    live: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Copy the rows in `bounds` that are at or before `rounds` to `held`, without rounds, their `nt` times advanced to `since`.

    Each group is consolidated. For the other rows `later` gets [lattice join with `rounds` | group]: in a single loop the
    earliest of each group, else all. Both need as much room as there are rows. live[g] becomes 1 where the sources from
    `old` on hold something of the group that does not cancel. `counts` gets how many rows of `held` and `later` there are.
    Returns 0 or OVERFLOW.
    """
    depth = rounds.size
    o = 0
    p = 0
    for g in range(bounds.shape[0]):
        first = o
        middle = o
        start = p
        for s in range(len(sources)):
            if s == old:
                middle = o
            m = matrix_of(sources, s)
            at = m.shape[1] - 1 - depth
            for i in range(bounds[g, 2 * s], bounds[g, 2 * s + 1]):
                now = True
                for c in range(depth):
                    now = now and m[i, at + c] <= rounds[c]
                if now:
                    for c in range(at - nt):
                        held[o, c] = m[i, c]
                    for c in range(nt):
                        held[o, at - nt + c] = max(m[i, at - nt + c], since[c])
                    held[o, at] = m[i, at + depth]
                    o += 1
                elif depth == 1 and p > start:
                    later[start, 0] = min(later[start, 0], m[i, at])
                else:
                    for c in range(depth):
                        later[p, c] = max(m[i, at + c], rounds[c])
                    later[p, depth] = g
                    p += 1
        if old == len(sources):
            middle = o
        if o > middle:
            o = sum_group(held, middle, o)
            if o > middle:
                live[g] = 1
        if o > first:
            o = sum_group(held, first, o)
        if o < 0:
            return OVERFLOW
    counts[0] = o
    counts[1] = p
    return 0


def walk(
    sources: Sequence[np.ndarray],
    bounds: np.ndarray,
    rows: int,
    old: int,
    since: tuple[int, ...],
    rounds: tuple[int, ...],
    live: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the `rows` rows in `bounds` as of `rounds`, consolidated, and rows [later rounds | group] for what comes after.

    `sources` are sorted matrices [key | value | times | rounds | diff], `bounds` their rows of each group as `locate` finds
    them. The times are advanced to `since`. Those from `old` on are this interval's: where they hold anything of
    a group by these rounds, its place in `live` becomes 1. Raises DiffOverflow.

    >>> history, fresh = np.array([[7, 0, 1, 1], [7, 0, 4, -1], [8, 0, 9, 1]]), np.array([[8, 5, 2, 1]])
    >>> live = np.zeros(2, np.int64)
    >>> [m.tolist() for m in walk([history, fresh], np.array([[0, 2, 0, 0], [2, 3, 0, 1]]), 4, 1, (5,), (2,), live)]
    [[[7, 5, 1], [8, 5, 1]], [[4, 0], [9, 1]]]
    >>> live.tolist()
    [0, 1]
    """
    depth = len(rounds)
    width = sources[0].shape[1] if sources else len(since) + depth + 1
    held = np.empty((rows, width - depth), np.int64)
    later = np.empty((rows, depth + 1), np.int64)
    counts = np.empty(2, np.int64)
    bound, now = np.array(since, np.int64), np.array(rounds, np.int64)
    code = walk_groups(list(sources), bounds, old, len(since), bound, now, held, later, live, counts)
    if code == OVERFLOW:
        raise DiffOverflow("the accumulated multiplicity of a record leaves the 64-bit range")
    return held[: counts[0]], later[: counts[1]]
