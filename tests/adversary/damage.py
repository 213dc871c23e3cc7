"""What somebody does to the bytes of files: of a state and an output, and of any other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ddcli.store.files.gate import checksum
from tests.adversary.case import Case, Numbered

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.adversary.shop import Shop

FOREIGN = (
    b"",
    b"PAR1",
    b"PAR1" * 1000,
    b"ARROW1\0\0",
    b"\x1f\x8b\x08",
    b"\0" * 100,
    b"\xff" * 8,
    b"\x1b]0;owned\x07\n::error ::forged\n",
    b"{" * 3000,
    b'{"a":' * 3000,
    b"-" * 300,
    b"9" * 5000,
    b"\xef\xbb\xbf",
    b"\r\n",
    b'"',
)
"""What is put into a file that isn't so."""


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with some of them flipped, cut, repeated, moved, or others between them; more often near the end, where footers are."""
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        size = len(data)
        at = chance.randrange(size + 1) if chance.random() < 0.5 else size - min(size, chance.randrange(1, 300))
        to = min(size, at + chance.choice((1, 1, 2, 4, 8, 100)))
        match chance.randrange(7):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + bytes(chance.randrange(256) for _ in range(to - at)) + data[to:]
            case 2:
                data = data[:at] + bytes(byte ^ 1 << chance.randrange(8) for byte in data[at:to]) + data[to:]
            case 3:
                data = data[:at] + chance.choice(FOREIGN) + data[at:]
            case 4:
                data = data[:at] + data[to:]
            case 5:
                data = data[:to] + data[at:to] * chance.choice((1, 3, 100)) + data[to:]
            case 6:
                data = data[:at] + chance.choice((b"\x80", b"\x7f", b"\xff")) * (to - at) + data[to:]
    return data


def bytes_of_a_state(shop: Shop) -> Sequence[Case]:
    """Return damage to any file of a state and an output; now and then with a checksum in the manifest that says it is so."""
    files = [path for root in (shop.state, shop.output) for path in sorted(root.rglob("*")) if path.is_file()]
    names = [str(path.relative_to(shop.folder)) for path in files]

    def make(chance: random.Random) -> Case:
        place = chance.choice(names)
        data = damaged((shop.folder / place).read_bytes(), chance)
        forged = chance.random() < 0.5

        def do(shop: Shop) -> None:
            path = shop.folder / place
            old = path.read_bytes()
            path.write_bytes(data)
            if forged and path != shop.manifest:
                _forge(shop, old, data)

        return Case(f"{place} is damaged{' and forged' * forged}", do)

    return Numbered(make)


def _forge(shop: Shop, old: bytes, new: bytes) -> None:
    """Have the manifest say of a file what is now so: its size, and the checksum of all of it."""
    text = shop.manifest.read_bytes()
    for was, is_ in ((checksum(old), checksum(new)), (str(len(old)), str(len(new)))):
        text = text.replace(was.encode(), is_.encode())
    _, _, rest = text.partition(b",")
    shop.manifest.write_bytes(b'{"crc32":"%s",' % checksum(b"" + rest).encode() + rest)


def manifest_bytes(shop: Shop) -> Sequence[Case]:
    """Return manifests that are damaged and have the right checksum all the same."""
    whole = shop.manifest.read_bytes()

    def do(data: bytes, shop: Shop) -> None:
        _, _, rest = data.partition(b",")
        shop.manifest.write_bytes(b'{"crc32":"%s",' % checksum(rest).encode() + rest)

    def make(chance: random.Random) -> Case:
        return Case("a damaged manifest with its checksum", partial(do, damaged(whole, chance)))

    return Numbered(make)


GENERATORS = (bytes_of_a_state, manifest_bytes)
