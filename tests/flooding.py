"""Values whose xxHash64 is the same: what anyone can write in a fraction of a second, under the seed 0 and under every other.

Each 32 bytes go word by word into four accumulators, `a = rotate(a + word * P2, 31) * P1`. Let two values differ in a first word: what
that does to the accumulator is undone by the word 32 bytes later, as multiplying by P2 can be inverted. Under the seed 0 the
accumulator is known. Under another the first words may differ in their top bit alone: through the rotation that becomes a
difference of 2**30, only its sign depends on the seed, and one of two second words undoes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reference.xxhash64 import MASK, P1, P2, round_of

if TYPE_CHECKING:
    from random import Random

PRINTABLE = range(0x20, 0x7F)
INVERSE = pow(P2, -1, 2**64)


def meeting(random: Random) -> tuple[str, str]:
    """Return two different texts of 64 printable characters with one xxHash64 of seed 0."""
    rest = text(random, 24), text(random, 24)
    while True:
        first = [text(random, 8) for _ in range(2)]
        after = [round_of((P1 + P2) & MASK, int.from_bytes(word, "little")) for word in first]
        second = difference(random, (after[0] - after[1]) * INVERSE & MASK)
        if second and first[0] != first[1]:
            one, other = (b"".join((a, rest[0], b, rest[1])) for a, b in zip(first, second, strict=True))
            return one.decode(), other.decode()


def meeting_anyhow(random: Random) -> tuple[bytes, bytes, bytes]:
    """Return three values of 64 bytes: under every seed the first has the xxHash64 of the second or of the third."""
    words = [random.randbytes(8) for _ in range(8)]
    turned = words[0][:7] + bytes([words[0][7] ^ 0x80])
    undone = 2**30 * P1 * INVERSE
    found = [b"".join(words)]
    for sign in (1, -1):
        other = (int.from_bytes(words[4], "little") + sign * undone) & MASK
        found.append(b"".join([turned, *words[1:4], other.to_bytes(8, "little"), *words[5:]]))
    return found[0], found[1], found[2]


def text(random: Random, length: int) -> bytes:
    """Return printable characters."""
    return bytes(random.choices(PRINTABLE, k=length))


def difference(random: Random, wanted: int) -> tuple[bytes, bytes] | None:
    """Return two words of printable characters, the second larger by a number modulo 2**64, or None if none are found byte by byte."""
    one, other, carry = bytearray(), bytearray(), 0
    for byte in wanted.to_bytes(8, "little"):
        fits = [at for at in PRINTABLE if (at + byte + carry) % 256 in PRINTABLE]
        if not fits:
            return None
        one.append(random.choice(fits))
        other.append((one[-1] + byte + carry) % 256)
        carry = (one[-1] + byte + carry) // 256
    return bytes(one), bytes(other)
