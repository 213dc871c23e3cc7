"""Thrift's compact protocol, in which Parquet's footers are written: fields of structs are found, and numbers replaced.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

Only the numbers that a caller asks for are decoded: a footer has a hundred thousand of them. Bytes that can't be a struct
raise ValueError or IndexError.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
"""The types of values, as fields and lists name them."""
LONG = 15
"""The length of a list, or the step from a field's number to the next, from which on it has bytes of its own."""

Fields = dict[int, tuple[int, bytes]]
"""A struct: the type and the bytes of the value of each field, by its number."""
Shape = dict[int, "Callable[[int], int] | Shape"]
"""The changes of a struct, by the number of the field: a number by a function, or the changes of a struct, or of each struct in a list."""

SHORT = [bytes([value]) for value in range(0x80)]
"""The numbers that take one byte."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned number at a place, and where it ends."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7


def varint_bytes(value: int) -> bytes:
    """Return an unsigned number as `varint` reads it."""
    if value <= 0x7F:
        return SHORT[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(data: bytes, at: int = 0) -> int:
    """Return the signed number at a place.

    >>> number(number_bytes(-300))
    -300
    """
    value, _ = varint(data, at)
    return value >> 1 ^ -(value & 1)


@lru_cache(maxsize=4096)
def number_bytes(value: int) -> bytes:
    """Return a signed number as `number` reads it."""
    return varint_bytes(value << 1 if value >= 0 else (-value << 1) - 1)


def text(data: bytes) -> str:
    """Return the text that a value of the type BINARY is.

    >>> text(text_bytes("días"))
    'días'
    """
    size, at = varint(data, 0)
    return data[at : at + size].decode()


def text_bytes(value: str) -> bytes:
    """Return a text as `text` reads it."""
    data = value.encode()
    return varint_bytes(len(data)) + data


def fields(data: bytes) -> Fields:
    """Return the fields of the struct with which bytes begin."""
    found: Fields = {}
    at = last = 0
    while head := data[at]:
        last, kind, at = _field(data, at, head, last)
        end = _skip(data, at, kind)
        found[last] = kind, data[at:end]
        at = end
    return found


def struct_bytes(struct: Fields) -> bytes:
    """Return the bytes of a struct.

    >>> fields(struct_bytes({1: (I32, b"2"), 40: (I64, b"3")}))
    {1: (5, b'2'), 40: (6, b'3')}
    """
    out = bytearray()
    last = 0
    for name, (kind, value) in sorted(struct.items()):
        step = name - last
        out += bytes([step << 4 | kind]) if 0 < step <= LONG else bytes([kind]) + number_bytes(name)
        out += value
        last = name
    return bytes(out) + b"\0"


def structs(data: bytes) -> list[bytes]:
    """Return the structs of a list, the value of a field."""
    inner, count, at = _list(data, 0)
    if inner != STRUCT and count:
        raise ValueError("a list of something else than structs")
    found = []
    for _ in range(count):
        end = _skip(data, at, STRUCT)
        found.append(data[at:end])
        at = end
    return found


def structs_bytes(elements: list[bytes]) -> bytes:
    """Return the value of a field that is a list of structs."""
    count = len(elements)
    head = bytes([count << 4 | STRUCT]) if count < LONG else bytes([LONG << 4 | STRUCT]) + varint_bytes(count)
    return head + b"".join(elements)


def changed(struct: bytes, shape: Shape) -> bytes:
    """Return a struct with other numbers in some of its fields."""
    out = bytearray()
    done, _ = _change(struct, 0, shape, out, 0)
    return bytes(out + struct[done:])


def _change(data: bytes, at: int, shape: Shape, out: bytearray, done: int) -> tuple[int, int]:
    """Add the bytes of a struct from `done` on to `out`, up to its last change; return up to where, and where the struct ends."""
    last = 0
    while head := data[at]:
        last, kind, at = _field(data, at, head, last)
        change = shape.get(last)
        if change is None:
            at = _skip(data, at, kind)
        elif not isinstance(change, dict):
            end = _skip(data, at, kind)
            out += data[done:at] + number_bytes(change(number(data, at)))
            done = at = end
        else:
            count = 1
            if kind == LIST:
                _, count, at = _list(data, at)
            for _ in range(count):
                done, at = _change(data, at, change, out, done)
    return done, at + 1


def _field(data: bytes, at: int, head: int, last: int) -> tuple[int, int, int]:
    """Return number and type of the field at a place, and where its value begins."""
    if step := head >> 4:
        return last + step, head & 15, at + 1
    value, end = varint(data, at + 1)
    return value >> 1 ^ -(value & 1), head & 15, end


def _list(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the type of a list's elements, how many there are, and where they begin."""
    head = data[at]
    if head >> 4 < LONG:
        return head & 15, head >> 4, at + 1
    count, at = varint(data, at + 1)
    return head & 15, count, at


def _skip(data: bytes, at: int, kind: int) -> int:
    """Return the offset behind a value."""
    if I16 <= kind <= I64:
        while data[at] > 0x7F:
            at += 1
        return at + 1
    if kind == BINARY:
        size, at = varint(data, at)
        return at + size
    if kind == STRUCT:
        while head := data[at]:
            if head < 0x10:  # a number of its own
                _, at = varint(data, at + 1)
            else:
                at += 1
            at = _skip(data, at, head & 15)
        return at + 1
    if kind in (LIST, SET):
        inner, count, at = _list(data, at)
        if inner in (TRUE, FALSE):
            return at + count
        for _ in range(count):
            at = _skip(data, at, inner)
        return at
    if kind in (TRUE, FALSE):
        return at
    if kind in (BYTE, DOUBLE):
        return at + (1 if kind == BYTE else 8)
    raise ValueError(f"a footer has no values of the type {kind}")  # maps, too: Parquet's have none
