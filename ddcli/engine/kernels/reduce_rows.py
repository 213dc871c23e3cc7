"""Kernels that collect the rows that a reduction evaluates: the touched keys' rows, at each instance.

Rows are passed on as `[group | value | instance | diff]`: from that instance on, until the group's last one, the value's
count is changed by that diff. With totally ordered times a group is a key, and updates before its first
instance count as updates at it; otherwise each instance is a group of its own, and its rows are what is accumulated there.
"""

from __future__ import annotations

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.hashes import SEED, mixed
from ddcli.engine.kernels.reduce_times import NO_ROOM, not_after
from ddcli.engine.kernels.rows import same, sum_overflows
from ddcli.engine.kernels.value_pairs import sort_span

OVERFLOW = -2


@inline
def place(times: np.ndarray, low: int, high: int, time: int) -> int:
    """Return the last of the instances [low, high) that is not after `time`, or `low` for a time before all."""
    if time >= times[high - 1, 0]:
        return high - 1
    while low + 1 < high:
        middle = (low + high) >> 1
        if times[middle, 0] <= time:
            low = middle
        else:
            high = middle
    return low


@kernel("MiVVMV")
def assign(m: np.ndarray, at: int, rows: np.ndarray, first: np.ndarray, times: np.ndarray, out: np.ndarray) -> int:
    """Write the number of each row's instance; `rows` bounds the groups of `m`, whose one time lane is `at`."""
    for g in range(rows.shape[0] - 1):
        for r in range(rows[g], rows[g + 1]):
            out[r] = place(times, first[g], first[g + 1], m[r, at])
    return 0


@kernel("MiiVVV")
def number_groups(m: np.ndarray, nk: int, at: int, slots: np.ndarray, heads: np.ndarray, instances: np.ndarray) -> int:
    """Write the number of each row's instance, in the order of their first rows; an instance is `nk` key lanes and a time, in lane `at`.

    Writes the first row of each instance to `heads`. `slots` is an open addressing table of zeros, a power of two larger than `heads`.
    Returns how many instances there are, or NO_ROOM where more than `heads` holds.
    """
    mask = slots.shape[0] - 1
    count = 0
    for r in range(m.shape[0]):
        h = mixed(SEED, m[r, at])
        for c in range(nk):
            h = mixed(h, m[r, c])
        slot = np.int64(h >> np.uint64(1)) & mask
        while slots[slot] != 0:
            head = heads[slots[slot] - 1]
            if m[head, at] == m[r, at] and same(m, head, m, r, nk):
                break
            slot = (slot + 1) & mask
        if slots[slot] == 0:
            if count == heads.shape[0]:
                return NO_ROOM
            heads[count] = r
            count += 1
            slots[slot] = count
        instances[r] = slots[slot] - 1
    return count


@kernel("LMiiiiVMM")
def collect(
    sources: list[np.ndarray],
    bounds: np.ndarray,
    nk: int,
    nv: int,
    nt: int,
    placed: int,
    first: np.ndarray,
    times: np.ndarray,
    out: np.ndarray,
) -> int:
    """Copy the rows in `bounds` as [group | value | time | diff], or with the instance for the one time lane if `placed`."""
    o = 0
    for g in range(bounds.shape[0]):
        low = first[g]
        high = first[g + 1]
        for s in range(len(sources)):
            m = matrix_of(sources, s)
            last = m.shape[1] - 1
            for r in range(bounds[g, 2 * s], bounds[g, 2 * s + 1]):
                out[o, 0] = g
                for c in range(nv):
                    out[o, 1 + c] = m[r, nk + c]
                if placed:
                    out[o, 1 + nv] = place(times, low, high, m[r, nk + nv])
                    out[o, 2 + nv] = m[r, last]
                else:
                    for c in range(nt + 1):
                        out[o, 1 + nv + c] = m[r, nk + nv + c]
                o += 1
    return o


@kernel("MViiVMMi")
def accumulate_at(
    m: np.ndarray, rows: np.ndarray, nv: int, nt: int, first: np.ndarray, times: np.ndarray, out: np.ndarray, fill: int
) -> int:
    """Accumulate the rows [group | value | time | diff], sorted, at each instance of their group.

    Writes [instance | value | instance | count] for every non-zero count if `fill`. Returns how many, or OVERFLOW.
    """
    o = 0
    last = m.shape[1] - 1
    for g in range(rows.shape[0] - 1):
        for i in range(first[g], first[g + 1]):
            r = rows[g]
            while r < rows[g + 1]:
                begin = r
                count = 0
                while r < rows[g + 1] and same(m, r, m, begin, 1 + nv):
                    if not_after(m, r, 1 + nv, times, i, 0, nt):
                        if sum_overflows(count, m[r, last]):
                            return OVERFLOW
                        count += m[r, last]
                    r += 1
                if count != 0:
                    if fill:
                        out[o, 0] = i
                        for c in range(nv):
                            out[o, 1 + c] = m[begin, 1 + c]
                        out[o, 1 + nv] = i
                        out[o, 2 + nv] = count
                    o += 1
    return o


@kernel("MViVMi")
def expand(m: np.ndarray, rows: np.ndarray, nv: int, first: np.ndarray, out: np.ndarray, fill: int) -> int:
    """List the values that each instance sees, from consolidated rows [group | value | instance | diff].

    Writes [instance | value | count] by group, value and instance if `fill`. Returns how many, or OVERFLOW.
    """
    o = 0
    for g in range(rows.shape[0] - 1):
        r = rows[g]
        while r < rows[g + 1]:
            begin = r
            count = 0
            while r < rows[g + 1] and same(m, r, m, begin, 1 + nv):
                if sum_overflows(count, m[r, 2 + nv]):
                    return OVERFLOW
                count += m[r, 2 + nv]
                until = first[g + 1]
                if r + 1 < rows[g + 1] and same(m, r + 1, m, begin, 1 + nv):
                    until = m[r + 1, 1 + nv]
                if count != 0 and fill == 0:
                    o += until - m[r, 1 + nv]
                elif count != 0:
                    for i in range(m[r, 1 + nv], until):
                        out[o, 0] = i
                        for c in range(nv):
                            out[o, 1 + c] = m[begin, 1 + c]
                        out[o, 1 + nv] = count
                        o += 1
                r += 1
    return o


@kernel("MiVV")
def by_lane(m: np.ndarray, lane: int, starts: np.ndarray, order: np.ndarray) -> int:
    """Sort the rows' numbers by a lane that holds 0 to len(starts) - 2, keeping the order of equals: a counting sort."""
    for i in range(starts.shape[0]):
        starts[i] = 0
    for r in range(m.shape[0]):
        starts[m[r, lane] + 1] += 1
    for i in range(1, starts.shape[0]):
        starts[i] += starts[i - 1]
    for r in range(m.shape[0]):
        order[starts[m[r, lane]]] = r
        starts[m[r, lane]] += 1
    for i in range(starts.shape[0] - 1, 0, -1):
        starts[i] = starts[i - 1]
    starts[0] = 0
    return 0


@kernel("MiV")
def runs(m: np.ndarray, lane: int, starts: np.ndarray) -> int:
    """Find where each of the values 0 to len(starts) - 2 of an ascending lane begins, with an end mark."""
    value = 0
    for r in range(m.shape[0]):
        while value <= m[r, lane]:
            starts[value] = r
            value += 1
    while value < starts.shape[0]:
        starts[value] = m.shape[0]
        value += 1
    return 0


@kernel("VMVMVMiiMM")
def difference_at(
    first: np.ndarray,
    times: np.ndarray,
    past: np.ndarray,
    history: np.ndarray,
    wants: np.ndarray,
    want: np.ndarray,
    no: int,
    nt: int,
    pool: np.ndarray,
    out: np.ndarray,
) -> int:
    """Subtract from each instance's wanted records the output accumulated there: delta(t) = want(t) - sum of output before.

    `history` holds rows [group | output | time | diff] from past[g] on, `want` rows [instance | output | count] from
    wants[i] on. The output accumulated at an instance is that of the history plus the rows that this call has written for
    the group's earlier instances. Writes [group | output | time | diff]; `pool` is room for the rows [output | diff] of
    one instance. Returns how many rows, NO_ROOM when `pool` or `out` is too small, or OVERFLOW.
    """
    o = 0
    for g in range(first.shape[0] - 1):
        base = o
        for i in range(first[g], first[g + 1]):
            n = 0
            if past[g + 1] - past[g] + o - base + wants[i + 1] - wants[i] > pool.shape[0]:
                return NO_ROOM
            for r in range(past[g], past[g + 1]):
                if not_after(history, r, 1 + no, times, i, 0, nt):
                    for c in range(no):
                        pool[n, c] = history[r, 1 + c]
                    pool[n, no] = -history[r, 1 + no + nt]
                    n += 1
            for r in range(base, o):
                if not_after(out, r, 1 + no, times, i, 0, nt):
                    for c in range(no):
                        pool[n, c] = out[r, 1 + c]
                    pool[n, no] = -out[r, 1 + no + nt]
                    n += 1
            for r in range(wants[i], wants[i + 1]):
                for c in range(no):
                    pool[n, c] = want[r, 1 + c]
                pool[n, no] = want[r, 1 + no]
                n += 1
            sort_span(pool, 0, n, 0, no)
            r = 0
            while r < n:
                begin = r
                diff = 0
                while r < n and same(pool, r, pool, begin, no):
                    if sum_overflows(diff, pool[r, no]):
                        return OVERFLOW
                    diff += pool[r, no]
                    r += 1
                if diff != 0:
                    if o == out.shape[0]:
                        return NO_ROOM
                    out[o, 0] = g
                    for c in range(no):
                        out[o, 1 + c] = pool[begin, c]
                    for c in range(nt):
                        out[o, 1 + no + c] = times[i, c]
                    out[o, 1 + no + nt] = diff
                    o += 1
    return o
