"""Kernels that find a reduction's interesting times: the new times of each key, closed under lattice join.

An *instance* is a key at an interesting time. Instances are kept as `first` and `times`: the instances of the g-th touched key
are rows first[g] to first[g + 1] of `times`, in lexicographic order, which is a linear extension of the order of times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.rows import bisect, compare, compare_at, copy_row, gallop, same
from ddcli.engine.kernels.value_pairs import sort_span

if TYPE_CHECKING:
    import numpy as np

LOW = 0x7FFFFFFF
MIX = 663608941  # 2**30 / golden ratio, odd
NO_ROOM = -1
NEAR = 16  # rows a key from which keys are sought far from each other, by guesses
GUESSES = 2  # that follow the first one
BLOCK = 256  # keys that are sought in all sources before the next ones, so that their bounds stay in the cache


@inline
def not_after(a: np.ndarray, i: int, ca: int, b: np.ndarray, j: int, cb: int, lanes: int) -> bool:
    """Return whether the time at lane `ca` of one row is less than or equal to that at lane `cb` of the other."""
    for c in range(lanes):
        if a[i, ca + c] > b[j, cb + c]:
            return False
    return True


@inline
def distinct_rows(a: np.ndarray, start: int, end: int) -> int:
    """Sort the rows a[start:end] in place and drop repeats; return the row after the last one left."""
    width = a.shape[1]
    sort_span(a, start, end, 0, width)
    o = min(start + 1, end)
    for i in range(start + 1, end):
        if not same(a, i, a, o - 1, width):
            copy_row(a, i, a, o)
            o += 1
    return o


@inline
def inside(at: float, n: int) -> int:
    """Return a guessed row as one of `n`: the first or the last one where the guess is outside."""
    return int(min(max(at, 0.0), float(n - 1)))


@inline
def seek_around(a: np.ndarray, low: int, near: int, b: np.ndarray, j: int, lanes: int) -> int:
    """Return the first row of `a`, sorted, from `low` on that is not before row j of `b`; quickly where it is by row `near`."""
    n = a.shape[0]
    near = max(low, near)
    if near < n and compare(a, near, b, j, lanes) < 0:
        return gallop(a, near + 1, n, b, j, lanes, 0)
    high = near
    step = 1
    while high - step >= low and compare(a, high - step, b, j, lanes) >= 0:
        high -= step
        step += step
    return bisect(a, max(low, high - step), min(high, n), b, j, lanes, 0)


@kernel("MiiiMVM")
def new_times(m: np.ndarray, nk: int, at: int, nt: int, keys: np.ndarray, first: np.ndarray, times: np.ndarray) -> int:
    """List the distinct times of each key of `m`, whose rows are together by key and hold their time from lane `at`.

    Fills `keys`, `first`, with an end mark, and `times`; each needs as much room as `m` has rows, plus the mark.
    Returns the number of keys.
    """
    n = m.shape[0]
    g = 0
    o = 0
    i = 0
    while i < n:
        start = o
        for c in range(nk):
            keys[g, c] = m[i, c]
        first[g] = o
        ascending = True
        while i < n and same(m, i, keys, g, nk):
            order = -1 if o == start else compare_at(times, o - 1, 0, m, i, at, nt)
            if order != 0:
                ascending = ascending and order < 0
                for c in range(nt):
                    times[o, c] = m[i, at + c]
                o += 1
            i += 1
        if not ascending:
            sort_span(times, start, o, 0, nt)
            end = o
            o = start + 1
            for j in range(start + 1, end):
                if not same(times, j, times, o - 1, nt):
                    for c in range(nt):
                        times[o, c] = times[j, c]
                    o += 1
        g += 1
    first[g] = o
    return g


@inline
def find_keys(keys: np.ndarray, count: int, sources: list[np.ndarray], nk: int, bounds: np.ndarray) -> int:
    """Find the rows of the first `count` keys, sorted and distinct, in each source: rows bounds[g, 2s] to bounds[g, 2s + 1] of source s.

    A probe of a row far away misses the cache, and halving ten million rows makes twenty of them, one after the other.
    Hashes and dense integers grow evenly: a guess misses by about the square root of the rows in question, so that three guesses
    do; made for all keys at once, their misses overlap. For any keys a guess is checked, and
    the row sought from there by doubling steps. Returns the number of found rows.
    """
    total = 0
    for begin in range(0, count, BLOCK):
        end = min(begin + BLOCK, count)
        for s in range(len(sources)):
            m = matrix_of(sources, s)
            n = m.shape[0]
            far = nk > 0 and n > NEAR * count
            if far:
                first = float(m[0, 0])
                scale = (n - 1) / max(float(m[n - 1, 0]) - first, 1.0)
                for g in range(begin, end):
                    bounds[g, 2 * s] = inside((float(keys[g, 0]) - first) * scale, n)
                for _ in range(GUESSES):
                    for g in range(begin, end):
                        at = bounds[g, 2 * s]
                        bounds[g, 2 * s] = inside(at + (float(keys[g, 0]) - float(m[at, 0])) * scale, n)
            at = bounds[begin - 1, 2 * s + 1] if begin > 0 else 0
            for g in range(begin, end):
                near = at
                if far:
                    near = bounds[g, 2 * s]
                at = seek_around(m, at, near, keys, g, nk)
                bounds[g, 2 * s] = at
                start = at
                at = gallop(m, start, n, keys, g, nk, 1)
                bounds[g, 2 * s + 1] = at
                total += at - start
    return total


@kernel("MLiM")
def locate(keys: np.ndarray, sources: list[np.ndarray], nk: int, bounds: np.ndarray) -> int:
    """Find the rows of the sorted, distinct `keys` in each source, as `find_keys` does; return how many they are."""
    return find_keys(keys, keys.shape[0], sources, nk, bounds)


@kernel("LMiiM")
def collect_times(sources: list[np.ndarray], bounds: np.ndarray, at: int, nt: int, out: np.ndarray) -> int:
    """Copy the times of the rows in `bounds`, held from lane `at`, to rows [group | time | 1]; return how many they are."""
    o = 0
    for g in range(bounds.shape[0]):
        for s in range(len(sources)):
            m = matrix_of(sources, s)
            for r in range(bounds[g, 2 * s], bounds[g, 2 * s + 1]):
                # Rows of one value follow each other by time: repeats next to each other are worth leaving out.
                if o > 0 and out[o - 1, 0] == g and compare_at(out, o - 1, 1, m, r, at, nt) == 0:
                    continue
                out[o, 0] = g
                for c in range(nt):
                    out[o, 1 + c] = m[r, at + c]
                out[o, 1 + nt] = 1
                o += 1
    return o


@inline
def add_time(table: np.ndarray, times: np.ndarray, start: int, o: int, nt: int) -> bool:
    """Enter row `o` of `times` into the hash table unless that holds an equal row at or after `start`."""
    mask = table.shape[0] - 1
    code = start & LOW
    for c in range(nt):
        time = times[o, c]
        # 31 bits times 30: nothing wraps, compiled or not.
        code = (code ^ (time & LOW) ^ ((time >> 31) & LOW)) * MIX
        code = (code ^ (code >> 29)) & LOW
    slot = code & mask
    while table[slot] >= 0:
        if table[slot] >= start and same(times, table[slot], times, o, nt):
            return False
        slot = (slot + 1) & mask
    table[slot] = o
    return True


@kernel("VMVMiVMV")
def close(
    first: np.ndarray,
    fresh: np.ndarray,
    past: np.ndarray,
    history: np.ndarray,
    nt: int,
    closed: np.ndarray,
    times: np.ndarray,
    table: np.ndarray,
) -> int:
    """Close each key's new times under lattice join with each other and with the times of its history.

    `first` and `fresh` are the new times; rows past[g] to past[g + 1] of `history` are [group | time | ..]. `closed` and
    `times` receive the interesting times. A time is interesting if it is the lattice join of some of those times, at
    least one of them new; so it is enough to join every time found, beginning with the new ones, with each of them.
    `table` is a power of two in length, all -1, at least twice the rows of `times`. Returns the number of instances or NO_ROOM.
    """
    o = 0
    room = times.shape[0]
    for g in range(first.shape[0] - 1):
        start = o
        closed[g] = o
        for i in range(first[g], first[g + 1]):
            if o == room:
                return NO_ROOM
            for c in range(nt):
                times[o, c] = fresh[i, c]
            if add_time(table, times, start, o, nt):
                o += 1
        found = start
        news = o
        while found < o:
            for i in range(start, news + past[g + 1] - past[g]):
                if o == room:
                    return NO_ROOM
                for c in range(nt):
                    other = times[i, c] if i < news else history[past[g] + i - news, 1 + c]
                    times[o, c] = max(times[found, c], other)
                if add_time(table, times, start, o, nt):
                    o += 1
            found += 1
        sort_span(times, start, o, 0, nt)
    closed[first.shape[0] - 1] = o
    return o
