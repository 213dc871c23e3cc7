"""The kernels of as-of joins: the nearest right rows, and the left rows between a right one and the next.

The rows of a group are sorted by [key | side | order | ...]: those of one side are together, in the order that is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import matrix_of
from ddcli.engine.kernels.neighbours import (
    count_copies,
    first_from,
    first_not_after,
    last_not_after,
    next_source,
)
from ddcli.engine.kernels.reduce_rows import OVERFLOW
from ddcli.engine.kernels.reduce_times import NO_ROOM, compare_at
from ddcli.engine.kernels.rows import SMALLEST

if TYPE_CHECKING:
    import numpy as np


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
    """Write the right rows that are nearest to places as [probe | value], those of a probe from the last to the first.

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
            places[s] = first_from(
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
            places[s] = first_from(
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
            i = first_from(m, lefts[c, 2 * s], lefts[c, 2 * s + 1], nk + 1, changes, c, 0, lanes, strict)
            end = lefts[c, 2 * s + 1]
            if best >= 0:
                end = first_from(m, i, end, nk + 1, matrix_of(sources, best), row, nk + 1, lanes, strict)
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
