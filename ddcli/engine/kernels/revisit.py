"""A few groups in a loop: the walk of their histories, and a step of a reduction to first records in one call.

The walk finds their rows up to a round, and the later rounds at which they change.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import DiffOverflow, inline, matrix_of
from ddcli.engine.kernels.ordered_values import first_values
from ddcli.engine.kernels.reduce_times import NO_ROOM, distinct_rows, find_keys
from ddcli.engine.kernels.reduce_turns import later_times, take_turns
from ddcli.engine.kernels.rows import gallop, same
from ddcli.engine.kernels.value_pairs import consolidate_span

OVERFLOW: Final = -2
SOME: Final = 128  # rows that there is room for at first


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

    Rows bounds[g, 0] to bounds[g, 1] of `held` are then the rows of group g. Returns 0 and sets counts[0] and counts[1], or NO_ROOM, or OVERFLOW.
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
            o = consolidate_span(held, middle, o, 0)
            if o > middle:
                live[g] = 1
        if o > first:
            o = consolidate_span(held, first, o, 0)
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
    """A trace of some groups: sorted matrices [key | value | times | rounds | diff], of earlier intervals first, `old` of them."""

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


# The matrices of `scratch`.
KEYS: Final = 0
BOUNDS: Final = 1
NEW: Final = 2
OLD: Final = 3
FRESH: Final = 4
TIMES: Final = 5
LATER: Final = 6
LANES: Final = 7
CURSOR: Final = 8
TURNS: Final = 9
VECTORS: Final = 10

# The rows of the matrix of vectors.
LIVE: Final = 0
FIRST: Final = 1
CLOSED: Final = 2
PRESENT: Final = 3
SEARCH: Final = 4  # and the next row


@inline
def gather_keys(delta: np.ndarray, called: list[np.ndarray], keys: np.ndarray) -> int:
    """Write the distinct keys of `delta` and of the `called` matrices, sorted; return how many they are, or NO_ROOM."""
    nk = keys.shape[1]
    n = 0
    for i in range(delta.shape[0]):
        if n > 0 and same(delta, i, keys, n - 1, nk):
            continue
        if n == keys.shape[0]:
            return NO_ROOM
        for c in range(nk):
            keys[n, c] = delta[i, c]
        n += 1
    for s in range(len(called)):
        m = matrix_of(called, s)
        if n + m.shape[0] > keys.shape[0]:
            return NO_ROOM
        for i in range(m.shape[0]):
            for c in range(nk):
                keys[n, c] = m[i, c]
            n += 1
    return distinct_rows(keys, 0, n)


@kernel("MLLiLiVViiVVVLLLMMMV")
def reevaluate_first(
    delta: np.ndarray,
    called: list[np.ndarray],
    inputs: list[np.ndarray],
    old_inputs: int,
    outputs: list[np.ndarray],
    old_outputs: int,
    since: np.ndarray,
    rounds: np.ndarray,
    earliest: int,
    ahead: int,
    search: np.ndarray,
    take: np.ndarray,
    nothing: np.ndarray,
    groups_in: list[np.ndarray],
    groups_out: list[np.ndarray],
    scratch: list[np.ndarray],
    out: np.ndarray,
    later_rounds: np.ndarray,
    later_keys: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Bring the groups of `delta`, sorted [key | value | time | rounds | diff], and of the `called` keys up to these rounds.

    `inputs` and `outputs` are the traces, as in `walk_groups`. Called keys that are live are evaluated from the `earliest` new
    time of the interval on, and with `ahead` at the later times of their histories. `search` has arguments of `first_values`:
    backwards, deciding, the lane of nulls and null. The last of `groups_in` is `delta`, the first has room for the groups, as has `groups_out`.

    `out` gets the updates [key | output | time | rounds | diff], sorted and consolidated; `later_rounds` and `later_keys` the later rounds in
    which live keys are to be evaluated, in their order. `counts` gets the numbers of these rows. Returns 0, or a negative
    number where a diff overflows or there is no room: then no result is to be relied on. The scratch has room for the times of the
    `delta`, of the groups and of all their rows.
    """
    keys = matrix_of(scratch, KEYS)
    bounds = matrix_of(scratch, BOUNDS)
    new = matrix_of(scratch, NEW)
    old = matrix_of(scratch, OLD)
    fresh = matrix_of(scratch, FRESH)
    later = matrix_of(scratch, LATER)
    lanes = matrix_of(scratch, LANES)
    turns = matrix_of(scratch, TURNS)
    vectors = matrix_of(scratch, VECTORS)
    live = vectors[LIVE]
    first = vectors[FIRST]
    nk = keys.shape[1]
    depth = rounds.size
    at = delta.shape[1] - 2 - depth
    groups = gather_keys(delta, called, keys)
    if groups < 0:
        return groups
    for g in range(groups):
        live[g] = 0
    # The groups' rows up to these rounds, and when they change again.
    held = matrix_of(groups_in, 0)
    code = walk_trace(keys, groups, inputs, old_inputs, 1, since, rounds, held, later, 0, live, bounds, counts)
    if code != 0:
        return code
    i = 0
    for g in range(groups):
        new[g, 0] = bounds[g, 0]
        new[g, 1] = bounds[g, 1]
        i = gallop(delta, i, delta.shape[0], keys, g, nk, 0)
        new[g, 2] = i
        i = gallop(delta, i, delta.shape[0], keys, g, nk, 1)
        new[g, 3] = i
        if new[g, 2] < i:
            live[g] = 1
    given = matrix_of(groups_out, 0)
    rest = counts[1]
    code = walk_trace(keys, groups, outputs, old_outputs, 1, since, rounds, given, later, rest, live, bounds, counts)
    if code != 0:
        return code
    rest = counts[1]
    # The times at which they are evaluated.
    o = 0
    for g in range(groups):
        old[g, 0] = bounds[g, 0]
        old[g, 1] = bounds[g, 1]
        first[g] = o
        if live[g] == 0:
            continue
        if len(called) > 0:
            fresh[o, 0] = earliest
            o += 1
        for r in range(new[g, 2], new[g, 3]):
            if o == first[g] or fresh[o - 1, 0] != delta[r, at]:
                fresh[o, 0] = delta[r, at]
                o += 1
        o = distinct_rows(fresh, first[g], o)
    first[groups] = o
    first = first[: groups + 1]
    times = fresh
    if ahead != 0:
        times = matrix_of(scratch, TIMES)
        closed = vectors[CLOSED]
        in_at = held.shape[1] - 2
        out_at = turns.shape[1] - 2
        o = later_times(first, fresh, groups_in, 1, new, in_at, groups_out, old, out_at, closed, times)
        first = closed[: groups + 1]
    # The wanted output at these times, and its difference to the output so far.
    present = vectors[PRESENT]
    code = first_values(
        groups_in,
        new,
        nk,
        at - nk,
        first,
        times,
        1,
        search[0],
        search[1],
        search[2],
        search[3],
        take,
        nothing,
        vectors[SEARCH : SEARCH + 2],
        present,
        matrix_of(scratch, CURSOR),
        0,
        present,
        lanes,
    )
    if code < 0:
        return code
    o = take_turns(keys[:groups], first, times, lanes, present, groups_out, old, turns)
    if o < 0:
        return o
    data = turns.shape[1] - 1
    for r in range(o):
        for c in range(data):
            out[r, c] = turns[r, c]
        for c in range(depth):
            out[r, data + c] = rounds[c]
        out[r, data + depth] = turns[r, data]
    counts[0] = o
    # The rounds in which they are evaluated again.
    o = 0
    for r in range(rest):
        if live[later[r, depth]] != 0:
            for c in range(depth + 1):
                later[o, c] = later[r, c]
            o += 1
    o = distinct_rows(later, 0, o)
    for r in range(o):
        for c in range(depth):
            later_rounds[r, c] = later[r, c]
        for c in range(nk):
            later_keys[r, c] = keys[later[r, depth], c]
    counts[1] = o
    return 0
