"""A step of a reduction to first records of a few groups in a loop: the work of `walk` and of the kernels of reductions in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.ordered_values import first_values
from ddcli.engine.kernels.reduce_times import NO_ROOM, distinct_rows, gallop
from ddcli.engine.kernels.reduce_turns import later_times, take_turns
from ddcli.engine.kernels.rows import same
from ddcli.engine.kernels.walk import walk_trace

if TYPE_CHECKING:
    import numpy as np

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
def first_again(
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
