"""xxHash64 with seed 0 of ranges of bytes, as published (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).

It breaks ties, the same everywhere and at all times, and it is the hash of states without a secret, on which the order of their
rows and the shard of a record depend: so it must never change. Anyone can construct values with equal hashes: see `siphash`.
All arithmetic is in uint64, which wraps around in compiled code and in numpy alike; a mixed uint64 and int64 would
become a float in one of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline

PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3: Final = np.uint64(0x165667B19E3779F9)
PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
PRIME_5: Final = np.uint64(0x27D4EB2F165667C5)
ACCUMULATOR_1: Final = np.uint64(0x60EA27EEADC0B5D6)  # PRIME_1 + PRIME_2
ACCUMULATOR_4: Final = np.uint64(0x61C8864E7A143579)  # -PRIME_1
U0: Final = np.uint64(0)
U1: Final = np.uint64(1)
U4: Final = np.uint64(4)
U8: Final = np.uint64(8)
U16: Final = np.uint64(16)
U24: Final = np.uint64(24)
U32: Final = np.uint64(32)
U64: Final = np.uint64(64)
NULL: Final = 2**63 - 1  # the lane of null; a hash that equals it is lowered by one


@inline
def half(data: np.ndarray, at: np.uint64) -> np.uint64:
    """Return the 32 bits at a position, little-endian."""
    low = np.uint64(data[at]) | np.uint64(data[at + U1]) << U8
    return low | np.uint64(data[at + np.uint64(2)]) << U16 | np.uint64(data[at + np.uint64(3)]) << U24


@inline
def whole(data: np.ndarray, at: np.uint64) -> np.uint64:
    """Return the 64 bits at a position, little-endian. LLVM makes one load of the eight."""
    return half(data, at) | half(data, at + U4) << U32


@inline
def rotate(word: np.uint64, bits: np.uint64) -> np.uint64:
    """Return the word rotated left."""
    return word << bits | word >> (U64 - bits)


@inline
def round_of(accumulator: np.uint64, word: np.uint64) -> np.uint64:
    """Mix one word into an accumulator."""
    return rotate(accumulator + word * PRIME_2, np.uint64(31)) * PRIME_1


@inline
def merged(h: np.uint64, accumulator: np.uint64) -> np.uint64:
    """Mix an accumulator into the hash."""
    return (h ^ round_of(U0, accumulator)) * PRIME_1 + PRIME_4


@inline
def xxhash64(data: np.ndarray, start: int, length: int) -> np.uint64:
    """Return the xxHash64 of data[start : start + length]."""
    at = np.uint64(start)
    left = np.uint64(length)
    h = PRIME_5
    if left >= U32:
        a = ACCUMULATOR_1
        b = PRIME_2
        c = U0
        d = ACCUMULATOR_4
        while left >= U32:
            a = round_of(a, whole(data, at))
            b = round_of(b, whole(data, at + U8))
            c = round_of(c, whole(data, at + U16))
            d = round_of(d, whole(data, at + U24))
            at += U32
            left -= U32
        h = rotate(a, U1) + rotate(b, np.uint64(7)) + rotate(c, np.uint64(12)) + rotate(d, np.uint64(18))
        h = merged(merged(merged(merged(h, a), b), c), d)
    h += np.uint64(length)
    while left >= U8:
        h = rotate(h ^ round_of(U0, whole(data, at)), np.uint64(27)) * PRIME_1 + PRIME_4
        at += U8
        left -= U8
    if left >= U4:
        h = rotate(h ^ half(data, at) * PRIME_1, np.uint64(23)) * PRIME_2 + PRIME_3
        at += U4
        left -= U4
    while left > U0:
        h = rotate(h ^ np.uint64(data[at]) * PRIME_5, np.uint64(11)) * PRIME_1
        at += U1
        left -= U1
    h = (h ^ h >> np.uint64(33)) * PRIME_2
    h = (h ^ h >> np.uint64(29)) * PRIME_3
    return h ^ h >> U32


@kernel("VVBV")
def hash_ranges(starts: np.ndarray, lengths: np.ndarray, data: np.ndarray, out: np.ndarray) -> int:
    """Write the lane of each range data[start : start + length] to `out`; a negative length means null."""
    for i in range(starts.shape[0]):
        if lengths[i] < 0:
            out[i] = NULL
        else:
            h = np.int64(xxhash64(data, starts[i], lengths[i]))
            out[i] = h - (h == NULL)
    return 0
