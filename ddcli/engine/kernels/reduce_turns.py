"""Kernels for totally ordered time, where instances take turns: the record that one wants exists until the group's next instance.

An instance's record is inserted at its time and retracted at the next instance's; the output so far is retracted at the
first one's, or later if it came later. No accumulation is needed: want(t) is known whole for every instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.reduce_rows import OVERFLOW, place
from ddcli.engine.kernels.reduce_times import distinct_rows
from ddcli.engine.kernels.rows import SMALLEST, same
from ddcli.engine.kernels.value_pairs import consolidate_span

if TYPE_CHECKING:
    import numpy as np

SPAN: Final = 4096  # updates of a group up to which they are sorted at once; a sort of all is better at more


@kernel("VMLiMiLMiVM")
def later_times(
    first: np.ndarray,
    fresh: np.ndarray,
    inputs: list[np.ndarray],
    count: int,
    in_bounds: np.ndarray,
    in_at: int,
    outputs: list[np.ndarray],
    out_bounds: np.ndarray,
    out_at: int,
    closed: np.ndarray,
    times: np.ndarray,
) -> int:
    """Close each key's new times, rows first[g] to first[g + 1] of `fresh`, under lattice join with its history's.

    In total order those are the new times and the history's times after the first of them. The history's are in the first `count` of
    the inputs and in the outputs. `times` needs room for all.
    """
    groups = first.shape[0] - 1
    o = 0
    for g in range(groups):
        start = o
        closed[g] = start
        for i in range(first[g], first[g + 1]):
            times[o, 0] = fresh[i, 0]
            o += 1
        new = o
        if new == start:
            continue
        least = times[start, 0]
        for s in range(count):
            m = matrix_of(inputs, s)
            for r in range(in_bounds[g, 2 * s], in_bounds[g, 2 * s + 1]):
                if m[r, in_at] > least and m[r, in_at] != times[o - 1, 0]:
                    times[o, 0] = m[r, in_at]
                    o += 1
        for s in range(len(outputs)):
            m = matrix_of(outputs, s)
            for r in range(out_bounds[g, 2 * s], out_bounds[g, 2 * s + 1]):
                if m[r, out_at] > least and m[r, out_at] != times[o - 1, 0]:
                    times[o, 0] = m[r, out_at]
                    o += 1
        if o > new:
            o = distinct_rows(times, start, o)
    closed[groups] = o
    return o


@inline
def put_old(
    outputs: list[np.ndarray],
    bounds: np.ndarray,
    g: int,
    first: np.ndarray,
    times: np.ndarray,
    out: np.ndarray,
    o: int,
) -> int:
    """Retract the group's output so far, at its first instance or, if that is later, at its own time; return the row after, or OVERFLOW.

    Without an instance it stays. An output's diff is in the last lane; between its time and its diff there may be rounds.
    """
    if first[g] == first[g + 1]:
        return o
    d = out.shape[1] - 1
    for s in range(len(outputs)):
        m = matrix_of(outputs, s)
        diff = m.shape[1] - 1
        for r in range(bounds[g, 2 * s], bounds[g, 2 * s + 1]):
            if m[r, diff] == SMALLEST:
                return OVERFLOW
            for c in range(d - 1):
                out[o, c] = m[r, c]
            out[o, d - 1] = times[place(times, first[g], first[g + 1], m[r, d - 1]), 0]
            out[o, d] = -m[r, diff]
            o += 1
    return o


@inline
def put(
    keys: np.ndarray, g: int, m: np.ndarray, r: int, first: int, no: int, time: int, diff: int, out: np.ndarray, o: int
) -> int:
    """Write an update of a group's key and the `no` lanes from `first` of a row; return the row after."""
    nk = keys.shape[1]
    for c in range(nk):
        out[o, c] = keys[g, c]
    for c in range(no):
        out[o, nk + c] = m[r, first + c]
    out[o, nk + no] = time
    out[o, nk + no + 1] = diff
    return o + 1


@inline
def consolidate_few(out: np.ndarray, start: int, end: int, nk: int) -> int:
    """Sort and consolidate a group's updates, unless they are many; return the row after, or OVERFLOW."""
    return consolidate_span(out, start, end, nk) if 1 < end - start <= SPAN else end


@kernel("MVMMVLMM")
def take_turns(
    keys: np.ndarray,
    first: np.ndarray,
    times: np.ndarray,
    lanes: np.ndarray,
    present: np.ndarray,
    outputs: list[np.ndarray],
    bounds: np.ndarray,
    out: np.ndarray,
) -> int:
    """Subtract the output so far from one wanted record an instance: its row of `lanes`, if `present`.

    Writes [key | output | time | diff], sorted and consolidated but for groups of very many; `out` needs room for two rows an
    instance and the rows in `bounds`. Returns how many rows, or OVERFLOW.
    """
    nk = keys.shape[1]
    no = lanes.shape[1]
    o = 0
    for g in range(keys.shape[0]):
        start = o
        o = put_old(outputs, bounds, g, first, times, out, o)
        if o < 0:
            return OVERFLOW
        for i in range(first[g], first[g + 1]):
            before = i > first[g] and present[i - 1] != 0
            if before and present[i] != 0 and same(lanes, i, lanes, i - 1, no):
                continue
            if before:
                o = put(keys, g, lanes, i - 1, 0, no, times[i, 0], -1, out, o)
            if present[i] != 0:
                o = put(keys, g, lanes, i, 0, no, times[i, 0], 1, out, o)
        o = consolidate_few(out, start, o, nk)
        if o < 0:
            return OVERFLOW
    return o


@kernel("MVMMLMM")
def take_turns_several(
    keys: np.ndarray,
    first: np.ndarray,
    times: np.ndarray,
    want: np.ndarray,
    outputs: list[np.ndarray],
    bounds: np.ndarray,
    out: np.ndarray,
) -> int:
    """Do as `take_turns` does for any number of wanted records: rows [instance | output | count], group by group.

    `out` needs room for two rows of each of them and the rows in `bounds`.
    """
    nk = keys.shape[1]
    no = want.shape[1] - 2
    o = 0
    w = 0
    for g in range(keys.shape[0]):
        start = o
        high = first[g + 1]
        o = put_old(outputs, bounds, g, first, times, out, o)
        if o < 0:
            return OVERFLOW
        while w < want.shape[0] and want[w, 0] < high:
            i = want[w, 0]
            count = want[w, 1 + no]
            o = put(keys, g, want, w, 1, no, times[i, 0], count, out, o)
            if i + 1 < high:
                if count == SMALLEST:
                    return OVERFLOW
                o = put(keys, g, want, w, 1, no, times[i + 1, 0], -count, out, o)
            w += 1
        o = consolidate_few(out, start, o, nk)
        if o < 0:
            return OVERFLOW
    return o
