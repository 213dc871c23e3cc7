"""Helpers over rows that the kernels share: comparing, seeking, copying. Compiled into each kernel that uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ddcli.engine.jit.registry import inline

if TYPE_CHECKING:
    import numpy as np

SMALLEST: Final = -(1 << 63)
LARGEST: Final = (1 << 63) - 1


@inline
def compare_at(a: np.ndarray, i: int, ca: int, b: np.ndarray, j: int, cb: int, lanes: int) -> int:
    """Return -1, 0 or 1 as `lanes` lanes of row i of `a`, from lane `ca` on, are before, equal to or after the lanes of row j of `b`, from `cb` on."""
    for c in range(lanes):
        x = a[i, ca + c]
        y = b[j, cb + c]
        if x != y:
            return -1 if x < y else 1
    return 0


@inline
def compare(a: np.ndarray, i: int, b: np.ndarray, j: int, lanes: int) -> int:
    """Compare the first `lanes` lanes of two rows."""
    return compare_at(a, i, 0, b, j, 0, lanes)


@inline
def same(a: np.ndarray, i: int, b: np.ndarray, j: int, lanes: int) -> bool:
    """Return whether the first `lanes` lanes of two rows are equal."""
    for c in range(lanes):
        if a[i, c] != b[j, c]:
            return False
    return True


@inline
def bisect_at(
    a: np.ndarray, low: int, high: int, ca: int, b: np.ndarray, j: int, cb: int, lanes: int, least: int
) -> int:
    """Return the first row of a[low:high], sorted, that compares with row j of `b` as `least` or more, by lanes as of `compare_at`."""
    while low < high:
        middle = (low + high) >> 1
        if compare_at(a, middle, ca, b, j, cb, lanes) < least:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def bisect(a: np.ndarray, low: int, high: int, b: np.ndarray, j: int, lanes: int, past: int) -> int:
    """Return the first row of a[low:high], sorted, not before row j of `b` by its first lanes; or after it, if `past`."""
    return bisect_at(a, low, high, 0, b, j, 0, lanes, past)


@inline
def seek_by(a: np.ndarray, low: int, end: int, b: np.ndarray, j: int, lanes: int, past: int, step: int) -> int:
    """Do as `bisect` does by galloping: the step doubles until it is too far, then halves. A near row is found in a few comparisons."""
    high = low
    while high < end and compare(a, high, b, j, lanes) < past:
        low = high + 1
        high += step
        step += step
    return bisect(a, low, min(high, end), b, j, lanes, past)


@inline
def gallop(a: np.ndarray, low: int, high: int, b: np.ndarray, j: int, lanes: int, past: int) -> int:
    """Do as `bisect` does, quickly where the answer is near `low`."""
    return seek_by(a, low, high, b, j, lanes, past, 1)


@inline
def group_end(a: np.ndarray, start: int, end: int, lanes: int) -> int:
    """Return the end of the run of rows of a[start:end] that equal row `start` in their first `lanes` lanes."""
    stop = start + 1
    while stop < end and same(a, stop, a, start, lanes):
        stop += 1
    return stop


@inline
def copy_row(a: np.ndarray, i: int, out: np.ndarray, o: int) -> None:
    """Copy a row between matrices of one width.

    Four lanes are read before one is written, so that they move as one vector. A plain loop over so few would be compiled into
    code that first tests whether the rows overlap, which takes longer than copying.
    """
    width = a.shape[1]
    c = 0
    while c + 4 <= width:
        w = a[i, c]
        x = a[i, c + 1]
        y = a[i, c + 2]
        z = a[i, c + 3]
        out[o, c] = w
        out[o, c + 1] = x
        out[o, c + 2] = y
        out[o, c + 3] = z
        c += 4
    if width & 2:
        w = a[i, c]
        x = a[i, c + 1]
        out[o, c] = w
        out[o, c + 1] = x
        c += 2
    if width & 1:
        out[o, c] = a[i, c]


@inline
def copy_rows(a: np.ndarray, start: int, end: int, out: np.ndarray, o: int) -> None:
    """Copy adjacent rows between matrices of one width; where they overlap in one matrix, only downwards."""
    for i in range(start, end):
        copy_row(a, i, out, o + i - start)


@inline
def add_row(m: np.ndarray, i: int, out: np.ndarray, o: int, first: int, equal: bool) -> int:
    """Add row i of `m` to the last row of out[first:o] if the two are `equal`, else append it; return the new end.

    A last row whose diff has become zero is overwritten; `close_rows` drops the one at the end. Returns -1, without a change, where
    the diffs can't be added.
    """
    d = out.shape[1] - 1
    if equal:
        if sum_overflows(out[o - 1, d], m[i, d]):
            return -1
        out[o - 1, d] += m[i, d]
        return o
    o = close_rows(out, first, o)
    copy_row(m, i, out, o)
    return o + 1


@inline
def close_rows(out: np.ndarray, first: int, o: int) -> int:
    """Return the end of out[first:o] without a last row whose diff is zero."""
    if o > first and out[o - 1, out.shape[1] - 1] == 0:
        return o - 1
    return o


@inline
def sum_overflows(x: int, y: int) -> bool:
    """Return whether x + y leaves the 64-bit range.

    To be asked before they are added: compiled code may assume that signed arithmetic never overflows, so where it does the sum may be
    anything, and the compiler may drop a test of it.
    """
    if y >= 0:
        return x > LARGEST - y
    return x < SMALLEST - y


@inline
def difference_overflows(x: int, y: int) -> bool:
    """Return whether x - y leaves the 64-bit range."""
    if y >= 0:
        return x < SMALLEST + y
    return x > LARGEST + y


@inline
def product_overflows(x: int, y: int) -> bool:
    """Return whether x * y leaves the 64-bit range."""
    if (-2147483648 <= x <= 2147483647 and -2147483648 <= y <= 2147483647) or x == 0 or y == 0:
        return False
    # The smallest integer has no positive twin.
    if x == SMALLEST:
        return y != 1
    if y == SMALLEST:
        return x != 1
    a = abs(x)
    b = abs(y)
    limit = LARGEST // b
    # A negative product may be one larger in magnitude, where b divides LARGEST + 1.
    return a > limit and not ((x < 0) != (y < 0) and a == limit + 1 and LARGEST - limit * b == b - 1)


@inline
def same_between(m: np.ndarray, i: int, j: int, first: int, last: int) -> bool:
    """Return whether two rows of a matrix are equal in lanes[first:last]."""
    for c in range(first, last):
        if m[i, c] != m[j, c]:
            return False
    return True
