"""Walk the histories of a few groups in a loop: their rows up to a round, and the later rounds at which they change."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ddcli.engine.jit.errors import DiffOverflow
from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.reduce_times import NO_ROOM, find_keys, gallop, sort_rows
from ddcli.engine.kernels.rows import add_row, close_rows, same

OVERFLOW: Final = -2
SOME: Final = 128  # rows that there is room for at first


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


@inline
def walk_trace(
    keys: np.ndarray,
    groups: int,
    sources: list[np.ndarray],
    old: int,
    nt: int,
    since: np.ndarray,
    rounds: np.ndarray,
    held: np.ndarray,
    later: np.ndarray,
    p: int,
    live: np.ndarray,
    bounds: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Walk one trace as `walk_groups` does, for the first `groups` keys; `later` has `p` rows.

    Rows bounds[g, 0] to bounds[g, 1] of `held` are then those of group g. Returns 0 and sets counts[0] and counts[1], or NO_ROOM, or OVERFLOW.
    """
    depth = rounds.size
    # Most groups have rows in few of the sources: find those first, a source at a time.
    find_keys(keys, groups, sources, keys.shape[1], bounds)
    o = 0
    for g in range(groups):
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
        bounds[g, 0] = first
        bounds[g, 1] = o
    counts[0] = o
    counts[1] = p
    return 0


@kernel("MLiLiMiVVMMMVMV")
def walk_groups(
    keys: np.ndarray,
    inputs: list[np.ndarray],
    old_inputs: int,
    outputs: list[np.ndarray],
    old_outputs: int,
    delta: np.ndarray,
    nt: int,
    since: np.ndarray,
    rounds: np.ndarray,
    held_inputs: np.ndarray,
    held_outputs: np.ndarray,
    later: np.ndarray,
    live: np.ndarray,
    bounds: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Copy the rows of `keys` that are at or before `rounds` from two traces, without rounds, their `nt` times advanced to `since`.

    Each group is consolidated. For the other rows `later` gets [lattice join with `rounds` | group]: in a single loop the
    earliest of each group in either trace, else all. live[g] becomes 1 where the sources from the `old` ones on have rows of the
    group that do not cancel, or `delta` has any. `bounds` is scratch, two lanes a source and at least two. `counts` gets the rows of both
    and of `later`. Returns 0, NO_ROOM, or OVERFLOW.
    """
    groups, nk = keys.shape
    code = walk_trace(keys, groups, inputs, old_inputs, nt, since, rounds, held_inputs, later, 0, live, bounds, counts)
    if code != 0:
        return code
    rows = counts[0]
    p = counts[1]
    code = walk_trace(
        keys, groups, outputs, old_outputs, nt, since, rounds, held_outputs, later, p, live, bounds, counts
    )
    if code != 0:
        return code
    counts[2] = counts[1]
    counts[1] = counts[0]
    counts[0] = rows
    i = 0
    for g in range(groups):
        i = gallop(delta, i, delta.shape[0], keys, g, nk, 0)
        if i < delta.shape[0] and same(delta, i, keys, g, nk):
            live[g] = 1
    return 0


class Histories(NamedTuple):
    """A trace of some groups: sorted matrices [key | value | times | rounds | diff], those of earlier intervals first, `old` of them."""

    sources: list[np.ndarray]
    old: int


def walk(
    keys: np.ndarray,
    inputs: Histories,
    outputs: Histories,
    delta: np.ndarray,
    since: tuple[int, ...],
    rounds: tuple[int, ...],
    live: np.ndarray,
    room: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return the rows of the sorted, distinct `keys` in both traces as of `rounds`, consolidated, and rows [later rounds | group].

    The times are advanced to `since`. Where a group's rows that are not old, up to these rounds, don't cancel, or `delta` has rows of
    it, its place in `live` becomes 1. Returns None where there are more than `room` rows. Raises DiffOverflow.

    >>> history, fresh = np.array([[7, 0, 1, 1], [7, 0, 4, -1], [8, 0, 9, 1]]), np.array([[8, 5, 2, 1]])
    >>> live, none = np.zeros(2, np.int64), Histories([], 0)
    >>> found = walk(np.array([[7], [8]]), none, Histories([history, fresh], 1), fresh[:0], (5,), (2,), live, 9)
    >>> [m.tolist() for m in found[1:]], live.tolist()
    ([[[7, 5, 1], [8, 5, 1]], [[4, 0], [9, 1]]], [0, 1])
    """
    depth, plain = len(rounds), len(since) + len(rounds) + 1
    bounds = np.empty((len(keys), 2 * max(1, len(inputs.sources), len(outputs.sources))), np.int64)
    counts, bound, now = np.empty(3, np.int64), np.array(since, np.int64), np.array(rounds, np.int64)
    widths = [trace.sources[0].shape[1] if trace.sources else plain for trace in (inputs, outputs)]
    some = min(room, SOME)
    while True:
        first, second = (np.empty((some, width - depth), np.int64) for width in widths)
        later = np.empty((2 * some, depth + 1), np.int64)
        code = walk_groups(
            keys, *inputs, *outputs, delta, len(since), bound, now, first, second, later, live, bounds, counts
        )
        if code == OVERFLOW:
            raise DiffOverflow("the accumulated multiplicity of a record leaves the 64-bit range")
        if code != NO_ROOM:
            return first[: counts[0]], second[: counts[1]], later[: counts[2]]
        if some == room:
            return None
        some = room
