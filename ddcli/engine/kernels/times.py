"""Advance times: make equal what no reader at or after a frontier can tell apart."""

from __future__ import annotations

import numpy as np

from ddcli.engine.kernels.errors import overflow
from ddcli.engine.kernels.loader import kernel
from ddcli.engine.kernels.rows import copy_row, same, sum_overflows
from ddcli.engine.kernels.sorting import consolidate


@kernel("MVM")
def advance_one(m: np.ndarray, since: np.ndarray, out: np.ndarray) -> int:
    """Advance consolidated rows of one time lane, consolidated; gives their number, or -1 - row for one that overflows.

    The largest of a time and a bound is monotone in the time, so the rows stay sorted. The row added to is then out[0].
    """
    d = m.shape[1] - 1
    bound = since[0]
    o = 0
    for i in range(m.shape[0]):
        time = max(m[i, d - 1], bound)
        if o > 0 and out[o - 1, d - 1] == time and same(out, o - 1, m, i, d - 1):
            total = out[o - 1, d] + m[i, d]
            if sum_overflows(out[o - 1, d], m[i, d], total):
                copy_row(out, o - 1, out, 0)
                return -1 - i
            out[o - 1, d] = total
        else:
            if o > 0 and out[o - 1, d] == 0:
                o -= 1
            copy_row(m, i, out, o)
            out[o, d - 1] = time
            o += 1
    if o > 0 and out[o - 1, d] == 0:
        o -= 1
    return o


@kernel("MV")
def advanced_already(m: np.ndarray, since: np.ndarray) -> int:
    """Say whether no time would change."""
    first = m.shape[1] - 1 - since.size
    for c in range(since.size):
        for i in range(m.shape[0]):
            if m[i, first + c] < since[c]:
                return 0
    return 1


@kernel("MiV")
def all_hold(m: np.ndarray, at: int, values: np.ndarray) -> int:
    """Say whether every row has these values from lane `at` on."""
    for i in range(m.shape[0]):
        for c in range(values.size):
            if m[i, at + c] != values[c]:
                return 0
    return 1


def rounds_equal(m: np.ndarray, at: int, rounds: tuple[int, ...]) -> bool:
    """Say whether every row has the values `rounds` in the lanes from `at` on; stops at the first that has not.

    >>> rounds_equal(np.array([[7, 3, 1], [8, 3, 1]]), 1, (3,))
    True
    """
    if not 0 <= at <= at + len(rounds) <= m.shape[1]:
        raise ValueError(f"lanes {at} to {at + len(rounds)} of a matrix of {m.shape[1]}")
    return all_hold(m, at, np.array(rounds, np.int64)) == 1


def advance(m: np.ndarray, since: tuple[int, ...], nt: int, *, owned: bool = False) -> np.ndarray:
    """Return consolidated rows at the lattice join of their `nt` times with `since`, consolidated. Raises DiffOverflow.

    Gives `m` itself where that changes no time. `owned` says that nobody reads `m` any more: with one time lane the result is
    then written over it, which spares as much fresh memory.

    >>> advance(np.array([[7, 1, 1], [7, 2, -1], [8, 1, 1]]), (5,), 1).tolist()
    [[8, 5, 1]]
    """
    if len(since) != nt:
        raise ValueError(f"{len(since)} coordinates for {nt} time lanes")
    bound = np.array(since, np.int64)
    if advanced_already(m, bound):
        return m
    if nt == 1:
        # In place a row is read before it is written over: no more rows are written than have been read.
        out = m if owned else np.empty((m.shape[0], m.shape[1]), np.int64)
        count = advance_one(m, bound, out)
        if count < 0:
            raise overflow("+", out[0], m[-1 - count])
        return out[:count] if 2 * count >= out.shape[0] else out[:count].copy()
    # From two coordinates on, rows can change their order.
    joined = m.copy()
    times = joined[:, -1 - nt : -1]
    np.maximum(times, bound, out=times)
    return consolidate(joined)
