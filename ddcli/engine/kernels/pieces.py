"""Rows dealt into pieces by the leading bits of their lanes: all of a piece are before those of the next."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.rows import copy_row
from ddcli.engine.kernels.sort_rows import measure

TARGET: Final = 1 << 12  # rows a piece should have
DEAL_BITS: Final = 10  # most bits to deal by: more open destinations than that thrash the cache


@kernel("MVViVV")
def partition(
    m: np.ndarray, lanes: np.ndarray, plan: np.ndarray, bits: int, starts: np.ndarray, numbers: np.ndarray
) -> int:
    """Plan the dealing of rows into pieces by their leading `bits`: where each piece starts, and the rows of the largest.

    `plan` becomes, for each lane, its smallest value, then the bits to drop, then the bits to keep.
    """
    count = lanes.size
    low = plan[:count]
    measure(m, 0, m.shape[0], lanes, low, numbers)
    left = bits
    for c in range(count):
        keep = min(left, numbers[c])
        plan[count + c] = numbers[c] - keep
        plan[2 * count + c] = keep
        left -= keep
    for k in range(starts.size):
        starts[k] = 0
    for i in range(m.shape[0]):
        starts[piece_of(m, i, lanes, plan) + 1] += 1
    largest = 0
    for k in range(1, starts.size):
        largest = max(largest, starts[k])
        starts[k] += starts[k - 1]
    return largest


@inline
def piece_of(m: np.ndarray, i: int, lanes: np.ndarray, plan: np.ndarray) -> int:
    """Return the piece that a row is dealt to."""
    count = lanes.size
    piece: Any = 0
    for c in range(count):
        keep = plan[2 * count + c]
        if keep > 0:
            x = (np.uint64(m[i, lanes[c]]) - np.uint64(plan[c])) >> np.uint64(plan[count + c])
            piece = (piece << keep) | np.int64(x)
    return piece  # type: ignore[no-any-return]


@kernel("MVVVM")
def move_to_pieces(m: np.ndarray, lanes: np.ndarray, plan: np.ndarray, ends: np.ndarray, out: np.ndarray) -> int:
    """Move rows to their pieces in `out`, in order; `ends` holds the pieces' starts and becomes their ends."""
    for i in range(m.shape[0]):
        k = piece_of(m, i, lanes, plan)
        o = ends[k]
        ends[k] = o + 1
        copy_row(m, i, out, o)
    return 0


@kernel("MVVVV")
def move_in_place(m: np.ndarray, lanes: np.ndarray, plan: np.ndarray, heads: np.ndarray, pieces: np.ndarray) -> int:
    """Move rows to their pieces in place, in any order; `heads` holds the pieces' starts and becomes their ends."""
    for k in range(heads.size):
        while heads[k] < pieces[k + 1]:
            i = heads[k]
            p = piece_of(m, i, lanes, plan)
            o = heads[p]
            heads[p] = o + 1
            if p != k:
                for c in range(m.shape[1]):
                    x = m[i, c]
                    m[i, c] = m[o, c]
                    m[o, c] = x
    return 0


def plan_pieces(m: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the pieces begin into which many rows are dealt, with an end mark, and the plan of the dealing."""
    bits = bits_of_pieces(len(m))
    plan = np.empty(3 * lanes.size, np.int64)
    pieces = np.empty((1 << bits) + 1, np.int64)
    partition(m, lanes, plan, bits, pieces, np.empty(lanes.size, np.int64))
    return pieces, plan


def dealt_in_place(m: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Deal many rows into pieces where they lie; return where the pieces begin, with an end mark."""
    pieces, plan = plan_pieces(m, lanes)
    move_in_place(m, lanes, plan, pieces[:-1].copy(), pieces)
    return pieces


def bits_of_pieces(rows: int) -> int:
    """Return the number of leading bits by which so many rows are dealt into pieces."""
    return min((rows // TARGET).bit_length() + 1, DEAL_BITS)
