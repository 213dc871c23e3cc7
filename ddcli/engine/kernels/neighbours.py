"""Kernels that read the rows near a change, in order: for windows of few rows, and for as-of joins.

Of a window a partition's values lie in the window's order. From a change the kernel walks a fixed number of rows to either side, before and after each time: its cost does not depend
on the partition's size.

Of an as-of join the rows of a group are sorted by [key | side | order | ...]: the rows of one side are together, in the order that is compared. The kernels find the nearest right row of a left
one, and the left rows between a right one and the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline, matrix_of
from ddcli.engine.kernels.reduce_rows import OVERFLOW
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.engine.kernels.rows import SMALLEST, bisect_at, compare_at, sum_overflows

if TYPE_CHECKING:
    import numpy as np


NEAR: Final = 64
"""The rows of a block whose least time is known, so that a block of later rows is skipped at once; NEAR blocks form a larger block of the same kind."""


@inline
def next_source(
    sources: list[np.ndarray], bounds: np.ndarray, c: int, step: int, cursor: np.ndarray, nk: int, nv: int
) -> int:
    """Return the source with the next value, within bounds[c], or -1 where no source has a row left.

    The next value is the least of the rows from the cursors on where `step` is 1, the greatest of those before them where it is -1.
    """
    back = 1 if step < 0 else 0
    best = -1
    for s in range(len(sources)):
        r = cursor[s] - back
        if bounds[c, 2 * s] <= r < bounds[c, 2 * s + 1] and (
            best < 0
            or step * compare_at(matrix_of(sources, s), r, nk, matrix_of(sources, best), cursor[best] - back, nk, nv)
            < 0
        ):
            best = s
    return best


@inline
def first_not_after(m: np.ndarray, low: int, high: int, at: int, time: int, near: np.ndarray, far: np.ndarray) -> int:
    """Return the first of the rows [low, high) that is not later than a time, or `high`."""
    while low < high:
        if low % (NEAR * NEAR) == 0 and far[low // (NEAR * NEAR)] > time:
            low += NEAR * NEAR
        elif low % NEAR == 0 and near[low // NEAR] > time:
            low += NEAR
        elif m[low, at] > time:
            low += 1
        else:
            return low
    return high


@inline
def last_not_after(m: np.ndarray, low: int, high: int, at: int, time: int, near: np.ndarray, far: np.ndarray) -> int:
    """Return the end of the rows [low, high) without those at the end that are later than a time."""
    while low < high:
        if high % (NEAR * NEAR) == 0 and far[high // (NEAR * NEAR) - 1] > time:
            high -= NEAR * NEAR
        elif high % NEAR == 0 and near[high // NEAR - 1] > time:
            high -= NEAR
        elif m[high - 1, at] > time:
            high -= 1
        else:
            return high
    return low


@inline
def count_copies(
    sources: list[np.ndarray],
    bounds: np.ndarray,
    c: int,
    step: int,
    cursor: np.ndarray,
    model: np.ndarray,
    row: int,
    nk: int,
    nv: int,
    time: int,
    counts: np.ndarray,
) -> int:
    """Move the cursors past all rows with the value of a row of `model`, and sum their diffs: `counts` gets the sum before a time, and the sum up to it.

    Rows lie before the cursors where `step` is -1, and from them on where it is 1, within bounds[c]; all but the last source's are of earlier
    times. Returns OVERFLOW, or 0.
    """
    last = len(sources) - 1
    back = 1 if step < 0 else 0
    at = nk + nv
    counts[0] = 0
    counts[1] = 0
    for s in range(last + 1):
        m = matrix_of(sources, s)
        r = cursor[s] - back
        while bounds[c, 2 * s] <= r < bounds[c, 2 * s + 1] and compare_at(m, r, nk, model, row, nk, nv) == 0:
            diff = m[r, at + 1]
            if s < last or m[r, at] < time:
                if sum_overflows(counts[0], diff):
                    return OVERFLOW
                counts[0] += diff
            if s < last or m[r, at] <= time:
                if sum_overflows(counts[1], diff):
                    return OVERFLOW
                counts[1] += diff
            r += step
        cursor[s] = r + back
    return 0


@inline
def put_value(m: np.ndarray, r: int, nk: int, nv: int, earlier: int, until: int, out: np.ndarray, o: int) -> None:
    """Write the value of a row, and its counts before a time and up to it; not the first lane."""
    for lane in range(nv):
        out[o, 1 + lane] = m[r, nk + lane]
    out[o, 1 + nv] = earlier
    out[o, 2 + nv] = until


@kernel("LMMiiiiVVMVM")
def rows_around(
    sources: list[np.ndarray],
    bounds: np.ndarray,
    changes: np.ndarray,
    nk: int,
    nv: int,
    deciding: int,
    reach: int,
    near: np.ndarray,
    far: np.ndarray,
    cursor: np.ndarray,
    edges: np.ndarray,
    out: np.ndarray,
) -> int:
    """Write the rows around changes as [segment | value | count before | count after], in the order of the partition.

    `sources` are sorted by [key | value | time | diff], with one time lane. All but the last are history, whatever times they were
    advanced to; the last has the changes. Change c, a row [key | value | time] of `changes`, sorted by key,
    time and value, and distinct, has its key's rows in bounds[c]. Counts before are of earlier times, those after of the change's time too.

    A segment has changes of one key and time that are near each other, the rows between them, and `reach` more rows on each side, copies counted,
    both of the state before and of the state after; fewer only where the partition ends. Its number is that of its first change. The first
    `deciding` lanes of a value are its place in the order; where these are fewer than `nv`, a segment has whole runs of values with one place,
    beside `reach` others. Values without a positive count are left out. edges[c] is 1 where the partition ends before change c, 2 where it ends
    behind it, 3 where both. `cursor` has 3 rows of a lane a source, at least two. Returns the number of rows, NO_ROOM
    or OVERFLOW.
    """
    count = len(sources)
    last = count - 1
    low = cursor[0]
    high = cursor[1]
    counts = cursor[2]
    at = nk + nv
    o = 0
    c = 0
    segment = -1
    floor = -1  # the last row of the previous segment of the same key and time
    floor_source = 0
    while c < changes.shape[0]:
        time = changes[c, at]
        joined = 0
        if c > 0 and segment >= 0:
            joined = 1
            for lane in range(nk):
                if changes[c, lane] != changes[c - 1, lane]:
                    joined = 0
            if time != changes[c - 1, at]:
                joined = 0
        if joined == 0:
            floor = -1
        # Back from the change.
        for s in range(count):
            high[s] = bisect_at(
                matrix_of(sources, s), bounds[c, 2 * s], bounds[c, 2 * s + 1], nk, changes, c, nk, deciding, 0
            )
            low[s] = high[s]
        begun = o
        before = 0
        after = 0
        met = 0
        last_source = -1
        last_row = 0
        while True:
            high[last] = last_not_after(matrix_of(sources, last), bounds[c, 2 * last], high[last], at, time, near, far)
            best = next_source(sources, bounds, c, -1, high, nk, nv)
            if best < 0:
                edges[c] |= 1
                break
            model = matrix_of(sources, best)
            row = high[best] - 1
            if floor >= 0 and compare_at(model, row, nk, matrix_of(sources, floor_source), floor, nk, nv) <= 0:
                met = 1
                break
            if before >= reach and after >= reach:
                if deciding == nv or last_source < 0:
                    break
                if compare_at(model, row, nk, matrix_of(sources, last_source), last_row, nk, deciding) != 0:
                    break
            if count_copies(sources, bounds, c, -1, high, model, row, nk, nv, time, counts) == OVERFLOW:
                return OVERFLOW
            earlier = counts[0]
            until = counts[1]
            if earlier > 0 or until > 0:
                if o == out.shape[0]:
                    return NO_ROOM
                put_value(model, row, nk, nv, max(earlier, 0), max(until, 0), out, o)
                o += 1
                before = min(before + max(earlier, 0), reach)
                after = min(after + max(until, 0), reach)
                last_source = best
                last_row = row
        if met == 0 or segment < 0:
            segment = c
        i = begun
        j = o - 1
        while i < j:  # they were written from the last to the first
            for lane in range(1, out.shape[1]):
                word = out[i, lane]
                out[i, lane] = out[j, lane]
                out[j, lane] = word
            i += 1
            j -= 1
        # Forward from the change, past further changes on the way.
        before = 0
        after = 0
        last_source = -1
        here = c
        following = c
        while True:
            low[last] = first_not_after(
                matrix_of(sources, last), low[last], bounds[c, 2 * last + 1], at, time, near, far
            )
            best = next_source(sources, bounds, c, 1, low, nk, nv)
            if best < 0:
                # The partition ends here, so the changes of this key and time do too.
                edges[c] |= 2
                while following < changes.shape[0] and same_key_and_time(changes, following, c, nk, at):
                    following += 1
                break
            model = matrix_of(sources, best)
            row = low[best]
            changed = 0
            while (
                following < changes.shape[0]
                and same_key_and_time(changes, following, c, nk, at)
                and compare_at(changes, following, nk, model, row, nk, deciding) <= 0
            ):
                here = following
                following += 1
                changed = 1
            if changed == 0 and compare_at(changes, here, nk, model, row, nk, deciding) == 0:
                changed = 1
            if changed == 0 and before >= reach and after >= reach:
                if deciding == nv or last_source < 0:
                    break
                if compare_at(model, row, nk, matrix_of(sources, last_source), last_row, nk, deciding) != 0:
                    break
            if count_copies(sources, bounds, c, 1, low, model, row, nk, nv, time, counts) == OVERFLOW:
                return OVERFLOW
            earlier = counts[0]
            until = counts[1]
            floor = row
            floor_source = best
            if changed == 1:
                before = 0
                after = 0
                last_source = -1
            if earlier > 0 or until > 0:
                if o == out.shape[0]:
                    return NO_ROOM
                put_value(model, row, nk, nv, max(earlier, 0), max(until, 0), out, o)
                o += 1
                if changed == 0:
                    before = min(before + max(earlier, 0), reach)
                    after = min(after + max(until, 0), reach)
                    last_source = best
                    last_row = row
        for i in range(begun, o):
            out[i, 0] = segment
        c = following
    return o


@inline
def same_key_and_time(changes: np.ndarray, one: int, other: int, nk: int, at: int) -> bool:
    """Return whether two changes are of one key and time."""
    for lane in range(nk):
        if changes[one, lane] != changes[other, lane]:
            return False
    return bool(changes[one, at] == changes[other, at])


@kernel("LMMiiiVVMM")
def nearest(
    sources: list[np.ndarray],
    bounds: np.ndarray,
    probes: np.ndarray,
    nk: int,
    nv: int,
    lanes: int,
    near: np.ndarray,
    far: np.ndarray,
    cursor: np.ndarray,
    out: np.ndarray,
) -> int:
    """Write the right rows that are nearest to places as [probe | value], a probe's rows from the last to the first.

    `sources` are sorted by [key | value | time | diff], with one time lane, a value beginning with the side and `lanes` lanes of the
    order. All but the last count whatever their times; of the last, rows of a time not after the probe's. Probe p, a row [order | strict
    | time], has its key's right rows in bounds[p]. Nearest are those with the greatest order that is at the probe's or before it, or if
    it is strict before it, whose count is positive. `near` and `far` have the least time of each NEAR and NEAR * NEAR rows of the last source. `cursor`
    has 2 rows of a lane a source, at least two. Returns the number of rows, NO_ROOM or OVERFLOW.
    """
    places, counts = cursor[0], cursor[1]
    last = len(sources) - 1
    at = nk + nv
    o = 0
    for p in range(probes.shape[0]):
        time = probes[p, lanes + 1]
        for s in range(last + 1):
            least = 1 - probes[p, lanes]
            places[s] = bisect_at(
                matrix_of(sources, s), bounds[p, 2 * s], bounds[p, 2 * s + 1], nk + 1, probes, p, 0, lanes, least
            )
        begun = o
        while True:
            places[last] = last_not_after(
                matrix_of(sources, last), bounds[p, 2 * last], places[last], at, time, near, far
            )
            best = next_source(sources, bounds, p, -1, places, nk, nv)
            if best < 0:
                break
            model = matrix_of(sources, best)
            row = places[best] - 1
            if o > begun and compare_at(model, row, nk + 1, out, o - 1, 2, lanes) != 0:
                break
            if count_copies(sources, bounds, p, -1, places, model, row, nk, nv, time, counts) == OVERFLOW:
                return OVERFLOW
            if counts[1] > 0:
                if o == out.shape[0]:
                    return NO_ROOM
                out[o, 0] = p
                for lane in range(nv):
                    out[o, 1 + lane] = model[row, nk + lane]
                o += 1
    return o


@kernel("LMMMiiiiVVMM")
def met(
    sources: list[np.ndarray],
    rights: np.ndarray,
    lefts: np.ndarray,
    changes: np.ndarray,
    nk: int,
    nv: int,
    lanes: int,
    strict: int,
    near: np.ndarray,
    far: np.ndarray,
    cursor: np.ndarray,
    out: np.ndarray,
) -> int:
    """Write the left rows whose nearest right ones are, or were, those at a changed place, as [change | value | diff].

    `sources` are as for `nearest`. Change c, a row [order | time], has its key's right rows in rights[c] and its left ones in lefts[c].
    They are those between it and the next place with right rows, before the time or at it, and of times before the change's. The diff is that
    of each update: rows that cancel are not left out. Returns the number of rows, NO_ROOM, or OVERFLOW for a diff that can't be negated.
    """
    places, counts = cursor[0], cursor[1]
    last = len(sources) - 1
    at = nk + nv
    o = 0
    for c in range(changes.shape[0]):
        time = changes[c, lanes]
        for s in range(last + 1):
            places[s] = bisect_at(
                matrix_of(sources, s), rights[c, 2 * s], rights[c, 2 * s + 1], nk + 1, changes, c, 0, lanes, 1
            )
        best = -1
        row = 0
        while True:
            places[last] = first_not_after(
                matrix_of(sources, last), places[last], rights[c, 2 * last + 1], at, time, near, far
            )
            best = next_source(sources, rights, c, 1, places, nk, nv)
            if best < 0:
                break
            model = matrix_of(sources, best)
            row = places[best]
            if count_copies(sources, rights, c, 1, places, model, row, nk, nv, time, counts) == OVERFLOW:
                return OVERFLOW
            if counts[0] > 0 or counts[1] > 0:
                break
        for s in range(last + 1):
            m = matrix_of(sources, s)
            i = bisect_at(m, lefts[c, 2 * s], lefts[c, 2 * s + 1], nk + 1, changes, c, 0, lanes, strict)
            end = lefts[c, 2 * s + 1]
            if best >= 0:
                end = bisect_at(m, i, end, nk + 1, matrix_of(sources, best), row, nk + 1, lanes, strict)
            while i < end:
                if s == last:
                    i = first_not_after(m, i, end, at, time, near, far)
                    if i == end:
                        break
                if s < last or m[i, at] < time:
                    if o == out.shape[0]:
                        return NO_ROOM
                    if m[i, at + 1] == SMALLEST:
                        return OVERFLOW
                    out[o, 0] = c
                    for lane in range(nv):
                        out[o, 1 + lane] = m[i, nk + lane]
                    out[o, 1 + nv] = m[i, at + 1]
                    o += 1
                i += 1
    return o
