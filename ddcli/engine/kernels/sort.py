"""Sort rows by lanes, and consolidate: equal rows summed into one, zero diffs gone.

Large matrices are first distributed into pieces by the leading bits of their lanes, whole rows at a time: all rows of a piece are before the next piece's, and each piece is small
enough to be sorted within the processor's cache (see `sort_rows`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, overflow
from ddcli.engine.kernels.gather import take
from ddcli.engine.kernels.rows import add_row, close_rows, copy_row, copy_rows, sum_overflows
from ddcli.engine.kernels.sort_rows import (
    DIGIT,
    PIECE_BITS,
    before,
    emit,
    insertion_sort,
    lead_sort,
    measure,
    radix_sort,
    row_at,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


PIECE: Final = 1 << PIECE_BITS  # rows that are sorted at once; with their keys they should fit the second-level cache
TINY: Final = 32  # rows up to which insertion sort is quickest
CUT: Final = 1 << 20  # bytes from which on a matrix is truncated in place, which spares a copy
OVERFLOW: Final = -1
ABSENT: Final = -2 - TINY
DISORDERED, ORDERED, CONSOLIDATED = 0, 1, 2


@kernel("MV")
def order_of(m: np.ndarray, lanes: np.ndarray) -> int:
    """Return whether rows are DISORDERED, ORDERED by lanes, or even CONSOLIDATED: no two equal and no diff zero."""
    d = m.shape[1] - 1
    result = CONSOLIDATED
    for i in range(m.shape[0]):
        if m[i, d] == 0:
            result = ORDERED
        if i > 0:
            order = before(m, i - 1, m, i, lanes)
            if order > 0:
                return DISORDERED
            if order == 0:
                result = ORDERED
    return result


@kernel("MVMH")
def sort_tiny(m: np.ndarray, lanes: np.ndarray, out: np.ndarray, order: np.ndarray) -> int:
    """Sort a few rows."""
    insertion_sort(m, 0, m.shape[0], lanes, order)
    return emit(m, 0, m.shape[0], lanes, order, out, 0, 0)


@inline
def compare_taken(out: np.ndarray, o: int, m: np.ndarray, i: int, take: np.ndarray, count: int) -> int:
    """Return -1, 0 or 1 as the first `count` lanes of row o of `out` are before, equal to or after the lanes `take` of row i of `m`."""
    for c in range(count):
        x = out[o, c]
        y = m[i, take[c]]
        if x != y:
            return -1 if x < y else 1
    return 0


@kernel("MVM")
def take_tiny(m: np.ndarray, take: np.ndarray, out: np.ndarray) -> int:
    """Write the lanes `take` of a few rows, consolidated; return how many rows there are, or ABSENT for a lane that does not exist.

    Each row is inserted at its place among those before it. Returns -1 - row for one that can't be added to the row at out[0].
    """
    d = take.size - 1
    for c in range(take.size):
        if not 0 <= take[c] < m.shape[1]:
            return ABSENT
    o = 0
    for i in range(m.shape[0]):
        p = o
        order = -1
        while p > 0:
            order = compare_taken(out, p - 1, m, i, take, d)
            if order <= 0:
                break
            p -= 1
        if p > 0 and order == 0:
            total = out[p - 1, d] + m[i, take[d]]
            if sum_overflows(out[p - 1, d], m[i, take[d]]):
                copy_row(out, p - 1, out, 0)
                return -1 - i
            out[p - 1, d] = total
            continue
        for r in range(o, p, -1):
            copy_row(out, r - 1, out, r)
        for c in range(take.size):
            out[p, c] = m[i, take[c]]
        o += 1
    end = 0
    for r in range(o):
        if out[r, d] != 0:
            if end < r:
                copy_row(out, r, out, end)
            end += 1
    return end


@kernel("MVM")
def sum_equal(m: np.ndarray, lanes: np.ndarray, out: np.ndarray) -> int:
    """Consolidate ordered rows; return the number of rows written, or -1 - row for one that could not be added to the row at out[0]."""
    o = 0
    for i in range(m.shape[0]):
        end = add_row(m, i, out, o, 0, o > 0 and before(out, o - 1, m, i, lanes) == 0)
        if end < 0:
            copy_row(out, o - 1, out, 0)
            return -1 - i
        o = end
    return close_rows(out, 0, o)


@kernel("MViiMMHUVVi")
def sort_pieces(
    m: np.ndarray,
    lanes: np.ndarray,
    first: int,
    last: int,
    out: np.ndarray,
    rows: np.ndarray,
    order: np.ndarray,
    keys: np.ndarray,
    starts: np.ndarray,
    scratch: np.ndarray,
    consolidate: int,
) -> int:
    """Sort each of the pieces from `first` on, and write them one after the other to `out`.

    Begins at row scratch[0] of `out`, which becomes the row after the last one written. Stops before a piece of more than PIECE
    rows, and returns the next piece. Where `m` is `out`, pieces are first copied to `rows`.
    Returns OVERFLOW, with the two rows at the start of `rows`, where diffs can't be added.
    """
    low = scratch[1 : 1 + lanes.size]
    width = scratch[1 + lanes.size : 1 + 2 * lanes.size]
    counts = scratch[1 + 2 * lanes.size :]
    o = scratch[0]
    k = first
    while k < last:
        start = starts[k]
        n = starts[k + 1] - start
        if n > PIECE:
            break
        source = m
        if rows.shape[0] >= n:
            copy_rows(m, start, start + n, rows, 0)
            source = rows
            start = 0
        if n <= TINY:
            insertion_sort(source, start, start + n, lanes, order)
        else:
            measure(source, start, start + n, lanes, low, width)
            if not lead_sort(source, start, start + n, lanes, order, keys, counts, low, width):
                radix_sort(source, start, start + n, lanes, order, keys, counts, low, width)
        end = emit(source, start, n, lanes, order, out, o, consolidate)
        if end < 0:
            scratch[0] = start + row_at(order, -1 - end)
            return OVERFLOW
        o = end
        k += 1
    scratch[0] = o
    return k


def consolidate(m: np.ndarray, *, owned: bool = False) -> np.ndarray:
    """Sort by all lanes but the last, sum the diffs of equal rows, drop zero sums. Raises DiffOverflow.

    Returns `m` itself if it is consolidated already, which one pass tests. An `owned` matrix has no other reader: many rows
    are sorted in place.

    >>> consolidate(np.array([[2, 1], [1, 1], [2, 2], [1, -1]])).tolist()
    [[2, 3]]
    """
    n, width = m.shape
    if n < 2 and (n == 0 or m[0, width - 1] != 0):
        return m
    if n <= TINY:
        return arranged(m, _leading(width))
    lanes = _leading(width - 1)
    order_now = order_of(m, lanes)
    if order_now == CONSOLIDATED:
        return m
    if order_now == ORDERED:
        out = np.empty((n, width), np.int64)
        count = sum_equal(m, lanes, out)
        if count < 0:
            raise overflow("+", out[0], m[-1 - count])
        return fitted(out, count)
    if owned and n > PIECE:
        pieces = distributed_in_place(m, lanes)
        return _in_pieces(m, pieces, lanes, m, 1)
    return _sorted(m, lanes, 1)


def arranged(m: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Return the given lanes of every row, the last of them the diff, consolidated. Raises DiffOverflow.

    >>> arranged(np.array([[7, 2, 1], [8, 1, 1], [9, 2, 1]]), np.array([1, 2])).tolist()
    [[1, 1], [2, 2]]
    """
    n, width = m.shape[0], lanes.size
    if n > TINY:
        return consolidate(take(m, lanes))
    out = np.empty((n, width), np.int64)
    count = take_tiny(m, lanes, out)
    if count == ABSENT:
        raise ValueError(f"lanes {lanes.tolist()} of a matrix of {m.shape[1]}")
    if count < 0:
        raise overflow("+", out[0], m[-1 - count, lanes])
    return out[:count]


def sort_by(m: np.ndarray, lanes: Sequence[int], *, owned: bool = False) -> np.ndarray:
    """Sort rows by the given lanes, in their order of importance; rows that are equal in them stay in their order, but in an `owned` matrix.

    Returns `m` itself if it is sorted already. An `owned` matrix has no other reader: many rows are sorted in place.

    >>> sort_by(np.array([[1, 9], [2, 8], [3, 8]]), [1]).tolist()
    [[2, 8], [3, 8], [1, 9]]
    """
    if lanes and not 0 <= min(lanes) <= max(lanes) < m.shape[1]:
        raise ValueError(f"lanes {list(lanes)} of a matrix of {m.shape[1]}")
    by = np.array(lanes, np.int64)
    if owned and len(m) > PIECE and order_of(m, by) == DISORDERED:
        pieces = distributed_in_place(m, by)
        return _in_pieces(m, pieces, by, m, 0)
    return _ordered(m, by)


def is_sorted(m: np.ndarray, by: int | None = None) -> bool:
    """Return whether rows are sorted by their first `by` lanes, by default all but the last; equal rows and zero diffs are allowed."""
    return order_of(m, _leading(m.shape[1] - 1 if by is None else by)) != DISORDERED


def is_consolidated(m: np.ndarray) -> bool:
    """Return whether rows are sorted by all lanes but the last, with no equal ones and no zero diffs."""
    return order_of(m, _leading(m.shape[1] - 1)) == CONSOLIDATED


_numbers: Final = np.arange(64)


def _leading(count: int) -> np.ndarray:
    """Return the numbers of the first lanes."""
    return _numbers[:count] if count <= 64 else np.arange(count)


def fitted(out: np.ndarray, count: int) -> np.ndarray:
    """Return the first rows of a matrix without other readers; the memory of the others is released if it is much."""
    rows, width = out.shape
    if out.base is None and out.nbytes >= CUT and count < rows:
        out.resize((count, width), refcheck=False)
        return out
    return out[:count] if 2 * count >= rows else out[:count].copy()


def _ordered(m: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    return m if m.shape[0] < 2 or order_of(m, lanes) != DISORDERED else _sorted(m, lanes, 0)


def _sorted(m: np.ndarray, lanes: np.ndarray, consolidating: int) -> np.ndarray:
    n, width = m.shape
    out = np.empty((n, width), np.int64)
    if n <= TINY and not consolidating:
        sort_tiny(m, lanes, out, np.empty(n, np.uint32))
        return out
    if n <= PIECE:
        return _in_pieces(m, np.array([0, n]), lanes, out, consolidating)
    pieces, plan = plan_pieces(m, lanes)
    move_to_pieces(m, lanes, plan, pieces[:-1].copy(), out)
    return _in_pieces(out, pieces, lanes, out, consolidating)


def _in_pieces(
    source: np.ndarray, pieces: np.ndarray, lanes: np.ndarray, out: np.ndarray, consolidating: int
) -> np.ndarray:
    """Sort each piece; where `source` is `out`, in place."""
    width = source.shape[1]
    largest = min(int(np.diff(pieces).max()), PIECE)
    rows = np.empty((largest if source is out else 0, width), np.int64)
    order = np.empty(2 * largest, np.uint32)
    keys = np.empty(2 * largest, np.uint64)
    scratch = np.empty(1 + 2 * lanes.size + (1 << DIGIT), np.int64)
    scratch[0] = 0
    last = pieces.size - 1
    k = 0
    while k < last:
        k = sort_pieces(source, lanes, k, last, out, rows, order, keys, pieces, scratch, consolidating)
        if k == OVERFLOW:
            raise overflow("+", out[0], (rows if rows.shape[0] else source)[scratch[0]])
        if k < last:
            # A piece too large for the cache: its values spread over fewer bits, so it is distributed again by these. One whose rows
            # are all equal would never get smaller; it is sorted already, which is tested first.
            part = out[pieces[k] : pieces[k + 1]]
            piece = consolidate(part) if consolidating else _ordered(part, lanes)
            begin = int(scratch[0])
            out[begin : begin + piece.shape[0]] = piece
            scratch[0] = begin + piece.shape[0]
            k += 1
    return fitted(out, int(scratch[0]))


TARGET: Final = 1 << 12  # rows a piece should have
DISTRIBUTION_BITS: Final = 10  # most bits to distribute by: more open destinations than that thrash the cache


@kernel("MVViVV")
def partition(
    m: np.ndarray, lanes: np.ndarray, plan: np.ndarray, bits: int, starts: np.ndarray, numbers: np.ndarray
) -> int:
    """Plan the distribution of rows into pieces by their leading `bits`: where each piece starts, and the rows of the largest.

    `plan` becomes, for each lane, its smallest value, then the bits to drop, then the bits to keep.
    """
    count = lanes.size
    low = plan[:count]
    measure(m, 0, m.shape[0], lanes, low, numbers)
    left = bits
    for c in range(count):
        keep = min(left, numbers[c])
        plan[count + c] = numbers[c] - keep
        plan[2 * count + c] = keep
        left -= keep
    for k in range(starts.size):
        starts[k] = 0
    for i in range(m.shape[0]):
        starts[piece_of(m, i, lanes, plan) + 1] += 1
    largest = 0
    for k in range(1, starts.size):
        largest = max(largest, starts[k])
        starts[k] += starts[k - 1]
    return largest


@inline
def piece_of(m: np.ndarray, i: int, lanes: np.ndarray, plan: np.ndarray) -> int:
    """Return the piece that a row is distributed to."""
    count = lanes.size
    piece: Any = 0
    for c in range(count):
        keep = plan[2 * count + c]
        if keep > 0:
            x = (np.uint64(m[i, lanes[c]]) - np.uint64(plan[c])) >> np.uint64(plan[count + c])
            piece = (piece << keep) | np.int64(x)
    return piece  # type: ignore[no-any-return]


@kernel("MVVVM")
def move_to_pieces(m: np.ndarray, lanes: np.ndarray, plan: np.ndarray, ends: np.ndarray, out: np.ndarray) -> int:
    """Move rows to their pieces in `out`, in order; `ends` holds the pieces' starts and becomes their ends."""
    for i in range(m.shape[0]):
        k = piece_of(m, i, lanes, plan)
        o = ends[k]
        ends[k] = o + 1
        copy_row(m, i, out, o)
    return 0


@kernel("MVVVV")
def move_in_place(m: np.ndarray, lanes: np.ndarray, plan: np.ndarray, heads: np.ndarray, pieces: np.ndarray) -> int:
    """Move rows to their pieces in place, in any order; `heads` holds the pieces' starts and becomes their ends."""
    for k in range(heads.size):
        while heads[k] < pieces[k + 1]:
            i = heads[k]
            p = piece_of(m, i, lanes, plan)
            o = heads[p]
            heads[p] = o + 1
            if p != k:
                for c in range(m.shape[1]):
                    x = m[i, c]
                    m[i, c] = m[o, c]
                    m[o, c] = x
    return 0


def plan_pieces(m: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the pieces begin into which many rows are distributed, with an end mark, and the plan of the distribution."""
    bits = bits_of_pieces(len(m))
    plan = np.empty(3 * lanes.size, np.int64)
    pieces = np.empty((1 << bits) + 1, np.int64)
    partition(m, lanes, plan, bits, pieces, np.empty(lanes.size, np.int64))
    return pieces, plan


def distributed_in_place(m: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Deal many rows into pieces where they lie; return where the pieces begin, with an end mark."""
    pieces, plan = plan_pieces(m, lanes)
    move_in_place(m, lanes, plan, pieces[:-1].copy(), pieces)
    return pieces


def bits_of_pieces(rows: int) -> int:
    """Return the number of leading bits for distributing so many rows into pieces."""
    return min((rows // TARGET).bit_length() + 1, DISTRIBUTION_BITS)
