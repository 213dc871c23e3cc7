"""xxHash64 in plain Python: with the seed 0 the order of texts that nothing else tells apart.

The order of hashes means nothing, but it is the same everywhere and at all times, which is what breaking ties asks for.
Follows the specification by Yann Collet (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md).
"""

from __future__ import annotations

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & MASK


def round_of(accumulator: int, lane: int) -> int:
    """Return an accumulator with one more word in it."""
    return _rotated((accumulator + lane * P2) & MASK, 31) * P1 & MASK


def xxhash64(data: bytes, seed: int = 0) -> int:
    """Return the hash as an unsigned number.

    >>> hex(xxhash64(b""))
    '0xef46db3751d8e999'
    >>> hex(xxhash64(b"abc"))
    '0x44bc2cf5ad770999'
    """
    at, found = 0, (seed + P5) & MASK
    if len(data) >= 32:
        lanes = [(seed + start) & MASK for start in (P1 + P2, P2, 0, -P1)]
        while at <= len(data) - 32:
            for number in range(4):
                lanes[number] = round_of(lanes[number], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            found = ((found ^ round_of(0, lane)) * P1 + P4) & MASK
    found = (found + len(data)) & MASK
    while at + 8 <= len(data):
        found = (_rotated(found ^ round_of(0, int.from_bytes(data[at : at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        found = (_rotated(found ^ int.from_bytes(data[at : at + 4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        found = _rotated(found ^ byte * P5 & MASK, 11) * P1 & MASK
    found = (found ^ found >> 33) * P2 & MASK
    found = (found ^ found >> 29) * P3 & MASK
    return found ^ found >> 32


def text_rank(text: str) -> int:
    """Return where a text stands among others: its hash as a signed number, the largest of which is kept for null."""
    unsigned = xxhash64(text.encode())
    signed = unsigned - 2**64 if unsigned >= 2**63 else unsigned
    return min(signed, 2**63 - 2)
