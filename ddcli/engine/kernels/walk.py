"""Walk the histories of a few groups in a loop: what they hold up to a round, and when they change after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.jit.errors import DiffOverflow
from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.reduce_times import NO_ROOM, gallop, sort_rows
from ddcli.engine.kernels.rows import add_row, close_rows, same

if TYPE_CHECKING:
    from collections.abc import Sequence

OVERFLOW: Final = -2


@inline
def sum_group(held: np.ndarray, start: int, end: int) -> int:
    """Sort and consolidate held[start:end] in place; return the row after its last one, or OVERFLOW."""
    d = held.shape[1] - 1
    sort_rows(held, start, end, d)
    o = start
    for i in range(start, end):
        o = add_row(held, i, held, o, start, o > start and same(held, o - 1, held, i, d))
        if o < 0:
            return OVERFLOW
    return close_rows(held, start, o)


@kernel("MLiMiVVMMVMV")
def walk_groups(
    keys: np.ndarray,
    sources: list[np.ndarray],
    old: int,
    delta: np.ndarray,
    nt: int,
    since: np.ndarray,
    rounds: np.ndarray,
    held: np.ndarray,
    later: np.ndarray,
    live: np.ndarray,
    bounds: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Copy the rows of `keys` that are at or before `rounds` to `held`, without rounds, their `nt` times advanced to `since`.

    Each group is consolidated. For the other rows `later` gets [lattice join with `rounds` | group]: in a single loop the
    earliest of each group, else all. live[g] becomes 1 where the sources from `old` on hold something of the group that does not
    cancel, or `delta` does. `bounds` is scratch, two lanes a source. `counts` gets the rows of `held` and of `later`. Returns 0,
    NO_ROOM, or OVERFLOW.
    """
    nk = keys.shape[1]
    depth = rounds.size
    # Most groups have rows in few of the sources: find those first, a source at a time.
    for s in range(len(sources)):
        m = matrix_of(sources, s)
        i = 0
        for g in range(keys.shape[0]):
            i = gallop(m, i, m.shape[0], keys, g, nk, 0)
            bounds[g, 2 * s] = i
            while i < m.shape[0] and same(m, i, keys, g, nk):
                i += 1
            bounds[g, 2 * s + 1] = i
    i = 0
    for g in range(keys.shape[0]):
        i = gallop(delta, i, delta.shape[0], keys, g, nk, 0)
        if i < delta.shape[0] and same(delta, i, keys, g, nk):
            live[g] = 1
    o = 0
    p = 0
    for g in range(keys.shape[0]):
        first = o
        middle = o
        start = p
        for s in range(len(sources)):
            if s == old:
                middle = o
            if bounds[g, 2 * s] == bounds[g, 2 * s + 1]:
                continue
            m = matrix_of(sources, s)
            at = m.shape[1] - 1 - depth
            for i in range(bounds[g, 2 * s], bounds[g, 2 * s + 1]):
                if o == held.shape[0] or p == later.shape[0]:
                    return NO_ROOM
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
    keys: np.ndarray,
    remembered: Sequence[np.ndarray],
    fresh: Sequence[np.ndarray],
    delta: np.ndarray,
    since: tuple[int, ...],
    rounds: tuple[int, ...],
    live: np.ndarray,
    room: int,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the rows of the sorted, distinct `keys` as of `rounds`, consolidated, and rows [later rounds | group] for what follows.

    The sources are sorted matrices [key | value | times | rounds | diff]: what is `remembered` of earlier intervals and what is
    `fresh`. The times are advanced to `since`. Where a group's fresh rows up to these rounds don't cancel, or `delta` has
    any of it, its place in `live` becomes 1. Gives None where there are more than `room` rows. Raises DiffOverflow.

    >>> history, fresh = np.array([[7, 0, 1, 1], [7, 0, 4, -1], [8, 0, 9, 1]]), np.array([[8, 5, 2, 1]])
    >>> live = np.zeros(2, np.int64)
    >>> found = walk(np.array([[7], [8]]), [history], [fresh], fresh[:0], (5,), (2,), live, 9)
    >>> [m.tolist() for m in found], live.tolist()
    ([[[7, 5, 1], [8, 5, 1]], [[4, 0], [9, 1]]], [0, 1])
    """
    sources = [*remembered, *fresh]
    depth = len(rounds)
    width = sources[0].shape[1] if sources else len(since) + depth + 1
    room = min(room, sum(map(len, sources)))
    held = np.empty((room, width - depth), np.int64)
    later = np.empty((room, depth + 1), np.int64)
    bounds, counts = np.empty((len(keys), 2 * len(sources)), np.int64), np.empty(2, np.int64)
    bound, now = np.array(since, np.int64), np.array(rounds, np.int64)
    code = walk_groups(keys, sources, len(remembered), delta, len(since), bound, now, held, later, live, bounds, counts)
    if code == OVERFLOW:
        raise DiffOverflow("the accumulated multiplicity of a record leaves the 64-bit range")
    return None if code == NO_ROOM else (held[: counts[0]], later[: counts[1]])
