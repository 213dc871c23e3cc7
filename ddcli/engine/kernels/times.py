"""Move the times of updates: advance them to a frontier, or to the time at which a record begins to exist.

Advanced times are made equal where no reader at or after the frontier can distinguish them. A record exists in an interval, and in loops from a round on.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import DiffOverflow, inline, overflow
from ddcli.engine.kernels.gather import take
from ddcli.engine.kernels.rows import SMALLEST, compare_at, copy_row, same, sum_overflows
from ddcli.engine.kernels.sort import fitted
from ddcli.engine.kernels.value_pairs import consolidate_span

OVERFLOW: Final = -1
UNCHANGED: Final = -2


@inline
def advanced_already(m: np.ndarray, since: np.ndarray, nt: int) -> bool:
    """Return whether no time would change."""
    first = m.shape[1] - 1 - nt
    for c in range(since.size):
        for i in range(m.shape[0]):
            if m[i, first + c] < since[c]:
                return False
    return True


@kernel("MViM")
def advance_rows(m: np.ndarray, since: np.ndarray, nt: int, out: np.ndarray) -> int:
    """Advance the first since.size of the `nt` times of consolidated rows, consolidated; return the number of rows written.

    `out` may be `m`: writes are never ahead of reads. Rows of equal data stay together, and they
    mostly stay in order too: only a run that does not is sorted. Returns UNCHANGED if there is nothing to do, and OVERFLOW
    after writing the two rows that can't be added to the beginning of `out`.
    """
    if advanced_already(m, since, nt):
        return UNCHANGED
    d = m.shape[1] - 1
    data = d - nt
    start = 0  # of the rows with the same data as the row at hand
    o = 0
    disordered = False
    for i in range(m.shape[0]):
        if o > start and not same(out, start, m, i, data):
            o = consolidate_span(out, start, o, data) if disordered else o - (out[o - 1, d] == 0)
            if o < 0:
                break
            start = o
            disordered = False
        copy_row(m, i, out, o)
        for c in range(since.size):
            out[o, data + c] = max(out[o, data + c], since[c])
        order = -1 if o == start else compare_at(out, o - 1, data, out, o, data, nt)
        if order != 0 and o > start and out[o - 1, d] == 0:
            copy_row(out, o, out, o - 1)
            o -= 1
            order = -1 if o == start else compare_at(out, o - 1, data, out, o, data, nt)
        if order == 0:
            total = out[o - 1, d] + out[o, d]
            if sum_overflows(out[o - 1, d], out[o, d]):
                start = o - 1
                o = OVERFLOW
                break
            out[o - 1, d] = total
        else:
            disordered = disordered or order > 0
            o += 1
    if o > start:
        o = consolidate_span(out, start, o, data) if disordered else o - (out[o - 1, d] == 0)
    if o < 0:
        copy_row(out, start, out, 0)
        copy_row(out, start + 1, out, 1)
    return o


def advance(
    m: np.ndarray, since: tuple[int, ...], nt: int, *, owned: bool = False, room: np.ndarray | None = None
) -> np.ndarray:
    """Return consolidated rows at the lattice join of their `nt` times with `since`, consolidated. Raises DiffOverflow.

    `since` may be shorter than a time: later coordinates (rounds of loops) stay as they are. To advance to a frontier is to advance
    to the meet of its elements, as long as coordinates are ordered totally. Returns `m` itself where no time changes. An
    `owned` matrix has no other reader: the result overwrites it, which spares as much fresh memory. Else it may be written to
    `room`, a matrix of as many rows or more, by a caller that is done with one result before it asks for the next.

    >>> advance(np.array([[7, 1, 1], [7, 2, -1], [8, 1, 1]]), (5,), 1).tolist()
    [[8, 5, 1]]
    >>> advance(np.array([[7, 1, 3, 1], [7, 2, 0, 1]]), (5,), 2).tolist()
    [[7, 5, 0, 1], [7, 5, 3, 1]]
    """
    if len(since) > nt:
        raise ValueError(f"{len(since)} coordinates for {nt} time lanes")
    bound = np.array(since, np.int64)
    fresh = m if owned else room
    out = np.empty((m.shape[0], m.shape[1]), np.int64) if fresh is None else fresh[: m.shape[0]]
    count = advance_rows(m, bound, nt, out)
    if count == UNCHANGED:
        return m
    if count < 0:
        raise overflow("+", out[0], out[1])
    return fitted(out, count)


def enter_at(m: np.ndarray, nt: int) -> np.ndarray:
    """Return updates [data | round | nt times | diff] without the round, the last time at or after it.

    >>> enter_at(np.array([[7, 3, 5, 0, 1]]), 2).tolist()
    [[7, 5, 3, 1]]
    """
    if m.shape[1] < nt + 2 or nt < 1:
        raise ValueError(f"{m.shape[1]} lanes for a round and {nt} times")
    round_lane = m.shape[1] - nt - 2
    out = np.delete(m, round_lane, axis=1)
    np.maximum(out[:, -2], m[:, round_lane], out=out[:, -2])
    return out


def join_times(m: np.ndarray, at: int, times: np.ndarray) -> None:
    """Join, in place, the times in the lanes from `at` on with `times`, a row each."""
    if len(m) != len(times) or not 0 <= at <= at + times.shape[1] <= m.shape[1]:
        raise ValueError(f"{times.shape} times for lane {at} of {m.shape}")
    lanes = m[:, at : at + times.shape[1]]
    np.maximum(lanes, times, out=lanes)


def shift(m: np.ndarray, nt: int, *, lower: bool, upper: bool) -> np.ndarray:
    """Return updates that make each row's record exist from one time on until another.

    `m` is [data | from | until | nt times | diff], where `from` is missing without `lower` and `until` without `upper`. The result
    is [data | times | diff]: the diff at the lattice join of the first time with `from`, and its negation at that with `until`;
    neither where the first join is not before the second. Later coordinates stay. Raises DiffOverflow.

    >>> shift(np.array([[7, 3, 9, 5, 1], [8, 3, 4, 5, 1]]), 1, lower=True, upper=True).tolist()
    [[7, 5, 1], [7, 9, -1]]
    """
    bounds = lower + upper
    if m.shape[1] < bounds + nt + 1 or nt < 1:
        raise ValueError(f"{m.shape[1]} lanes for {bounds} bounds and {nt} times")
    data = m.shape[1] - nt - 1
    kept = data - bounds
    rows = take(m, [*range(kept), *range(data, m.shape[1])])
    if lower:
        np.maximum(rows[:, kept], m[:, kept], out=rows[:, kept])
    if not upper:
        return rows
    ends = np.maximum(m[:, data], m[:, data - 1])
    some = rows[:, kept] < ends
    if (rows[some, -1] == SMALLEST).any():
        raise DiffOverflow("a diff left 64 bits when its record was to leave at the end of a temporal filter")
    out = np.repeat(rows[some], 2, axis=0)
    out[1::2, kept] = ends[some]
    out[1::2, -1] *= -1
    return out
