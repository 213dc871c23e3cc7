"""Lanes of rows as columns, and columns as lanes of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.jit.load import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

TURNED: Final = 128
"""Rows whose lanes are written elsewhere lane by lane, while they are in the processor's first cache."""


@kernel("MVM")
def turn_lanes(m: np.ndarray, lanes: np.ndarray, out: np.ndarray) -> int:
    """Copy the given lanes, each to a row of `out`; return -1 if a lane does not exist. Each row of `m` is brought into the cache once."""
    for c in range(lanes.size):
        if not 0 <= lanes[c] < m.shape[1]:
            return -1
    for start in range(0, m.shape[0], TURNED):
        end = min(start + TURNED, m.shape[0])
        for c in range(lanes.size):
            lane = lanes[c]
            for i in range(start, end):
                out[c, i] = m[i, lane]
    return 0


@kernel("MMVMiii")
def put_lanes(
    columns: np.ndarray, tail: np.ndarray, rows: np.ndarray, out: np.ndarray, at: int, first: int, count: int
) -> int:
    """Write `count` rows of `out`, from row `first` on, in the lanes from `at` on: the first values of each row of `columns`, then a row of `tail`.

    That is the row of the same number, or the one whose number is in `rows`, if there are some; nothing if `tail` has no lanes. Returns -1 if a row or lane
    does not exist.
    """
    width = columns.shape[0]
    lanes = tail.shape[1]
    picks = rows.shape[0] > 0
    if not (0 <= at <= out.shape[1] - width - lanes and 0 <= first <= out.shape[0] - count):
        return -1
    if not 0 <= count <= columns.shape[1] or (
        lanes > 0 and out.shape[0] != (rows.shape[0] if picks else tail.shape[0])
    ):
        return -1
    for start in range(0, count, TURNED):
        end = min(start + TURNED, count)
        for c in range(width):
            for i in range(start, end):
                out[first + i, at + c] = columns[c, i]
        if lanes == 0:
            continue
        for i in range(first + start, first + end):
            r = rows[i] if picks else i
            if not 0 <= r < tail.shape[0]:
                return -1
            for c in range(lanes):
                out[i, at + width + c] = tail[r, c]
    return 0


def turned(m: np.ndarray, lanes: Sequence[int]) -> np.ndarray:
    """Return the given lanes, each as a row of a matrix.

    >>> turned(np.array([[1, 2, 3], [4, 5, 6]]), [2, 0]).tolist()
    [[3, 6], [1, 4]]
    """
    out = np.empty((len(lanes), m.shape[0]), np.int64)
    if turn_lanes(m, np.array(lanes, np.int64), out) < 0:
        raise ValueError(f"lanes {list(lanes)} of a matrix of {m.shape[1]}")
    return out


def put_columns(
    columns: np.ndarray,
    out: np.ndarray,
    at: int,
    first: int,
    count: int,
    tail: np.ndarray | None = None,
    rows: np.ndarray | None = None,
) -> None:
    """Write `count` rows of `out`, from row `first` on, in the lanes from `at` on: the first values of each row of `columns`.

    Behind them come the lanes of a row of `tail`, which has as many rows as `out`; or `rows` has the numbers of the rows of `tail` to write.
    All lanes of a row are written while it is in the cache.

    >>> out = np.zeros((2, 4), np.int64)
    >>> put_columns(np.array([[5, 6, 0]]), out, 1, 0, 2, np.array([[1, 2], [3, 4], [7, 8]]), np.array([2, 0]))
    >>> out.tolist()
    [[0, 5, 7, 8], [0, 6, 1, 2]]
    """
    tail = np.empty((0, 0), np.int64) if tail is None else tail
    picked = np.empty(0, np.int64) if rows is None else np.ascontiguousarray(rows, np.int64)
    if put_lanes(columns, tail, picked, out, at, first, count) < 0:
        raise ValueError(
            f"columns of shape {columns.shape} and rows of {tail.shape} for lanes from {at} on of {out.shape}"
        )
