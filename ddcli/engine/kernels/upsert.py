"""The kernel of upserts: from a sequence of values of each key to the updates of the collection that they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.reduce_times import compare_at
from ddcli.engine.kernels.rows import compare, same

if TYPE_CHECKING:
    import numpy as np

# Lanes of an upsert behind its key and value.
PRESENT, ORDER, TIME, DIFF = range(4)


@inline
def put_update(m: np.ndarray, row: int, data: int, time: int, diff: int, out: np.ndarray, o: int) -> None:
    """Write a row's first `data` lanes with a time and a diff."""
    for c in range(data):
        out[o, c] = m[row, c]
    out[o, data] = time
    out[o, data + 1] = diff


@kernel("MMiiM")
def upsert_rows(m: np.ndarray, now: np.ndarray, nk: int, nv: int, out: np.ndarray) -> int:
    """Write the updates of each key's value, given `now`, rows [key | value | 1] of the keys' values before; return the number of rows written.

    `m` has rows [key | value | present | order | time | diff] in the order of key, time and precedence at one time: the last
    such row counts. Returns -1 - row for a row of `m` whose diff is not 1, or whose key has more than one value before.
    """
    n = m.shape[0]
    data = nk + nv
    o = 0
    j = 0
    i = 0
    while i < n:
        start = i
        while j < now.shape[0] and compare(now, j, m, i, nk) < 0:
            j += 1
        # The key's value: row `row` of `now` or of `m`, or none.
        is_old = j < now.shape[0] and same(now, j, m, i, nk)
        is_new = False
        row = j
        if is_old and (now[j, data] != 1 or (j + 1 < now.shape[0] and same(now, j + 1, m, i, nk))):
            return -1 - i
        while i < n and same(m, i, m, start, nk):
            time = m[i, data + TIME]
            if m[i, data + DIFF] != 1:
                return -1 - i
            i += 1
            if i < n and m[i, data + TIME] == time and same(m, i, m, start, nk):
                continue
            last = i - 1
            present = m[last, data + PRESENT] != 0
            if is_old:
                if present and compare_at(now, row, nk, m, last, nk, nv) == 0:
                    continue
                put_update(now, row, data, time, -1, out, o)
                o += 1
            elif is_new:
                if present and compare_at(m, row, nk, m, last, nk, nv) == 0:
                    continue
                put_update(m, row, data, time, -1, out, o)
                o += 1
            is_old = False
            is_new = present
            row = last
            if present:
                put_update(m, last, data, time, 1, out, o)
                o += 1
    return o
