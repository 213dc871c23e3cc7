"""Hashes of bytes and of rows. All are in files or decide the order of rows there: a change here makes every state unreadable.

xxHash64 with seed 0, as published (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), breaks ties, the same everywhere and at all times, and hashes the values of states without a secret. Anyone
can construct values with equal hashes. So states have a secret of 128 bits, under which SipHash-1-3 hashes their values (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012):
one round a word and three at the end, as in the hash tables of Rust, Ruby and Python. Without the secret nobody finds two
values with one hash, nor many whose hashes begin alike, not even an attacker who sees the order of rows. A secret seed
would not do that for xxHash64: its two rounds of 32 bytes cancel under every seed (`tests/lanes/test_flooding.py` shows it).
A value of 8 bytes takes 6 ns, where xxHash64 takes 3; of values of mixed lengths both take 15.

The shard of a key: its lanes, as unsigned 64-bit numbers in their order, are mixed into `h`, which begins as 0x9E3779B97F4A7C15:

    h = mix(h xor lane),  mix(z): z = (z xor z >> 30) * 0xBF58476D1CE4E5B9
                                  z = (z xor z >> 27) * 0x94D049BB133111EB
                                  z xor z >> 31

(the finaliser of SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014), and the shard is the
upper half of `h` times the number of shards, divided by 2^32: shard s of n becomes the shards 2s and 2s + 1 of 2n.

The fingerprint of a multiset: a row's hash is the mix of the sum of its columns' hashes, made odd; each of these begins as a seed of its own, a null adds nothing, and a row of nulls counts, too. The
fingerprint is the sum of the rows' hashes times their diffs, modulo 2^64: it depends on the multiset alone, and changes that cancel leave it as it was.

All arithmetic is in uint64, which wraps around in compiled code and in numpy alike; a mixed uint64 and int64 would become a float in one of them.
"""

from __future__ import annotations

from typing import Any, Final

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


INITIAL: Final = (
    0x736F6D6570736575,
    0x646F72616E646F6D,
    0x6C7967656E657261,
    0x7465646279746573,
)  # the letters of a sentence
LAST: Final = np.uint64(0xFF)
R13: Final = np.uint64(13)
R16: Final = np.uint64(16)
R17: Final = np.uint64(17)
R21: Final = np.uint64(21)


@inline
def last_bytes(data: np.ndarray, at: np.uint64, left: int) -> np.uint64:
    """Return fewer than 8 bytes as one word, little-endian: read in pieces that overlap, as nothing may be read beyond them."""
    word = np.uint64(0)
    if left >= 4:
        word = half(data, at) | half(data, at + np.uint64(left - 4)) << np.uint64(8 * left - 32)
    elif left > 0:
        middle = np.uint64(left >> 1)
        word = np.uint64(data[at]) | np.uint64(data[at + middle]) << middle * U8
        word |= np.uint64(data[at + np.uint64(left - 1)]) << np.uint64(8 * left - 8)
    return word


@inline
def sip_round(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return the four words after a round."""
    a += b
    c += d
    b = rotate(b, R13) ^ a
    d = rotate(d, R16) ^ c
    a = rotate(a, U32)
    c += b
    a += d
    b = rotate(b, R17) ^ c
    d = rotate(d, R21) ^ a
    return a, b, rotate(c, U32), d


@inline
def siphash13(data: np.ndarray, start: int, length: int, s: np.ndarray) -> np.uint64:
    """Return the SipHash-1-3 of data[start : start + length]; `s` are the four words that a secret begins with (`pool.initial_words`)."""
    a = s[0]
    b = s[1]
    c = s[2]
    d = s[3]
    at = np.uint64(start)
    for _ in range(length >> 3):
        word = whole(data, at)
        at += U8
        a, b, c, d = sip_round(a, b, c, d ^ word)
        a ^= word
    word = last_bytes(data, at, length & 7) | np.uint64(length) << np.uint64(56)
    a, b, c, d = sip_round(a, b, c, d ^ word)
    a ^= word
    c ^= LAST
    for _ in range(3):
        a, b, c, d = sip_round(a, b, c, d)
    h: np.uint64 = a ^ b ^ c ^ d
    return h


@kernel("VVBUV")
def keyed_ranges(starts: np.ndarray, lengths: np.ndarray, data: np.ndarray, s: np.ndarray, out: np.ndarray) -> int:
    """Write the lane of each range data[start : start + length] to `out`; a negative length means null."""
    for i in range(starts.shape[0]):
        if lengths[i] < 0:
            out[i] = NULL
        else:
            h = np.int64(siphash13(data, starts[i], lengths[i], s))
            out[i] = h - (h == NULL)
    return 0


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
    """Add the hash of each row, an odd number, times its diff to out[0]. A column is `[seed | first lane | lane after its last | where nulls are]`: 0: the lane `NONE` is null, 1: the first lane is a flag, 2: none is null."""
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
        # An odd number times two diffs is the same only if these are.
        total += (mixed(row, NONE) | np.uint64(1)) * np.uint64(m[i, m.shape[1] - 1])
    out[0] += total
    return 0


def multiset_hash(m: np.ndarray, columns: np.ndarray) -> int:
    """Return the fingerprint of updates, whose last lane is the diff, by these columns: see `add_hashes`."""
    out = np.zeros(1, np.uint64)
    add_hashes(np.ascontiguousarray(m), columns, out)
    return int(out[0])
