"""The kernel of operators that read only multiplicities: the counts of records at each instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import matrix_of
from ddcli.engine.kernels.reduce_rows import OVERFLOW, place
from ddcli.engine.kernels.reduce_times import not_after
from ddcli.engine.kernels.rows import sum_overflows

if TYPE_CHECKING:
    import numpy as np


@kernel("LMiiVMVV")
def count_at(
    sources: list[np.ndarray],
    bounds: np.ndarray,
    nk: int,
    nt: int,
    first: np.ndarray,
    times: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
) -> int:
    """Accumulate the records' counts at each instance: without the last source (the batch) in `before`, with it in `after`.

    Both have a lane an instance, all zero. One time lane takes one walk: the rows are placed, then summed up.
    Returns 0 or OVERFLOW.
    """
    batch = len(sources) - 1
    for g in range(bounds.shape[0]):
        for s in range(len(sources)):
            m = matrix_of(sources, s)
            last = m.shape[1] - 1
            counts = after if s == batch else before
            for r in range(bounds[g, 2 * s], bounds[g, 2 * s + 1]):
                i = first[g]
                until = first[g + 1]
                if nt == 1:
                    i = place(times, i, until, m[r, nk])
                    until = i + 1
                while i < until:
                    if nt == 1 or not_after(m, r, nk, times, i, 0, nt):
                        if sum_overflows(counts[i], m[r, last]):
                            return OVERFLOW
                        counts[i] += m[r, last]
                    i += 1
        for i in range(first[g], first[g + 1]):
            if nt == 1 and i > first[g]:
                if sum_overflows(before[i - 1], before[i]):
                    return OVERFLOW
                before[i] = before[i - 1] + before[i]
                if sum_overflows(after[i - 1], after[i]):
                    return OVERFLOW
                after[i] = after[i - 1] + after[i]
        for i in range(first[g], first[g + 1]):
            if sum_overflows(before[i], after[i]):
                return OVERFLOW
            after[i] = before[i] + after[i]
    return 0
