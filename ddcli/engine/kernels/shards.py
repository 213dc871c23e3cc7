"""Which shard a key belongs to. This is part of the layout of files: a change here makes every state unreadable.

The key's lanes, as unsigned 64-bit numbers in their order, are mixed into `h`, which begins as 0x9E3779B97F4A7C15:

    h = mix(h xor lane),  mix(z): z = (z xor z >> 30) * 0xBF58476D1CE4E5B9
                                  z = (z xor z >> 27) * 0x94D049BB133111EB
                                  z xor z >> 31

(the finaliser of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), and the shard is the
upper half of `h` times the number of shards, divided by 2^32: shard s of n becomes the shards 2s and 2s + 1 of 2n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.kernels.loader import inline, kernel, matrix_of
from ddcli.engine.kernels.rows import copy_row

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


@inline
def mixed(h: np.uint64, lane: int) -> np.uint64:
    """Mix one lane into the hash."""
    h ^= np.uint64(lane)
    h = (h ^ (h >> np.uint64(30))) * FIRST
    h = (h ^ (h >> np.uint64(27))) * SECOND
    return h ^ (h >> np.uint64(31))


@inline
def shard_from(h: np.uint64, shards: int) -> Any:
    """Return the shard of a hash."""
    return np.int64(((h >> np.uint64(32)) * np.uint64(shards)) >> np.uint64(32))


@kernel("MiiV")
def assign_shards(m: np.ndarray, nk: int, shards: int, out: np.ndarray) -> int:
    """Write the shard of each row's key."""
    for i in range(m.shape[0]):
        h = SEED
        for c in range(nk):
            h = mixed(h, m[i, c])
        out[i] = shard_from(h, shards)
    return 0


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


def shard_of(m: np.ndarray, nk: int, shards: int) -> np.ndarray:
    """Return the shard, 0 to `shards` - 1, of each row by its first `nk` lanes."""
    if not 0 < shards < 1 << 31:
        raise ValueError(f"{shards} shards")
    out = np.empty(m.shape[0], np.int64)
    assign_shards(m, nk, shards, out)
    return out


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
