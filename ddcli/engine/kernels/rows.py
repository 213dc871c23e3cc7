"""Helpers over rows that the kernels share: comparing, seeking, copying. Compiled into each kernel that uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.kernels.loader import inline

if TYPE_CHECKING:
    import numpy as np


@inline
def compare(a: np.ndarray, i: int, b: np.ndarray, j: int, lanes: int) -> int:
    """Return -1, 0 or 1 as the first `lanes` lanes of row i of `a` are before, equal to or after those of row j of `b`."""
    for c in range(lanes):
        x = a[i, c]
        y = b[j, c]
        if x != y:
            return -1 if x < y else 1
    return 0


@inline
def same(a: np.ndarray, i: int, b: np.ndarray, j: int, lanes: int) -> bool:
    """Say whether the first `lanes` lanes of two rows are equal."""
    for c in range(lanes):  # noqa: SIM110 - compiled code has no generators
        if a[i, c] != b[j, c]:
            return False
    return True


@inline
def seek(a: np.ndarray, start: int, end: int, b: np.ndarray, j: int, lanes: int) -> int:
    """Return the first row of a[start:end], sorted, that is not before row j of `b` by its first `lanes` lanes.

    Gallops: doubles its step until it is past, then halves. A near row is found in a few comparisons.
    """
    step = 1
    low = start
    high = start
    while high < end and compare(a, high, b, j, lanes) < 0:
        low = high + 1
        high += step
        step += step
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if compare(a, middle, b, j, lanes) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def group_end(a: np.ndarray, start: int, end: int, lanes: int) -> int:
    """Return the end of the run of rows of a[start:end] that equal row `start` in their first `lanes` lanes."""
    stop = start + 1
    while stop < end and same(a, stop, a, start, lanes):
        stop += 1
    return stop


@inline
def copy_row(a: np.ndarray, i: int, out: np.ndarray, o: int) -> None:
    """Copy a row between matrices of one width."""
    for c in range(a.shape[1]):
        out[o, c] = a[i, c]


@inline
def copy_rows(a: np.ndarray, start: int, end: int, out: np.ndarray, o: int) -> None:
    """Copy adjacent rows between matrices of one width; where they overlap in one matrix, only downwards."""
    for i in range(start, end):
        for c in range(a.shape[1]):
            out[o + i - start, c] = a[i, c]


@inline
def sum_overflows(x: int, y: int, total: int) -> bool:
    """Say whether `total`, the wrapped sum of x and y, is wrong: both have the sign that it has not."""
    return ((x ^ total) & (y ^ total)) < 0


@inline
def product_overflows(x: int, y: int, product: int) -> bool:
    """Say whether `product`, the wrapped product of x and y, is wrong."""
    if -2147483648 <= x <= 2147483647 and -2147483648 <= y <= 2147483647:
        return False
    if x == 0 or y == 0:
        return False
    # The smallest integer has no positive twin: its division by -1 would trap.
    if x == -1:
        return y == product
    if y == -1:
        return x == product
    return product // y != x or product % y != 0
