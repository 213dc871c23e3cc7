"""Pairs of values of a join: the product of their multiplicities as updates, written where a result has room.

With one time lane, a pair of values whose multiplicities change la and lb times has at most la + lb - 1 rows, not la * lb: the
product of two step functions is found by walking their times once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.rows import (
    LARGEST,
    add_row,
    close_rows,
    compare_at,
    copy_row,
    difference_overflows,
    product_overflows,
    same_between,
    sum_overflows,
)

# Words of a join's state, of what stopped `pair_group`.
P, Q = 0, 1  # first rows of the pair of values that comes next
COUNT, NEED = 2, 3  # rows written, room that the next pair needs
OVERFLOW, SUM_OVERFLOW, MORE = -1, -2, -3
SPAN: Final = 4096  # rows of a key up to which they are consolidated in place; later sorts are better at more


@inline
def value_end(m: np.ndarray, start: int, end: int, first: int, last: int) -> int:
    """Return the end of the run of rows that are equal to row `start` in lanes[first:last]."""
    stop = start + 1
    while stop < end and same_between(m, stop, start, first, last):
        stop += 1
    return stop


@inline
def put(
    a: np.ndarray, p: int, b: np.ndarray, q: int, nk: int, data_a: int, take: np.ndarray, out: np.ndarray, o: int
) -> None:
    """Write the taken lanes of a pair of rows."""
    for c in range(take.size):
        lane = take[c]
        if lane < data_a:
            out[o, c] = a[p, lane]
        else:
            out[o, c] = b[q, lane - data_a + nk]


@inline
def tail_of(tails: np.ndarray, at: int) -> int:
    """Return the number of the row of `tails` that all rows of a list's matrix `at` share, or -1 where they have tails of their own."""
    if at < tails.shape[0] and tails[at, tails.shape[1] - 1] == 1:
        return at
    return -1


@inline
def data_lanes(m: np.ndarray, nt: int, shared: int) -> int:
    """Return the number of data lanes of a matrix's rows; `shared` is the result of `tail_of`."""
    return int(m.shape[1] if shared >= 0 else m.shape[1] - nt - 1)


@inline
def tail_lane(m: np.ndarray, i: int, data: int, c: int, tails: np.ndarray, shared: int) -> int:
    """Return lane `c` of a row's times and diff, its own or the shared ones."""
    if shared >= 0:
        return tails[shared, c]  # type: ignore[no-any-return]
    return m[i, data + c]  # type: ignore[no-any-return]


@inline
def pair_in_time(
    a: np.ndarray,
    p: int,
    p_end: int,
    tails_a: np.ndarray,
    sa: int,
    b: np.ndarray,
    q: int,
    q_end: int,
    tails_b: np.ndarray,
    sb: int,
    nk: int,
    take: np.ndarray,
    out: np.ndarray,
    o: int,
) -> int:
    """Write the changes of the product of two values' multiplicities, both given in order of their one time lane.

    Returns the row after the last one written, or OVERFLOW. `sa` and `sb` are as of `tail_of`.
    """
    t = take.size
    data_a = data_lanes(a, 1, sa)
    data_b = data_lanes(b, 1, sb)
    sum_a: Any = np.int64(0)
    sum_b: Any = np.int64(0)
    product: Any = np.int64(0)
    i = p
    j = q
    while i < p_end or j < q_end:
        time = LARGEST
        if i < p_end:
            time = tail_lane(a, i, data_a, 0, tails_a, sa)
        if j < q_end:
            time = min(time, tail_lane(b, j, data_b, 0, tails_b, sb))
        while i < p_end and tail_lane(a, i, data_a, 0, tails_a, sa) == time:
            diff = tail_lane(a, i, data_a, 1, tails_a, sa)
            if sum_overflows(sum_a, diff):
                return OVERFLOW
            sum_a += diff
            i += 1
        while j < q_end and tail_lane(b, j, data_b, 0, tails_b, sb) == time:
            diff = tail_lane(b, j, data_b, 1, tails_b, sb)
            if sum_overflows(sum_b, diff):
                return OVERFLOW
            sum_b += diff
            j += 1
        now = sum_a * sum_b
        change = now - product
        if product_overflows(sum_a, sum_b) or difference_overflows(now, product):
            return OVERFLOW
        if change != 0:
            put(a, p, b, q, nk, data_a, take, out, o)
            out[o, t] = time
            out[o, t + 1] = change
            o += 1
        product = now
    return o


@inline
def pair_of_any_times(
    a: np.ndarray,
    p: int,
    p_end: int,
    tails_a: np.ndarray,
    sa: int,
    b: np.ndarray,
    q: int,
    q_end: int,
    tails_b: np.ndarray,
    sb: int,
    nk: int,
    nt: int,
    nta: int,
    ntb: int,
    take: np.ndarray,
    out: np.ndarray,
    o: int,
) -> int:
    """Write every pair of updates of two values at the lattice join of their times, consolidated; else as `pair_in_time`."""
    t = take.size
    data_a = data_lanes(a, nta, sa)
    data_b = data_lanes(b, ntb, sb)
    first = o
    for i in range(p, p_end):
        for j in range(q, q_end):
            x = tail_lane(a, i, data_a, nta, tails_a, sa)
            y = tail_lane(b, j, data_b, ntb, tails_b, sb)
            product = x * y
            if product_overflows(x, y):
                return OVERFLOW
            put(a, p, b, q, nk, data_a, take, out, o)
            for c in range(nt):
                if c >= nta:
                    out[o, t + c] = tail_lane(b, j, data_b, c, tails_b, sb)
                elif c >= ntb:
                    out[o, t + c] = tail_lane(a, i, data_a, c, tails_a, sa)
                else:
                    out[o, t + c] = max(
                        tail_lane(a, i, data_a, c, tails_a, sa), tail_lane(b, j, data_b, c, tails_b, sb)
                    )
            out[o, t + nt] = product
            o += 1
    return o if o == first + 1 else consolidate_span(out, first, o, t)


@inline
def consolidate_span(out: np.ndarray, first: int, last: int, lane: int) -> int:
    """Consolidate out[first:last], whose lanes before `lane` are all equal, in place; return its new end.

    Returns OVERFLOW, with the two rows that can't be added at `first`, where a diff overflows.
    """
    d = out.shape[1] - 1
    sort_span(out, first, last, lane, d)
    o = first
    for i in range(first, last):
        end = add_row(out, i, out, o, first, o > first and same_between(out, o - 1, i, lane, d))
        if end < 0:
            copy_row(out, o - 1, out, first)
            copy_row(out, i, out, first + 1)
            return OVERFLOW
        o = end
    return close_rows(out, first, o)


@inline
def sort_span(m: np.ndarray, first: int, last: int, start: int, end: int) -> None:
    """Sort the rows m[first:last], which are equal before lane `start`, in place by their lanes[start:end]: a Shell sort."""
    gap = 1
    while gap * 3 + 1 < last - first:
        gap = gap * 3 + 1
    while gap > 0:
        for i in range(first + gap, last):
            j = i
            while j - gap >= first and compare_at(m, j, start, m, j - gap, start, end - start) < 0:
                for c in range(start, m.shape[1]):
                    x = m[j, c]
                    m[j, c] = m[j - gap, c]
                    m[j - gap, c] = x
                j -= gap
        gap //= 3


@inline
def pair_group(
    a: np.ndarray,
    p: int,
    x_end: int,
    tails_a: np.ndarray,
    sa: int,
    b: np.ndarray,
    q: int,
    y: int,
    y_end: int,
    tails_b: np.ndarray,
    sb: int,
    nk: int,
    nta: int,
    ntb: int,
    take: np.ndarray,
    out: np.ndarray,
    o: int,
    repeating: int,
    state: np.ndarray,
) -> int:
    """Write the pairs of the rows of a key, from row o on, beginning with rows p and q; the key's rows end before `x_end`, and are b[y:y_end].

    Returns the row after the last one written. Where room is lacking it returns MORE, and the state has where to continue; OVERFLOW
    where the diffs of the rows at P and Q can't be multiplied; SUM_OVERFLOW where the two rows of the result at COUNT can't be added.
    """
    nt = max(nta, ntb)
    walks = nta == 1 and ntb == 1
    data_a = data_lanes(a, nta, sa)
    data_b = data_lanes(b, ntb, sb)
    first = o
    result = 0
    while p < x_end and result == 0:
        p_end = value_end(a, p, x_end, nk, data_a)
        while q < y_end:
            q_end = value_end(b, q, y_end, nk, data_b)
            need = (p_end - p) + (q_end - q) - 1 if walks else (p_end - p) * (q_end - q)
            if o + need > out.shape[0]:
                state[NEED] = need
                result = MORE
                break
            if walks:
                end = pair_in_time(a, p, p_end, tails_a, sa, b, q, q_end, tails_b, sb, nk, take, out, o)
            else:
                end = pair_of_any_times(
                    a, p, p_end, tails_a, sa, b, q, q_end, tails_b, sb, nk, nt, nta, ntb, take, out, o
                )
            if end < 0:
                result = OVERFLOW
                break
            o = end
            q = q_end
        if result == 0:
            p = p_end
            q = y
    if repeating == 1 and 1 < o - first <= SPAN and result != OVERFLOW:
        end = consolidate_span(out, first, o, 0)
        if end < 0:
            result = SUM_OVERFLOW
            o = first
        else:
            o = end
    if result == 0:
        return o
    state[P] = p
    state[Q] = q
    state[COUNT] = o
    return result
