"""Kernels of records at instances: the updates of the collection that a sequence of values of each key describes, and the counts of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.reduce_rows import OVERFLOW, place
from ddcli.engine.kernels.reduce_times import not_after
from ddcli.engine.kernels.rows import compare, compare_at, same, sum_overflows

if TYPE_CHECKING:
    import numpy as np


# Lanes of an upsert behind its key and value.
PRESENT, ORDER, TIME, DIFF = range(4)


@inline
def put_update(m: np.ndarray, row: int, data: int, time: int, diff: int, out: np.ndarray, o: int) -> None:
    """Write a row's first `data` lanes with a time and a diff."""
    for c in range(data):
        out[o, c] = m[row, c]
    out[o, data] = time
    out[o, data + 1] = diff


@kernel("MMiiM")
def upsert_rows(m: np.ndarray, now: np.ndarray, nk: int, nv: int, out: np.ndarray) -> int:
    """Write the updates of each key's value, given `now`, rows [key | value | 1] of the keys' values before; return the number of rows written.

    `m` has rows [key | value | present | order | time | diff] in the order of key, time and precedence at one time: the last
    such row counts. Returns -1 - row for a row of `m` whose diff is not 1, or whose key has more than one value before.
    """
    n = m.shape[0]
    data = nk + nv
    o = 0
    j = 0
    i = 0
    while i < n:
        start = i
        while j < now.shape[0] and compare(now, j, m, i, nk) < 0:
            j += 1
        # The key's value: row `row` of `now` or of `m`, or none.
        is_old = j < now.shape[0] and same(now, j, m, i, nk)
        is_new = False
        row = j
        if is_old and (now[j, data] != 1 or (j + 1 < now.shape[0] and same(now, j + 1, m, i, nk))):
            return -1 - i
        while i < n and same(m, i, m, start, nk):
            time = m[i, data + TIME]
            if m[i, data + DIFF] != 1:
                return -1 - i
            i += 1
            if i < n and m[i, data + TIME] == time and same(m, i, m, start, nk):
                continue
            last = i - 1
            present = m[last, data + PRESENT] != 0
            if is_old:
                if present and compare_at(now, row, nk, m, last, nk, nv) == 0:
                    continue
                put_update(now, row, data, time, -1, out, o)
                o += 1
            elif is_new:
                if present and compare_at(m, row, nk, m, last, nk, nv) == 0:
                    continue
                put_update(m, row, data, time, -1, out, o)
                o += 1
            is_old = False
            is_new = present
            row = last
            if present:
                put_update(m, last, data, time, 1, out, o)
                o += 1
    return o


@kernel("LMiiVMVV")
def count_at(
    sources: list[np.ndarray],
    bounds: np.ndarray,
    nk: int,
    nt: int,
    first: np.ndarray,
    times: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
) -> int:
    """Accumulate the records' counts at each instance: without the last source (the batch) in `before`, with it in `after`.

    Both have a lane an instance, all zero. One time lane takes one walk: the rows are placed, then summed up.
    Returns 0 or OVERFLOW.
    """
    batch = len(sources) - 1
    for g in range(bounds.shape[0]):
        for s in range(len(sources)):
            m = matrix_of(sources, s)
            last = m.shape[1] - 1
            counts = after if s == batch else before
            for r in range(bounds[g, 2 * s], bounds[g, 2 * s + 1]):
                i = first[g]
                until = first[g + 1]
                if nt == 1:
                    i = place(times, i, until, m[r, nk])
                    until = i + 1
                while i < until:
                    if nt == 1 or not_after(m, r, nk, times, i, 0, nt):
                        if sum_overflows(counts[i], m[r, last]):
                            return OVERFLOW
                        counts[i] += m[r, last]
                    i += 1
        for i in range(first[g], first[g + 1]):
            if nt == 1 and i > first[g]:
                if sum_overflows(before[i - 1], before[i]):
                    return OVERFLOW
                before[i] = before[i - 1] + before[i]
                if sum_overflows(after[i - 1], after[i]):
                    return OVERFLOW
                after[i] = after[i - 1] + after[i]
        for i in range(first[g], first[g + 1]):
            if sum_overflows(before[i], after[i]):
                return OVERFLOW
            after[i] = before[i] + after[i]
    return 0
