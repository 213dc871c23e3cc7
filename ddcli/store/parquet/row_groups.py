"""The footers of Parquet files: their fields, the row groups that they describe, and one footer for the row groups of several files.

The bytes of row groups stay as they are, and the one footer has their new places. Footers are written in Thrift's compact protocol:
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
Only the numbers that a caller asks for are decoded, or replaced: a footer has a hundred thousand of them. Bytes that can't be a struct
raise ValueError or IndexError.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.store.files.access import fs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path


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
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


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


MAGIC = b"PAR1"
END = 8
"""Bytes after a footer: its length and the magic."""
# Numbers of fields in Parquet's footer: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
SCHEMA, ROWS, GROUPS, METADATA, ORDERS = 2, 3, 4, 5, 7
LAST_ORDINAL = 2**15 - 1
SMALL = 16 << 10
"""The bytes of a footer that is quickly parsed here."""


class RowGroups:
    """The footer of a file in the making: parts are Parquet files with the same columns, whose row groups come one after the other."""

    def __init__(self) -> None:
        self.size = len(MAGIC)
        """The bytes of the file so far: its magic, and the row groups."""
        self._footer: Fields = {}
        self._groups: list[bytes] = []
        self._rows = 0
        self._only: bytes | None = None

    def add(self, size: int, tail: bytes) -> int:
        """Add a part of `size` bytes that ends with `tail`, its footer; return how many of its bytes, after the magic, are to be copied.

        Raises ValueError for a footer that is none, or one of other columns.
        """
        body = size - len(tail) - len(MAGIC)
        try:
            self._join(tail, self.size - len(MAGIC))
        except (IndexError, KeyError):
            raise ValueError("the footer can't be read") from None
        self.size += body
        return body

    def finish(self) -> bytes:
        """Return the bytes after the row groups; the footer has the first part's metadata."""
        assert self._footer, "a file of no parts has no columns"
        if self._only is not None:
            return self._only
        kinds = {field: kind for field, (kind, _) in self._footer.items()}
        joined = {ROWS: (kinds[ROWS], number_bytes(self._rows)), GROUPS: (kinds[GROUPS], structs_bytes(self._groups))}
        footer = struct_bytes(self._footer | joined)
        return footer + len(footer).to_bytes(4, "little") + MAGIC

    def _join(self, tail: bytes, moved: int) -> None:
        found = fields(tail)
        if any(found.get(field) != self._footer.get(field, found.get(field)) for field in (SCHEMA, ORDERS)):
            raise ValueError("the parts of a file have different columns")
        self._only = None if self._footer else tail
        self._footer = self._footer or found
        self._rows += number(found[ROWS][1])
        for group in structs(found[GROUPS][1]):
            # The first part's stay where they are.
            self._groups.append(changed(group, _moves(moved, len(self._groups))) if moved else group)


def metadata_of(footer: Fields) -> dict[str, str]:
    """Return the key-value metadata of a footer; a key may have no text."""
    pairs = [fields(pair) for pair in structs(footer.get(METADATA, (LIST, b"\0"))[1])]
    return {text(pair[1][1]): text(pair[2][1]) if 2 in pair else "" for pair in pairs}


def _moves(by: int, at: int) -> Shape:
    """Return the changed fields of a row group that is moved by `by` bytes and is the file's `at`-th."""

    def shift(offset: int) -> int:
        return offset + by if offset else 0  # 0 is a writer's word for none

    pages: Shape = dict.fromkeys((9, 10, 11, 14), shift)
    chunk: Shape = {2: shift, 3: pages, 4: shift, 6: shift}
    return {1: chunk, 5: shift, 7: lambda _: min(at, LAST_ORDINAL)}


def footer_of(size: int, read: Callable[[int, int], bytes]) -> bytes:
    """Return the footer of a Parquet file of `size` bytes with its length and magic; `read(start, end)` returns bytes of the file.

    Raises ValueError for a file that is no Parquet.
    """
    end = read(max(0, size - END), size)
    length = int.from_bytes(end[:4], "little") + END
    if len(end) < END or end[4:] != MAGIC or length > size - len(MAGIC):
        raise ValueError("the file does not end as Parquet files do")
    return read(size - length, size)


def footer_in(data: bytes | memoryview) -> bytes:
    """Return the footer of the bytes of a Parquet file with its length and magic. Raises ValueError for bytes that are no Parquet."""
    view = memoryview(data).cast("B")
    return footer_of(len(view), lambda start, end: bytes(view[start:end]))


LARGE = 8 << 20
"""Compressed bytes of a row group that are too many to fetch for some of its rows."""


def is_large(path: Path) -> bool:
    """Return whether a file is so large that a row group of it may be, and may better be read in parts."""
    try:
        return path.stat().st_size > LARGE
    except OSError:  # its reader reports why
        return False


def row_count(path: Path, without: str = "") -> int | None:
    """Return the number of rows by a file's footer; None where it is large or far, can't be read, or may name a column `without`: others read it then."""
    if not fs(path).is_local:
        return None
    try:
        tail = tail_of(path, SMALL)
        kind, value = fields(tail)[ROWS]
        return number(value) if kind == I64 and not (without and without.encode() in tail) else None
    except (OSError, IndexError, ValueError, KeyError, RecursionError):
        return None


def tail_of(path: Path, most: int) -> bytes:
    """Return the footer of a file with the bytes after it; raises OSError, or ValueError for one of more bytes than `most`, and for bytes that are no footer."""
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - SMALL))
        tail = file.read(SMALL)
        length = int.from_bytes(tail[-END : -len(MAGIC)], "little") + END
        if tail[-len(MAGIC) :] != MAGIC or length > min(most, size):
            raise ValueError("no footer, or a large one")
        if length > len(tail):
            file.seek(size - length)
            tail = file.read(length)
    return tail[-length:]


class GroupBounds(NamedTuple):
    """A row group: its rows, its bytes before compression, and the statistics that it has of columns."""

    rows: int
    size: int
    bounds: Mapping[str, tuple[Any, Any] | None]
    """The least and the greatest value, or something beyond them; None: there are only nulls."""
    nulls: Mapping[str, int]
    """The number of nulls."""


def group_bounds(path: Path, ordered: Collection[str] = (), counted: Collection[str] = ()) -> list[GroupBounds]:
    """Return the row groups of a file with the bounds of some columns, and the nulls of others; in a column that the file lacks all are null.

    Returns none where the footer can't be read: others report why.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with path.open("rb") as file:
            footer = parquet.ParquetFile(file).metadata
    except (OSError, pa.ArrowException):
        return []
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    lacking = {*ordered, *counted} - {place.split(".")[0] for place in places}
    found = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        each = {name: group.column(places[name]).statistics for name in (*ordered, *counted) if name in places}
        known = {name: of for name, of in each.items() if of is not None}
        nulls = {name: of.null_count for name, of in known.items() if of.has_null_count}
        nulls |= dict.fromkeys(lacking, group.num_rows)
        bounds = {
            name: (known[name].min, known[name].max) for name in ordered if name in known and known[name].has_min_max
        }
        empty = dict.fromkeys(name for name in ordered if nulls.get(name) == group.num_rows)
        found.append(GroupBounds(group.num_rows, group.total_byte_size, bounds | empty, nulls))
    return found
