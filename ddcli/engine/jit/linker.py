"""The linker: it makes one image of object code in ELF, which needs only memory and the addresses of a few functions outside.

The code is position-independent: its own functions and data are at fixed distances, whatever the image's address. A function outside is called
through a slot, a word among the image's data that the loader sets. See https://gitlab.com/x86-psABIs/x86-64-ABI and
https://github.com/ARM-software/abi-aa/blob/main/aaelf64/aaelf64.rst.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ddcli.engine.jit.registry import PAGE, Image, KernelError
from ddcli.engine.jit.settings import takes_images

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.jit.object_code import ObjectCode

HEADER = struct.Struct("<40xQ10xHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")

SYMBOLS, RELOCATIONS, ZEROS = 2, 4, 8
"""Kinds of sections."""
WRITTEN, LOADED = 0x1, 0x2
"""Flags of sections."""
DISTANCE, CALL = 2, 4
"""Kinds of relocations of x86-64."""
JUMP = b"\xff\x25\x00\x00\x00\x00\xcc\xcc"
"""A jump to the address in a slot, whose distance from the sixth byte is written into bytes 2 to 5."""
MACHINE, ARM = 18, 183
"""The offset at which an object has the number of its machine, and that of ARM with 64 bits."""
ARM_PAGE = 1 << 16
"""The largest page that a Linux on ARM has."""
ARM_DISTANCE, ARM_CALLS, ARM_PAGES, ARM_WITHIN = (
    261,
    frozenset({282, 283}),
    275,
    {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4},
)
"""Kinds of relocations of ARM: a distance, calls and jumps, the distance of pages of 4 KiB, and places within one, in units of 2 to some power."""


class Section(NamedTuple):
    """A section of an object."""

    name: str
    kind: int
    flags: int
    content: bytes
    link: int
    info: int
    align: int


class Symbol(NamedTuple):
    """A symbol of an object: its place in a section; section 0 stands for outside."""

    name: str
    section: int
    value: int


class ObjectFile:
    """An object's sections and symbols."""

    def __init__(self, code: bytes) -> None:
        """Read an object that LLVM made just now."""
        table, size, count, names = HEADER.unpack_from(code)
        heads = [SECTION.unpack_from(code, table + size * at) for at in range(count)]
        texts = code[heads[names][4] :]
        self.sections = [
            Section(
                text_at(texts, name),
                kind,
                flags,
                bytes(length) if kind == ZEROS else code[offset : offset + length],
                link,
                info,
                max(align, 1),
            )
            for name, kind, flags, _, offset, length, link, info, align, _ in heads
        ]
        self.symbols = [
            Symbol(text_at(self.sections[each.link].content, name), section, value)
            for each in self.sections
            if each.kind == SYMBOLS
            for name, _, _, section, value, _ in SYMBOL.iter_unpack(each.content)
        ]
        self.places: dict[int, int] = {}
        """The offset of each section in the image, by its number."""

    def loaded(self, *, written: bool) -> Iterator[tuple[int, Section]]:
        """Yield the sections that belong into memory, by number. No exception passes a kernel, so a table for that does not."""
        for at, each in enumerate(self.sections):
            if each.flags & LOADED and bool(each.flags & WRITTEN) == written and each.name != ".eh_frame":
                yield at, each

    def outside(self) -> set[str]:
        """Return the names of the functions outside."""
        return {each.name for each in self.symbols if not each.section and each.name}

    def offset(self, symbol: Symbol) -> int | None:
        """Return the offset of a symbol in the image; None for one outside."""
        start = self.places.get(symbol.section)
        return None if start is None else start + symbol.value

    def function(self, name: str) -> int:
        """Return the offset of a function of the object in the image."""
        return next(offset for each in self.symbols if each.name == name and (offset := self.offset(each)) is not None)

    def relocations(self) -> Iterator[tuple[int, int, Symbol, int]]:
        """Yield for each distance in the code its place in the image, its kind, the symbol that it leads to, and the number to add."""
        for each in self.sections:
            if each.kind == RELOCATIONS and each.info in self.places:
                for offset, info, added in RELOCATION.iter_unpack(each.content):
                    yield self.places[each.info] + offset, info & 0xFFFFFFFF, self.symbols[info >> 32], added


def image_of(codes: Sequence[ObjectCode]) -> Image:
    """Return the image of objects, each complete but for functions outside. Raises KernelError for code that depends on its position."""
    objects = [ObjectFile(each.code) for each in codes]
    content = bytearray()

    def put(data: bytes, align: int) -> int:
        content.extend(bytes(-len(content) % align))
        content.extend(data)
        return len(content) - len(data)

    for each in objects:
        each.places = {at: put(section.content, section.align) for at, section in each.loaded(written=False)}
    arm = any(struct.unpack_from("<H", each.code, MACHINE) == (ARM,) for each in codes)
    stubs = {name: put(JUMP, 8) for name in sorted(set().union(*(each.outside() for each in objects)))}
    written = put(b"", ARM_PAGE if arm else PAGE)
    slots = {name: put(bytes(8), 8) for name in stubs}
    for name, stub in stubs.items():
        if arm:  # ldr x16, slot; br x16
            struct.pack_into("<II", content, stub, 0x58000010 | _signed(slots[name] - stub, 21, 2) << 5, 0xD61F0200)
        else:
            struct.pack_into("<i", content, stub + 2, slots[name] - stub - 6)
    for each in objects:
        each.places |= {at: put(section.content, section.align) for at, section in each.loaded(written=True)}
    for each in objects:
        for place, kind, symbol, added in each.relocations():
            offset = each.offset(symbol)
            if kind in (ARM_CALLS if arm else {CALL}) and offset is None:
                offset = stubs[symbol.name]
            if arm and offset is not None and _set_on_arm(content, kind, place, offset + added):
                continue
            if arm or offset is None or kind not in {DISTANCE, CALL}:
                msg = f"compiled code refers to {symbol.name or 'a section'} in a way that can't be linked ({kind})"
                raise KernelError(msg)
            struct.pack_into("<i", content, place, offset + added - place)
    functions = {
        name: each.function(symbol)
        for code, each in zip(codes, objects, strict=True)
        for name, symbol in code.functions.items()
    }
    return Image(bytes(content), written, functions, slots)


def _set_on_arm(content: bytearray, kind: int, place: int, target: int) -> bool:
    """Set a distance in an instruction of ARM, or among data; return whether the kind is one that is known."""
    (word,) = struct.unpack_from("<I", content, place)
    if kind == ARM_DISTANCE:
        word = _signed(target - place, 32, 0)
    elif kind in ARM_CALLS:
        word |= _signed(target - place, 28, 2)
    elif kind == ARM_PAGES:
        pages = _signed((target >> 12) - (place >> 12), 21, 0)
        word |= (pages & 3) << 29 | pages >> 2 << 5
    elif kind in ARM_WITHIN:
        word |= ((target & 0xFFF) >> ARM_WITHIN[kind]) << 10
    else:
        return False
    struct.pack_into("<I", content, place, word)
    return True


def _signed(number: int, bits: int, unit: int) -> int:
    """Return a number of so many bits, counted in units of 2 to some power, as an instruction has it."""
    assert -(1 << bits - 1) <= number < 1 << bits - 1
    assert number % (1 << unit) == 0
    return (number >> unit) & ((1 << bits - unit) - 1)


def linked(codes: list[ObjectCode]) -> Image | list[ObjectCode]:
    """Return the image of objects; the objects, which LLVM loads, where the machine takes no images or a compiler's version makes code that can't be linked."""
    if takes_images():
        with suppress(KernelError):
            return image_of(codes)
    return codes


def text_at(texts: bytes, start: int) -> str:
    """Return the text at an offset of a table of texts that each end with a zero."""
    return texts[start : texts.index(0, start)].decode()
