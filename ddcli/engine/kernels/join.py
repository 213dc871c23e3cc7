"""Join sorted matrices by key: every match of a key is a row at the lattice join of the times, with the product of the diffs.

The matches of a key come out together and consolidated, so that no sort of the whole output is needed where it keeps the key. With one
time lane, a pair of values whose multiplicities change la and lb times has at most la + lb - 1 rows, not la * lb: the
product of two step functions is found by walking their times once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ddcli.engine.jit.errors import overflow
from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.rows import (
    LARGEST,
    add_row,
    close_rows,
    compare,
    copy_row,
    difference_overflows,
    group_end,
    product_overflows,
    same_between,
    seek_by,
    sum_overflows,
)
from ddcli.engine.kernels.sort import fitted
from ddcli.engine.kernels.uniform import Rows, Uniform, parted, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.jit.errors import DiffOverflow

# Words of the state from which a join continues that ran out of room.
LEFT, RIGHT = 0, 1  # which batches
X, X_END, Y, Y_END = 2, 3, 4, 5  # rows of the key on both sides; no key has begun while X_END <= X
P, Q = 6, 7  # first rows of the next pair of values
COUNT, NEED = 8, 9  # rows written, room that the next pair needs
STATE: Final = 10
DONE, MORE, OVERFLOW, SUM_OVERFLOW = 0, 1, -1, -2
SETTLED_ROWS: Final = 4096  # rows of a key up to which they are consolidated in place; later sorts are better at more
MANY: Final = 4096  # rows of the smaller side from which on room for those of the larger one is allocated at once
SPARSE: Final = 8  # a side with this many times its partner's rows is searched in large steps


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
            total = sum_a + diff
            if sum_overflows(sum_a, diff, total):
                return OVERFLOW
            sum_a = total
            i += 1
        while j < q_end and tail_lane(b, j, data_b, 0, tails_b, sb) == time:
            diff = tail_lane(b, j, data_b, 1, tails_b, sb)
            total = sum_b + diff
            if sum_overflows(sum_b, diff, total):
                return OVERFLOW
            sum_b = total
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
    return o if o == first + 1 else settle(out, first, o, t)


@inline
def settle(out: np.ndarray, first: int, last: int, lane: int) -> int:
    """Consolidate out[first:last], whose lanes before `lane` are all equal, in place; return its new end.

    Returns OVERFLOW, with the two rows that can't be added at `first`, where a diff overflows.
    """
    d = out.shape[1] - 1
    gap = 1
    while gap * 3 + 1 < last - first:
        gap = gap * 3 + 1
    while gap > 0:
        for i in range(first + gap, last):
            j = i
            while j - gap >= first and precedes(out, j, j - gap, lane, d):
                for c in range(lane, d + 1):
                    x = out[j, c]
                    out[j, c] = out[j - gap, c]
                    out[j - gap, c] = x
                j -= gap
        gap //= 3
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
def precedes(m: np.ndarray, i: int, j: int, first: int, last: int) -> bool:
    """Return whether row i is before row j by lanes[first:last]."""
    for c in range(first, last):
        if m[i, c] != m[j, c]:
            return bool(m[i, c] < m[j, c])
    return False


@kernel("LMLMiiiViMV")
def join_some(
    lefts: list[np.ndarray],
    left_tails: np.ndarray,
    rights: list[np.ndarray],
    right_tails: np.ndarray,
    nk: int,
    nta: int,
    ntb: int,
    take: np.ndarray,
    settling: int,
    out: np.ndarray,
    state: np.ndarray,
) -> int:
    """Continue to join every left batch with every right one; return DONE, or MORE where there is no room left. Tails are as `parted` returns them.

    Returns OVERFLOW where the diffs of the rows at P and Q can't be multiplied, and SUM_OVERFLOW where the two rows of the result at COUNT can't be added.
    """
    room = out.shape[0]
    nt = max(nta, ntb)
    walks = nta == 1 and ntb == 1
    o = 0
    x = state[X]
    x_end = state[X_END]
    y = state[Y]
    y_end = state[Y_END]
    p = state[P]
    q = state[Q]
    left = state[LEFT]
    right = state[RIGHT]
    result = DONE
    need = 0
    while left < len(lefts) and result == DONE:
        a = matrix_of(lefts, left)
        b = matrix_of(rights, right)
        na = a.shape[0]
        nb = b.shape[0]
        sa = tail_of(left_tails, left)
        sb = tail_of(right_tails, right)
        data_a = data_lanes(a, nta, sa)
        data_b = data_lanes(b, ntb, sb)
        step_a = na // (SPARSE * nb + 1) + 1
        step_b = nb // (SPARSE * na + 1) + 1
        while result == DONE:
            if x_end <= x:
                order = 1
                while x < na and y < nb:
                    order = compare(a, x, b, y, nk)
                    if order < 0:
                        x = seek_by(a, x, na, b, y, nk, step_a)
                    elif order > 0:
                        y = seek_by(b, y, nb, a, x, nk, step_b)
                    else:
                        break
                if x >= na or y >= nb:
                    break
                x_end = group_end(a, x, na, nk)
                y_end = group_end(b, y, nb, nk)
                p = x
                q = y
            first = o
            while p < x_end and result == DONE:
                p_end = value_end(a, p, x_end, nk, data_a)
                while q < y_end:
                    q_end = value_end(b, q, y_end, nk, data_b)
                    need = (p_end - p) + (q_end - q) - 1 if walks else (p_end - p) * (q_end - q)
                    if o + need > room:
                        result = MORE
                        break
                    if walks:
                        end = pair_in_time(a, p, p_end, left_tails, sa, b, q, q_end, right_tails, sb, nk, take, out, o)
                    else:
                        end = pair_of_any_times(
                            a, p, p_end, left_tails, sa, b, q, q_end, right_tails, sb, nk, nt, nta, ntb, take, out, o
                        )
                    if end < 0:
                        result = OVERFLOW
                        break
                    o = end
                    q = q_end
                if result == DONE:
                    p = p_end
                    q = y
            if settling == 1 and 1 < o - first <= SETTLED_ROWS and result != OVERFLOW:
                end = settle(out, first, o, 0)
                if end < 0:
                    result = SUM_OVERFLOW
                    o = first
                else:
                    o = end
            if result == DONE:
                x = x_end
                y = y_end
        if result == DONE:
            x = 0
            x_end = 0
            y = 0
            y_end = 0
            right += 1
            if right == len(rights):
                right = 0
                left += 1
    state[X] = x
    state[X_END] = x_end
    state[Y] = y
    state[Y_END] = y_end
    state[P] = p
    state[Q] = q
    state[LEFT] = left
    state[RIGHT] = right
    state[COUNT] = o
    state[NEED] = need
    return result


def join(
    a: Rows | Sequence[Rows],
    b: Rows | Sequence[Rows],
    nk: int,
    nt: int | tuple[int, int],
    take: np.ndarray,
) -> np.ndarray:
    """Join matrices, or the batches of traces, sorted by all lanes and each consolidated, by their first `nk` lanes; they may be `Uniform`.

    `a` and `b` are [key | values | times | diff], each with values of its own. Both have `nt` time lanes, or `a` has nt[0] and `b` nt[1]:
    the side with fewer entered a loop from outside. It exists from round 0 on, so the coordinates that it
    lacks are the other side's. A row of the result is the lanes `take` (numbers of lanes of
    [key | values of a | values of b]), the times' lattice join, and the product of the diffs. Where `take` keeps every key
    lane, the rows of each pair of batches are consolidated by key, though not sorted (more than 4096 rows of a key may
    hold equal ones where value lanes are left out). Raises DiffOverflow.

    >>> join(np.array([[1, 7, 0, 1]]), np.array([[1, 8, 3, 2]]), 1, 1, np.array([2, 1])).tolist()
    [[8, 7, 3, 2]]
    >>> join(np.array([[1, 7, 4, 1]]), np.array([[1, 8, 3, 5, 2]]), 1, (1, 2), np.array([2, 1])).tolist()
    [[8, 7, 4, 5, 2]]
    """
    chunks = list(join_chunks(a, b, nk, nt, take))
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def join_chunks(
    a: Rows | Sequence[Rows],
    b: Rows | Sequence[Rows],
    nk: int,
    nt: int | tuple[int, int],
    take: np.ndarray,
) -> Iterator[np.ndarray]:
    """Yield the result of `join` in chunks, at least one; later ones are larger."""
    lefts = [a] if isinstance(a, np.ndarray | Uniform) else list(a)
    rights = [b] if isinstance(b, np.ndarray | Uniform) else list(b)
    nta, ntb = (nt, nt) if isinstance(nt, int) else nt
    width = take.size + max(nta, ntb) + 1
    few, many = sorted((sum(map(len, lefts)), sum(map(len, rights))))
    if few == 0:
        yield np.empty((0, width), np.int64)
        return
    settling = settles(lefts[0].shape[1] - nta + rights[0].shape[1] - ntb - 2 - nk, nk, take.tobytes())
    # Memory is used only as it is written to: ample room costs little, and spares concatenating chunks. Allocating very much
    # at each small step would cost more.
    room = 64 + 2 * few + (min(many, SPARSE * few) if many < SPARSE * few or few > MANY else 0)
    state = np.zeros(STATE, np.int64)
    sides = (*parted(lefts), *parted(rights))
    code = MORE
    while code == MORE:
        out = np.empty((room, width), np.int64)
        code = join_some(*sides, nk, nta, ntb, take, settling, out, state)
        if code == SUM_OVERFLOW:
            raise settled_overflow(out, state)
        if code == OVERFLOW:
            left, right, p, q = (int(state[word]) for word in (LEFT, RIGHT, P, Q))
            raise overflow("x", row_of(lefts[left], p), row_of(rights[right], q))
        yield fitted(out, int(state[COUNT]))
        room = max(4 * room, int(state[NEED]))


def settled_overflow(out: np.ndarray, state: np.ndarray) -> DiffOverflow:
    """Return the error for the two rows that a call which ended with SUM_OVERFLOW could not add."""
    at = int(state[COUNT])
    return overflow("+", out[at], out[at + 1])


@cache
def settles(data: int, nk: int, take: bytes) -> int:
    """Return 1 where `take` keeps all key lanes but not all value lanes, so that rows of one key may become equal; else 0."""
    taken = set(np.frombuffer(take, np.int64).tolist())
    if taken and not (min(taken) >= 0 and max(taken) < data):
        raise ValueError(f"lanes {sorted(taken)} of {data}")
    return int(len(taken) < data and taken.issuperset(range(nk)))
