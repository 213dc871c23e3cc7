"""Deal rows to shards: one pass to count, one to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.kernels.loader import kernel, matrix_of
from ddcli.engine.kernels.rows import copy_row
from ddcli.engine.kernels.shards import SEED, mixed, shard_from

if TYPE_CHECKING:
    from collections.abc import Sequence


@kernel("MVVH")
def count_shards(m: np.ndarray, lanes: np.ndarray, counts: np.ndarray, out: np.ndarray) -> int:
    """Write the shard of each row by some of its lanes, and count each shard's rows in `counts`, all zero before."""
    for i in range(m.shape[0]):
        h = SEED
        for c in range(lanes.size):
            h = mixed(h, m[i, lanes[c]])
        shard = shard_from(h, counts.size)
        out[i] = np.uint32(shard)
        counts[shard] += 1
    return 0


@kernel("MHVL")
def move_to_shards(m: np.ndarray, shards: np.ndarray, ends: np.ndarray, parts: list[np.ndarray]) -> int:
    """Copy each row to its shard's matrix, in order; `ends` counts the rows there, all zero before."""
    for i in range(m.shape[0]):
        shard: Any = np.int64(shards[i])
        copy_row(m, i, matrix_of(parts, shard), ends[shard])
        ends[shard] += 1
    return 0


def partition(m: np.ndarray, lanes: Sequence[int], shards: int) -> list[np.ndarray]:
    """Return the rows of each shard, in their order, as matrices of their own; a row's shard is that of its `lanes` as a key.

    Gives `m` itself where one shard has all of it.

    >>> [part.tolist() for part in partition(np.array([[7, 0, 1], [8, 5, 1], [9, 0, 1]]), [1], 2)]
    [[[8, 5, 1]], [[7, 0, 1], [9, 0, 1]]]
    """
    if not 0 < shards < 1 << 31:
        raise ValueError(f"{shards} shards")
    if lanes and not (min(lanes) >= 0 and max(lanes) < m.shape[1]):
        raise ValueError(f"lanes {list(lanes)} of a matrix of {m.shape[1]}")
    n, width = m.shape
    if shards == 1:
        return [m]
    counts, which = np.zeros(shards, np.int64), np.empty(n, np.uint32)
    count_shards(m, np.array(lanes, np.int64), counts, which)
    sizes = counts.tolist()
    if n in sizes:
        return [m if size == n else np.empty((0, width), np.int64) for size in sizes]
    parts = [np.empty((size, width), np.int64) for size in sizes]
    counts[:] = 0
    move_to_shards(m, which, counts, parts)
    return parts
