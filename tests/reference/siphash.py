"""SipHash in plain Python, after the paper (Aumasson and Bernstein, 2012): c rounds a word, d at the end."""

from __future__ import annotations

MASK = 2**64 - 1


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & MASK


def _round(v: list[int]) -> None:
    """Mix the state by the paper's figure 2.1: two half-rounds, each an addition, a rotation and a xor on either side."""
    for one, other, left, right in ((0, 2, 13, 16), (2, 0, 17, 21)):
        v[one] = (v[one] + v[1]) & MASK
        v[other] = (v[other] + v[3]) & MASK
        v[1] = _rotated(v[1], left) ^ v[one]
        v[3] = _rotated(v[3], right) ^ v[other]
        v[one] = _rotated(v[one], 32)


def siphash(key: bytes, data: bytes, c: int = 1, d: int = 3) -> int:
    """Return the hash as an unsigned number. The paper's own example is of c = 2 and d = 4.

    >>> hex(siphash(bytes(range(16)), bytes(range(15)), 2, 4))
    '0xa129ca6149be45e5'
    """
    k = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8)]
    v = [k[at % 2] ^ int.from_bytes(b"somepseudorandomlygeneratedbytes"[8 * at : 8 * at + 8], "big") for at in range(4)]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        for _ in range(c):
            _round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(d):
        _round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
