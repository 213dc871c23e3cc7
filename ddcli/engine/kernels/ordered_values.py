"""Kernels that look at a group's values in order: the first k of them at each instance, and how many there are.

The sources of a group are merged lazily, value by value, so that the first of a large group is found without
reading the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.reduce_rows import OVERFLOW, place
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.engine.kernels.rows import compare_at, same, sum_overflows

if TYPE_CHECKING:
    import numpy as np

# Rows of the scratch matrix `cursor`, a column a source: the rest of the group there, and the run of the current value.
LEFT = 0
RIGHT = 1
RUN = 2
RUN_END = 3


@inline
def find_open(following: np.ndarray, i: int) -> int:
    """Return the first instance at or after i that still wants values, by union-find with path halving."""
    while following[i] != i:
        following[i] = following[following[i]]
        i = following[i]
    return i


@inline
def next_value(sources: list[np.ndarray], cursor: np.ndarray, nk: int, nv: int, backwards: int) -> int:
    """Move the least remaining value (the greatest, if `backwards`) of all sources into their runs.

    Returns a source that has it, or -1 where no value is left.
    """
    best = -1
    at = 0
    for s in range(len(sources)):
        if cursor[LEFT, s] >= cursor[RIGHT, s]:
            continue
        row = cursor[RIGHT, s] - 1 if backwards else cursor[LEFT, s]
        if best >= 0:
            order = compare_at(matrix_of(sources, s), row, nk, matrix_of(sources, best), at, nk, nv)
            if order == 0 or (order > 0) != (backwards != 0):
                continue
        best = s
        at = row
    if best < 0:
        return -1
    model = matrix_of(sources, best)
    for s in range(len(sources)):
        m = matrix_of(sources, s)
        if backwards:
            end = cursor[RIGHT, s]
            start = end
            while start > cursor[LEFT, s] and compare_at(m, start - 1, nk, model, at, nk, nv) == 0:
                start -= 1
            cursor[RIGHT, s] = start
        else:
            start = cursor[LEFT, s]
            end = start
            while end < cursor[RIGHT, s] and compare_at(m, end, nk, model, at, nk, nv) == 0:
                end += 1
            cursor[LEFT, s] = end
        cursor[RUN, s] = start
        cursor[RUN_END, s] = end
    return best


@inline
def lane_in_run(sources: list[np.ndarray], cursor: np.ndarray, s: int, lane: int) -> int:
    """Return a lane of the next row in the run of a source."""
    return matrix_of(sources, s)[cursor[RUN, s], lane]  # type: ignore[no-any-return]


@inline
def next_in_run(sources: list[np.ndarray], cursor: np.ndarray, at: int) -> int:
    """Return the source whose run continues with the earliest time (lane `at`), or -1 at the end of all runs."""
    best = -1
    time = 0
    for s in range(len(sources)):
        if cursor[RUN, s] < cursor[RUN_END, s]:
            here = lane_in_run(sources, cursor, s, at)
            if best < 0 or here < time:
                best = s
                time = here
    return best


@inline
def presence(count: int, diff: int) -> int:
    """Return 1 where a value whose count changes by `diff` comes into existence, -1 where it ceases to exist, else 0."""
    if count == 0:
        return 1
    return -1 if count + diff == 0 else 0


@inline
def rewind(cursor: np.ndarray, bounds: np.ndarray, g: int) -> None:
    """Point every source's cursor at the whole of group g."""
    for s in range(cursor.shape[1]):
        cursor[LEFT, s] = bounds[g, 2 * s]
        cursor[RIGHT, s] = bounds[g, 2 * s + 1]


@inline
def skip_nulls(sources: list[np.ndarray], cursor: np.ndarray, lane: int, null: int) -> None:
    """Cut the nulls off the end of each source's part of the group, whose first value lane is `lane`."""
    for s in range(cursor.shape[1]):
        m = matrix_of(sources, s)
        low = cursor[LEFT, s]
        high = cursor[RIGHT, s]
        while low < high:
            middle = (low + high) >> 1
            if m[middle, lane] < null:
                low = middle + 1
            else:
                high = middle
        cursor[RIGHT, s] = low


@kernel("LMiiVMiiiiiVVMVMiVM")
def first_values(
    sources: list[np.ndarray],
    bounds: np.ndarray,
    nk: int,
    nv: int,
    first: np.ndarray,
    times: np.ndarray,
    k: int,
    backwards: int,
    deciding: int,
    null_lane: int,
    null: int,
    take: np.ndarray,
    nothing: np.ndarray,
    scratch: np.ndarray,
    present: np.ndarray,
    cursor: np.ndarray,
    lane: int,
    tied: np.ndarray,
    out: np.ndarray,
) -> int:
    """Find the first k records (the last, if `backwards`) of each instance's group, counting multiplicities.

    Candidates are records [value lanes] with a positive count whose lane `null_lane` (-1: none) does not hold `null`.
    Values are walked in order; each paints the instances at which its count is positive and that still want records,
    and the walk ends when none does: a change in a large group costs only the search for its new first record.

    Times are one lane, at nk + nv. `scratch` is 2 rows of a lane an instance and one more, `cursor` 4 rows of one lane a
    source. If `lane` is -1, `out` receives rows [instance | lanes in `take` (absolute) | count], group by group.
    Otherwise, for a k of 1, the lanes of instance i are written to its row i from `lane` on, and `present` is 1 for the instances that have
    a record. An instance without one whose group is not empty has the lanes `nothing`, unless there are no such lanes.

    The first `deciding` value lanes decide which of two records comes first; the order by the others is not to be relied on. If
    these are fewer than `nv`, `tied` receives 1 for each group where a tie matters, else 0: no rows of such a group are written.
    Returns how many records were found, NO_ROOM, or OVERFLOW.
    """
    o = 0
    at = nk + nv
    following = scratch[0]
    wanted = scratch[1]
    for g in range(first.shape[0] - 1):
        for i in range(first[g], first[g + 1]):
            following[i] = i
            wanted[i] = k
            if lane >= 0:
                present[i] = 0
        end = first[g + 1]
        unpainted = end - first[g]
        if unpainted == 0:
            continue
        following[end] = end  # a sentinel: the next group, if any, sets it anew
        rewind(cursor, bounds, g)
        if backwards and null_lane == nk:
            skip_nulls(sources, cursor, nk, null)
        # Records that tie follow each other. Their order matters if one is taken and another is not.
        begun = o
        ties = 0
        alike = 0
        closed = 0
        before = -1
        before_row = 0
        while unpainted > 0:
            b = next_value(sources, cursor, nk, nv, backwards)
            if b < 0:
                break
            model = matrix_of(sources, b)
            row = cursor[RUN, b]
            if null_lane >= 0 and model[row, null_lane] == null:
                if null_lane == nk and not backwards:
                    break
                continue
            if deciding < nv:
                alike = 0
                if (
                    before >= 0
                    and compare_at(matrix_of(sources, before), before_row, nk, model, row, nk, deciding) == 0
                ):
                    alike = 1
                    ties |= closed
                closed &= alike
                before = b
                before_row = row
            count = 0
            s = b if len(sources) == 1 else next_in_run(sources, cursor, at)
            while s >= 0:
                begin = place(times, first[g], end, lane_in_run(sources, cursor, s, at))
                diff = lane_in_run(
                    sources, cursor, s, matrix_of(sources, s).shape[1] - 1
                )  # there may be rounds behind the time
                if sum_overflows(count, diff):
                    return OVERFLOW
                count += diff
                cursor[RUN, s] += 1
                s = next_in_run(sources, cursor, at)
                if count <= 0:
                    continue
                until = end
                if s >= 0:
                    until = place(times, first[g], end, lane_in_run(sources, cursor, s, at))
                if until == begin:
                    continue
                i = find_open(following, begin)
                while i < until:
                    if o == out.shape[0]:
                        return NO_ROOM
                    some = min(count, wanted[i])
                    if lane >= 0:
                        for c in range(take.shape[0]):
                            out[i, lane + c] = model[row, take[c]]
                        present[i] = 1
                    else:
                        out[o, 0] = i
                        for c in range(take.shape[0]):
                            out[o, 1 + c] = model[row, take[c]]
                        out[o, 1 + take.shape[0]] = some
                    o += 1
                    wanted[i] -= some
                    if wanted[i] == 0:
                        following[i] = i + 1
                        unpainted -= 1
                        closed = 1
                        if alike and some < count:
                            ties = 1
                    i = find_open(following, i + 1)
        if deciding < nv:
            if closed and not ties:
                b = next_value(sources, cursor, nk, nv, backwards)
                if b >= 0:
                    model = matrix_of(sources, b)
                    row = cursor[RUN, b]
                    if compare_at(matrix_of(sources, before), before_row, nk, model, row, nk, deciding) == 0:
                        ties = 1
            if ties:
                o = begun
            tied[g] = ties
        if unpainted == 0 or nothing.size == 0:
            continue
        # Some instance has no candidate: only then must all of the group be read, to distinguish an empty group from
        # one with nulls or negative counts alone. `wanted` now counts the records that come and go.
        for i in range(first[g], end):
            if present[i] == 0:
                for c in range(nothing.size):
                    out[i, lane + c] = nothing[c]
        for i in range(first[g], end):
            wanted[i] = 0
        rewind(cursor, bounds, g)
        while next_value(sources, cursor, nk, nv, 0) >= 0:
            count = 0
            s = next_in_run(sources, cursor, at)
            while s >= 0:
                begin = place(times, first[g], end, lane_in_run(sources, cursor, s, at))
                diff = lane_in_run(
                    sources, cursor, s, matrix_of(sources, s).shape[1] - 1
                )  # there may be rounds behind the time
                if sum_overflows(count, diff):
                    return OVERFLOW
                wanted[begin] += presence(count, diff)
                count += diff
                cursor[RUN, s] += 1
                s = next_in_run(sources, cursor, at)
        some = 0
        for i in range(first[g], end):
            some += wanted[i]
            if some > 0:
                present[i] = 1
    return o


@kernel("MViiiVV")
def count_values(
    m: np.ndarray, rows: np.ndarray, nv: int, null_lane: int, null: int, first: np.ndarray, out: np.ndarray
) -> int:
    """Count the distinct values with a non-zero count at each instance, from sorted rows [group | value | instance | diff].

    `out` must be all zero. Values whose lane `null_lane` (-1: none) holds `null` are left out. Returns 0 or OVERFLOW.
    """
    for g in range(rows.shape[0] - 1):
        r = rows[g]
        while r < rows[g + 1]:
            begin = r
            count = 0
            while r < rows[g + 1] and same(m, r, m, begin, 1 + nv):
                diff = m[r, 2 + nv]
                if sum_overflows(count, diff):
                    return OVERFLOW
                if null_lane < 0 or m[begin, null_lane] != null:
                    out[m[r, 1 + nv]] += presence(count, diff)
                count += diff
                r += 1
        for i in range(first[g] + 1, first[g + 1]):
            out[i] += out[i - 1]
    return 0
