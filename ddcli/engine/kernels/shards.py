"""Hashes of rows: the shard of a key, and the fingerprint of a multiset. Both are in files: a change here makes every state unreadable.

The key's lanes, as unsigned 64-bit numbers in their order, are mixed into `h`, which begins as 0x9E3779B97F4A7C15:

    h = mix(h xor lane),  mix(z): z = (z xor z >> 30) * 0xBF58476D1CE4E5B9
                                  z = (z xor z >> 27) * 0x94D049BB133111EB
                                  z xor z >> 31

(the finaliser of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), and the shard is the
upper half of `h` times the number of shards, divided by 2^32: shard s of n becomes the shards 2s and 2s + 1 of 2n.

A row's hash in a fingerprint is the mix of the sum of its columns' hashes, each of which begins as a seed of its own; a null adds nothing, and a row of nulls counts, too. The fingerprint is the sum of the rows' hashes times
their diffs, modulo 2^64: it depends on the multiset alone, and changes that cancel leave it as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline

SEED = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
NONE = 2**63 - 1
"""The null of lanes without a flag."""


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


def shard_of(m: np.ndarray, nk: int, shards: int) -> np.ndarray:
    """Return the shard, 0 to `shards` - 1, of each row by its first `nk` lanes."""
    if not 0 < shards < 1 << 31:
        raise ValueError(f"{shards} shards")
    out = np.empty(m.shape[0], np.int64)
    assign_shards(m, nk, shards, out)
    return out


@kernel("MMU")
def add_hashes(m: np.ndarray, columns: np.ndarray, out: np.ndarray) -> int:
    """Add the hash of each row times its diff to out[0]. A column is `[seed | first lane | lane after its last | where nulls are]`: 0: the lane `NONE` is null, 1: the first lane is a flag, 2: none is null."""
    total = np.uint64(0)
    for i in range(m.shape[0]):
        row = np.uint64(0)
        for c in range(columns.shape[0]):
            first = columns[c, 1]
            if columns[c, 3] == 1:
                if m[i, first] != 0:
                    continue
                first += 1
            elif columns[c, 3] == 0 and m[i, first] == NONE:
                continue
            h = np.uint64(columns[c, 0])
            for lane in range(first, columns[c, 2]):
                h = mixed(h, m[i, lane])
            row += h
        total += mixed(row, NONE) * np.uint64(m[i, m.shape[1] - 1])
    out[0] += total
    return 0


def multiset_hash(m: np.ndarray, columns: np.ndarray) -> int:
    """Return the fingerprint of updates, whose last lane is the diff, by these columns: see `add_hashes`."""
    out = np.zeros(1, np.uint64)
    add_hashes(np.ascontiguousarray(m), columns, out)
    return int(out[0])
