"""Pick rows by key or by comparisons of their lanes, and lanes by number; lanes of rows as columns, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels import reduce_times
from ddcli.engine.kernels.rows import compare, copy_rows, group_end, same, seek_by, sum_overflows

if TYPE_CHECKING:
    from collections.abc import Sequence


LESS: Final = 1
EQUAL: Final = 2
GREATER: Final = 4
LARGE: Final = 1 << 20
"""The bytes from which on a matrix without other readers is overwritten: a copy of it would need as much memory again."""


@kernel("MMV")
def find_ranges(m: np.ndarray, keys: np.ndarray, ranges: np.ndarray) -> int:
    """Write the start and the end of the rows of each key that has rows, one pair after the other; return the number of rows."""
    nk = keys.shape[1]
    n = m.shape[0]
    step_m = n // (8 * keys.shape[0] + 1) + 1
    step_k = keys.shape[0] // (8 * n + 1) + 1
    x = 0
    k = 0
    r = 0
    rows = 0
    while x < n and k < keys.shape[0]:
        order = compare(m, x, keys, k, nk)
        if order < 0:
            x = seek_by(m, x, n, keys, k, nk, 0, step_m)
        elif order > 0:
            k = seek_by(keys, k, keys.shape[0], m, x, nk, 0, step_k)
        else:
            end = group_end(m, x, n, nk)
            ranges[r] = x
            ranges[r + 1] = end
            rows += end - x
            r += 2
            x = end
            k += 1
    if r < ranges.size:
        ranges[r] = -1
    return rows


@kernel("MMMV")
def ranges_with_keys(lows: np.ndarray, highs: np.ndarray, keys: np.ndarray, out: np.ndarray) -> int:
    """Write the numbers of the ranges [lows[i], highs[i]] that contain one of the sorted keys; return how many they are. `lows` ascend."""
    lanes = keys.shape[1]
    count = keys.shape[0]
    step = count // (8 * lows.shape[0] + 1) + 1
    found = 0
    k = 0
    for i in range(lows.shape[0]):
        k = seek_by(keys, k, count, lows, i, lanes, 0, step)
        if k == count:
            break
        if compare(keys, k, highs, i, lanes) <= 0:
            out[found] = i
            found += 1
    return found


@kernel("MVM")
def copy_ranges(m: np.ndarray, ranges: np.ndarray, out: np.ndarray) -> int:
    """Copy the rows of ranges, as `find_ranges` has written them, one after the other."""
    o = 0
    r = 0
    while r < ranges.size and ranges[r] >= 0:
        copy_rows(m, ranges[r], ranges[r + 1], out, o)
        o += ranges[r + 1] - ranges[r]
        r += 2
    return o


@kernel("M")
def count_positive(m: np.ndarray) -> int:
    """Count the rows whose last lane is positive."""
    last = m.shape[1] - 1
    count = 0
    for i in range(m.shape[0]):
        count += m[i, last] > 0
    return count


@kernel("LM")
def count_bounds(sources: list[np.ndarray], bounds: np.ndarray) -> int:
    """Return how many rows `bounds` names, or -1 if one of them does not exist."""
    total = 0
    for g in range(bounds.shape[0]):
        for s in range(len(sources)):
            start = bounds[g, 2 * s]
            end = bounds[g, 2 * s + 1]
            if not 0 <= start <= end <= matrix_of(sources, s).shape[0]:
                return -1
            total += end - start
    return total


@kernel("LMM")
def copy_bounds(sources: list[np.ndarray], bounds: np.ndarray, out: np.ndarray) -> int:
    """Copy the rows that `bounds` names, by its rows and then by source."""
    o = 0
    for g in range(bounds.shape[0]):
        for s in range(len(sources)):
            start = bounds[g, 2 * s]
            end = bounds[g, 2 * s + 1]
            copy_rows(matrix_of(sources, s), start, end, out, o)
            o += end - start
    return o


@kernel("MM")
def first_keys(m: np.ndarray, out: np.ndarray) -> int:
    """Write each key of sorted rows once; return the number of keys."""
    o = 0
    for i in range(m.shape[0]):
        if o == 0 or not same(out, o - 1, m, i, out.shape[1]):
            for c in range(out.shape[1]):
                out[o, c] = m[i, c]
            o += 1
    return o


@inline
def has_lanes(m: np.ndarray, lanes: np.ndarray) -> bool:
    """Return whether all of the lanes exist."""
    for c in range(lanes.size):
        if not 0 <= lanes[c] < m.shape[1]:
            return False
    return True


@kernel("MVM")
def copy_lanes(m: np.ndarray, lanes: np.ndarray, out: np.ndarray) -> int:
    """Copy the given lanes of every row; return -1 if a lane does not exist."""
    if not has_lanes(m, lanes):
        return -1
    for i in range(m.shape[0]):
        for c in range(lanes.size):
            out[i, c] = m[i, lanes[c]]
    return 0


@kernel("MVVM")
def add_to_lanes(m: np.ndarray, lanes: np.ndarray, numbers: np.ndarray, out: np.ndarray) -> int:
    """Copy the given lanes of every row, a number added to each; return -1 if a lane does not exist, -2 if a sum overflows 64 bits."""
    if not has_lanes(m, lanes):
        return -1
    for i in range(m.shape[0]):
        for c in range(lanes.size):
            if sum_overflows(m[i, lanes[c]], numbers[c]):
                return -2
            out[i, c] = m[i, lanes[c]] + numbers[c]
    return 0


@kernel("MVVM")
def copy_lanes_of(m: np.ndarray, rows: np.ndarray, lanes: np.ndarray, out: np.ndarray) -> int:
    """Copy the given lanes of the given rows; return -1 if a row or a lane does not exist."""
    if not has_lanes(m, lanes):
        return -1
    for i in range(rows.size):
        r = rows[i]
        if not 0 <= r < m.shape[0]:
            return -1
        for c in range(lanes.size):
            out[i, c] = m[r, lanes[c]]
    return 0


@kernel("MMV")
def rows_that_compare(m: np.ndarray, comparisons: np.ndarray, out: np.ndarray) -> int:
    """Write the numbers of the rows for which all comparisons hold; return how many they are, or -1 if a lane does not exist.

    A comparison is [lane, orders, lane or -1, number]. It compares the first lane with the other one, or with the number where that is -1;
    `orders` is the sum of the orders (LESS, EQUAL, GREATER) for which it holds.
    """
    for k in range(comparisons.shape[0]):
        if not (0 <= comparisons[k, 0] < m.shape[1] and -1 <= comparisons[k, 2] < m.shape[1]):
            return -1
    o = 0
    for i in range(m.shape[0]):
        kept = True
        for k in range(comparisons.shape[0]):
            x = m[i, comparisons[k, 0]]
            y = comparisons[k, 3]
            if comparisons[k, 2] >= 0:
                y = m[i, comparisons[k, 2]]
            order = EQUAL
            if x < y:
                order = LESS
            elif x > y:
                order = GREATER
            kept = kept and (comparisons[k, 1] & order) != 0
        if kept:
            out[o] = i
            o += 1
    return o


def gather(m: np.ndarray, nk: int, keys: np.ndarray) -> np.ndarray:
    """Return the rows of `m`, sorted by its first `nk` lanes, whose key is a row of the sorted, distinct matrix `keys`.

    Returns `m` itself where every row is kept.

    >>> gather(np.array([[1, 5], [2, 6], [2, 7]]), 1, np.array([[2], [3]])).tolist()
    [[2, 6], [2, 7]]
    """
    if keys.shape[1] != nk:
        raise ValueError(f"keys of {keys.shape[1]} lanes where {nk} are asked for")
    ranges = np.empty(2 * min(m.shape[0], keys.shape[0]), np.int64)
    rows = find_ranges(m, keys, ranges)
    if rows == m.shape[0]:
        return m
    out = np.empty((rows, m.shape[1]), np.int64)
    copy_ranges(m, ranges, out)
    return out


def locate(keys: np.ndarray, sources: Sequence[np.ndarray]) -> tuple[np.ndarray, int]:
    """Return the bounds of the rows of the sorted, distinct `keys` in sorted matrices, (keys, 2 * sources), and the number of these rows.

    A row of the bounds has the begin and the end of a key's rows in each source by turns.

    >>> locate(np.array([[2], [3]]), [np.array([[1, 5], [2, 6], [2, 7]])])
    (array([[1, 3],
           [3, 3]]), 2)
    """
    bounds = np.empty((len(keys), 2 * len(sources)), np.int64)
    return bounds, reduce_times.locate(keys, list(sources), keys.shape[1], bounds)


def gather_bounds(sources: Sequence[np.ndarray], bounds: np.ndarray) -> np.ndarray:
    """Return the rows bounds[g, 2s] to bounds[g, 2s + 1] of each source s, all of g = 0 first, in one matrix.

    `sources`, at least one, are of one width. With the bounds that `reduce_instances.locate` finds, keys ascend in the result,
    and the rows of a key from each source keep their order.

    >>> gather_bounds([np.array([[1, 1], [2, 1]]), np.array([[1, 5]])], np.array([[0, 1, 0, 1]])).tolist()
    [[1, 1], [1, 5]]
    """
    matrices = list(sources)
    widths = {m.shape[1] for m in matrices}
    if len(widths) != 1 or bounds.shape[1] != 2 * len(matrices):
        raise ValueError(f"{len(matrices)} matrices of widths {sorted(widths)}, bounds of {bounds.shape[1]} lanes")
    rows = count_bounds(matrices, bounds)
    if rows < 0:
        raise ValueError("bounds of rows that are not there")
    out = np.empty((rows, widths.pop()), np.int64)
    copy_bounds(matrices, bounds, out)
    return out


def distinct_keys(m: np.ndarray, nk: int) -> np.ndarray:
    """Return the distinct keys, (n, nk), of a matrix sorted by its first `nk` lanes."""
    if nk == 0:
        return np.empty((min(1, m.shape[0]), 0), np.int64)
    out = np.empty((m.shape[0], nk), np.int64)
    count = first_keys(m, out)
    return out[:count] if 2 * count >= out.shape[0] else out[:count].copy()


def select(m: np.ndarray, comparisons: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows for which all comparisons, as `rows_that_compare` takes them, hold.

    >>> select(np.array([[1, 5], [2, 2], [3, 3]]), np.array([[0, EQUAL, 1, 0], [0, LESS | EQUAL, -1, 2]])).tolist()
    [1]
    """
    out = np.empty(m.shape[0], np.int64)
    count = rows_that_compare(m, comparisons, out)
    if count < 0:
        raise ValueError(f"comparisons {comparisons.tolist()} of a matrix of {m.shape[1]} lanes")
    return out[:count]


def inserted(m: np.ndarray) -> int:
    """Return how many updates are insertions: their diff, the last lane, is positive.

    >>> inserted(np.array([[7, 0, 2], [8, 0, -1]]))
    1
    """
    return count_positive(m)


def take(m: np.ndarray, lanes: np.ndarray | Sequence[int], rows: np.ndarray | None = None) -> np.ndarray:
    """Return the given lanes of every row, or of the given ones, as a matrix of their own: a permutation, a projection or a repetition.

    >>> take(np.array([[1, 2, 3], [4, 5, 6]]), [2, 0]).tolist(), take(np.array([[1, 2, 3], [4, 5, 6]]), [2, 0], np.array([1])).tolist()
    ([[3, 1], [6, 4]], [[6, 4]])
    """
    by = np.asarray(lanes, np.int64)
    if rows is not None:
        out = np.empty((rows.size, by.size), np.int64)
        if copy_lanes_of(m, np.ascontiguousarray(rows, np.int64), by, out) < 0:
            raise ValueError(f"rows or lanes {by.tolist()} that are not among {m.shape}")
        return out
    out = np.empty((m.shape[0], by.size), np.int64)
    if copy_lanes(m, by, out) < 0:
        raise ValueError(f"lanes {by.tolist()} of a matrix of {m.shape[1]}")
    return out


def take_sums(m: np.ndarray, lanes: np.ndarray, numbers: np.ndarray) -> np.ndarray | None:
    """Return the given lanes of every row, with a number added to each; None if a sum overflows 64 bits.

    >>> take_sums(np.array([[1, 2, 3], [4, 5, 6]]), np.array([2, 0]), np.array([1, 0])).tolist()
    [[4, 1], [7, 4]]
    """
    out = np.empty((m.shape[0], lanes.size), np.int64)
    code = add_to_lanes(m, lanes, numbers, out)
    if code == -1:
        raise ValueError(f"lanes {lanes.tolist()} of a matrix of {m.shape[1]}")
    return None if code else out


def concat(batches: Sequence[np.ndarray]) -> np.ndarray:
    """Return the rows of all matrices, of one width, one after the other; an input itself if only it has rows."""
    filled = [batch for batch in batches if batch.shape[0]]
    if len(filled) > 1:
        return np.concatenate(filled)
    return filled[0] if filled else batches[0]


def concat_out_of(batches: list[np.ndarray]) -> np.ndarray:
    """Return the rows of all batches, and remove each from the list as soon as it is copied: a caller without other references needs little more memory than for one copy.

    >>> concat_out_of(batches := [np.array([[1, 1]]), np.array([[2, 1]])]).tolist(), batches
    ([[1, 1], [2, 1]], [])
    """
    rows = sum(map(len, batches))
    if len(batches) == 1:
        return batches.pop()
    out = np.empty((rows, batches[0].shape[1]), np.int64)
    while batches:
        batch = batches.pop()
        out[rows - len(batch) : rows] = batch
        rows -= len(batch)
    return out


TURNED: Final = 128
"""Rows whose lanes are written elsewhere lane by lane, while they are in the processor's first cache."""


@kernel("MVM")
def turn_lanes(m: np.ndarray, lanes: np.ndarray, out: np.ndarray) -> int:
    """Copy the given lanes, each to a row of `out`; return -1 if a lane does not exist. Each row of `m` is brought into the cache once."""
    for c in range(lanes.size):
        if not 0 <= lanes[c] < m.shape[1]:
            return -1
    for start in range(0, m.shape[0], TURNED):
        end = min(start + TURNED, m.shape[0])
        for c in range(lanes.size):
            lane = lanes[c]
            for i in range(start, end):
                out[c, i] = m[i, lane]
    return 0


@kernel("MMVMiii")
def put_lanes(
    columns: np.ndarray, tail: np.ndarray, rows: np.ndarray, out: np.ndarray, at: int, first: int, count: int
) -> int:
    """Write `count` rows of `out`, from row `first` on, in the lanes from `at` on: the first values of each row of `columns`, then a row of `tail`.

    That is the row of the same number, or the one whose number is in `rows`, if there are some; nothing if `tail` has no lanes. Returns -1 if a row or lane
    does not exist.
    """
    width = columns.shape[0]
    lanes = tail.shape[1]
    picks = rows.shape[0] > 0
    if not (0 <= at <= out.shape[1] - width - lanes and 0 <= first <= out.shape[0] - count):
        return -1
    if not 0 <= count <= columns.shape[1] or (
        lanes > 0 and out.shape[0] != (rows.shape[0] if picks else tail.shape[0])
    ):
        return -1
    for start in range(0, count, TURNED):
        end = min(start + TURNED, count)
        for c in range(width):
            for i in range(start, end):
                out[first + i, at + c] = columns[c, i]
        if lanes == 0:
            continue
        for i in range(first + start, first + end):
            r = rows[i] if picks else i
            if not 0 <= r < tail.shape[0]:
                return -1
            for c in range(lanes):
                out[i, at + width + c] = tail[r, c]
    return 0


def turned(m: np.ndarray, lanes: Sequence[int]) -> np.ndarray:
    """Return the given lanes, each as a row of a matrix.

    >>> turned(np.array([[1, 2, 3], [4, 5, 6]]), [2, 0]).tolist()
    [[3, 6], [1, 4]]
    """
    out = np.empty((len(lanes), m.shape[0]), np.int64)
    if turn_lanes(m, np.array(lanes, np.int64), out) < 0:
        raise ValueError(f"lanes {list(lanes)} of a matrix of {m.shape[1]}")
    return out


def put_columns(
    columns: np.ndarray,
    out: np.ndarray,
    at: int,
    first: int,
    count: int,
    tail: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> None:
    """Write `count` rows of `out`, from row `first` on, in the lanes from `at` on: the first values of each row of `columns`.

    Behind them come the lanes of a row of `tail`, which has as many rows as `out`; or `rows` has the numbers of the rows of `tail` to write.
    All lanes of a row are written while it is in the cache.

    >>> out = np.zeros((2, 4), np.int64)
    >>> put_columns(np.array([[5, 6, 0]]), out, 1, 0, 2, np.array([[1, 2], [3, 4], [7, 8]]), np.array([2, 0]))
    >>> out.tolist()
    [[0, 5, 7, 8], [0, 6, 1, 2]]
    """
    tail = np.empty((0, 0), np.int64) if tail is None else tail
    picked = np.empty(0, np.int64) if rows is None else np.ascontiguousarray(rows, np.int64)
    if put_lanes(columns, tail, picked, out, at, first, count) < 0:
        raise ValueError(
            f"columns of shape {columns.shape} and rows of {tail.shape} for lanes from {at} on of {out.shape}"
        )
