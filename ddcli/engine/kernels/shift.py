"""Move updates to later times: to the interval in which a record exists, and in loops to the round in which it begins to."""

from __future__ import annotations

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import DiffOverflow
from ddcli.engine.kernels.rows import SMALLEST

OVERFLOW = -1


@kernel("MiiiM")
def shift_rows(m: np.ndarray, nt: int, lower: int, upper: int, out: np.ndarray) -> int:
    """Write the insertion and the retraction of each row [kept | from, if `lower` | until, if `upper` | times | diff]; return the number of rows written.

    Only the first time moves. Returns OVERFLOW where a diff has no negation; out[0] is then the row.
    """
    d = m.shape[1] - 1
    data = d - nt
    kept = data - lower - upper
    o = 0
    for i in range(m.shape[0]):
        begin = m[i, data]
        end = begin
        if lower:
            begin = max(begin, m[i, kept])
        if upper:
            end = max(end, m[i, data - 1])
            if begin >= end:
                continue
        for leaves in range(1 + upper):
            for c in range(kept):
                out[o, c] = m[i, c]
            out[o, kept] = end if leaves else begin
            for c in range(1, nt):
                out[o, kept + c] = m[i, data + c]
            out[o, kept + nt] = m[i, d]
            o += 1
        if upper:
            if m[i, d] == SMALLEST:
                return OVERFLOW
            out[o - 1, kept + nt] = -m[i, d]
    return o


@kernel("MiM")
def enter_rows(m: np.ndarray, nt: int, out: np.ndarray) -> int:
    """Copy rows without their last data lane, with which the last time is joined."""
    at = m.shape[1] - nt - 2
    last = out.shape[1] - 2
    for i in range(m.shape[0]):
        for c in range(at):
            out[i, c] = m[i, c]
        for c in range(at, out.shape[1]):
            out[i, c] = m[i, c + 1]
        out[i, last] = max(out[i, last], m[i, at])
    return 0


@kernel("MiM")
def raise_lanes(m: np.ndarray, at: int, floor: np.ndarray) -> int:
    """Raise the lanes from `at` on to those of `floor` where they are less."""
    for i in range(m.shape[0]):
        for c in range(floor.shape[1]):
            m[i, at + c] = max(m[i, at + c], floor[i, c])
    return 0


def enter_at(m: np.ndarray, nt: int) -> np.ndarray:
    """Return updates [data | round | nt times | diff] without the round, the last time at or after it.

    >>> enter_at(np.array([[7, 3, 5, 0, 1]]), 2).tolist()
    [[7, 5, 3, 1]]
    """
    if m.shape[1] < nt + 2 or nt < 1:
        raise ValueError(f"{m.shape[1]} lanes for a round and {nt} times")
    out = np.empty((m.shape[0], m.shape[1] - 1), np.int64)
    enter_rows(m, nt, out)
    return out


def join_times(m: np.ndarray, at: int, times: np.ndarray) -> None:
    """Join, in place, the times in the lanes from `at` on with `times`, a row each."""
    if len(m) != len(times) or not 0 <= at <= at + times.shape[1] <= m.shape[1]:
        raise ValueError(f"{times.shape} times for lane {at} of {m.shape}")
    raise_lanes(m, at, times)


def shift(m: np.ndarray, nt: int, *, lower: bool, upper: bool) -> np.ndarray:
    """Return updates by which each row's record exists from one time on until another.

    `m` is [data | from | until | nt times | diff], where `from` is missing without `lower` and `until` without `upper`. The result
    is [data | times | diff]: the diff at the lattice join of the first time with `from`, and its negation at that with `until`;
    neither where the first join is not before the second. Later coordinates stay. Raises DiffOverflow.

    >>> shift(np.array([[7, 3, 9, 5, 1], [8, 3, 4, 5, 1]]), 1, lower=True, upper=True).tolist()
    [[7, 5, 1], [7, 9, -1]]
    """
    bounds = lower + upper
    if m.shape[1] < bounds + nt + 1 or nt < 1:
        raise ValueError(f"{m.shape[1]} lanes for {bounds} bounds and {nt} times")
    out = np.empty((m.shape[0] * (1 + upper), m.shape[1] - bounds), np.int64)
    rows = shift_rows(m, nt, int(lower), int(upper), out)
    if rows < 0:
        raise DiffOverflow("a diff left 64 bits when its record was to leave at the end of a temporal filter")
    return out[:rows] if 2 * rows >= out.shape[0] else out[:rows].copy()
