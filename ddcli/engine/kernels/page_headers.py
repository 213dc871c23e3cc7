"""Headers of Parquet's pages and the footer of a file: the places of pages, the number and encoding of their values, the sizes of row groups.

Both are structs in Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
No bytes in the given range make a kernel read outside of it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.hashes import U0, U1, U64

PAGE, HEADER, END, VALUES, ENCODING, SIZE = range(6)
"""The lanes that `walk_pages` writes for a page: its type, the size of its header, its end, the number of its values, their encoding, and
their size in bytes when uncompressed."""
DICTIONARY_PAGE: Final = 2
DELTAS: Final = 5
NUMBERS: Final = 8
UNENCODED: Final = 0
"""Parquet's numbers for the encodings that are read here: differences, indices into a dictionary, and values as they are."""

TRUE, FALSE, BYTE, I16, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 6, 7, 8, 9, 10, 12
"""Types of values in Thrift's compact protocol."""
U7: Final = np.uint64(7)
LOW: Final = np.uint64(0x7F)
LOW_HALF: Final = np.uint64(0xFFFFFFFF)


@inline
def integer(value: Any) -> Any:
    """Return the bits of an unsigned word as an integer with a sign."""
    return np.int64(value)


@inline
def number_at(data: np.ndarray, at: int, end: int) -> np.uint64:
    """Return the unsigned number of variable length at a position."""
    value = U0
    shift = U0
    while at < end and shift < U64:
        byte = np.uint64(data[at])
        value |= (byte & LOW) << shift
        if byte <= LOW:
            break
        shift += U7
        at += 1
    return value


@inline
def after_number(data: np.ndarray, at: int, end: int) -> int:
    """Return where the number of variable length at a position ends: beyond `end` if that comes first."""
    while at < end and data[at] >= 128:
        at += 1
    return at + 1


@inline
def signed(value: np.uint64) -> np.uint64:
    """Return the bits of the signed number that an unsigned one stands for: 0, -1, 1, -2, ..."""
    return (value >> U1) ^ (U0 - (value & U1))


@kernel("BiiM")
def walk_pages(data: np.ndarray, start: int, end: int, out: np.ndarray) -> int:
    """Write the headers of the pages in data[start:end], a row a page; return the number of pages, or -1 where the bytes are no page."""
    if start < 0 or end < start or end > data.shape[0]:
        return -1
    at = start
    count = 0
    while at < end:
        if count == out.shape[0]:
            return -1
        begin = at
        kind = size = values = encoding = whole_size = -1
        outer = inner = 0
        depth = 1
        while depth > 0:
            if at >= end:
                return -1
            head = integer(data[at])
            at += 1
            if head == 0:
                depth -= 1
                continue
            step = head >> 4
            what = head & 15
            if step == 0:
                return -1
            if depth == 1:
                outer += step
            elif depth == 2:
                inner += step
            if I16 <= what <= I64:
                value = integer(signed(number_at(data, at, end)))
                at = after_number(data, at, end)
                if depth == 1 and outer == 1:
                    kind = value
                elif depth == 1 and outer == 2:
                    whole_size = value
                elif depth == 1 and outer == 3:
                    size = value
                elif depth == 2 and inner == 1:
                    values = value
                elif depth == 2 and inner == 2:
                    encoding = value
            elif what == BINARY:
                length = integer(number_at(data, at, end) & LOW_HALF)
                at = after_number(data, at, end) + length
            elif what == STRUCT:
                depth += 1
                if depth == 2:
                    inner = 0
            elif what == BYTE:
                at += 1
            elif what == DOUBLE:
                at += 8
            elif what not in (TRUE, FALSE):
                return -1
        header = at - begin
        if size < 0 or size > end - at or values < 0:
            return -1
        at += size
        out[count, PAGE] = kind
        out[count, HEADER] = header
        out[count, END] = at
        out[count, VALUES] = values
        out[count, ENCODING] = encoding
        out[count, SIZE] = whole_size
        count += 1
    return count


ROWS, BYTES = 0, 1
"""Lanes of the first row that `largest_group` writes: the most rows, and the most compressed bytes, that a row group has."""
LEFT, INNER, PART = range(3)
"""Lanes of each struct and list that it is in: of a list how many elements are to come, of a struct -1; of a list the type of its elements,
of a struct the number of its last field; and what of a footer it is."""
DEPTH: Final = 16
"""Structs and lists within one another that a footer may have; Parquet's have 8. So many rows, and one more, `largest_group` needs."""
GROUPS_AT, CHUNKS_AT, DESCRIBED_AT, ROWS_AT, BYTES_AT = 4, 1, 3, 3, 7
"""The numbers of fields: a footer's row groups, a row group's columns and rows, a column's description, and its compressed bytes."""
FOOTER, GROUPS, GROUP, CHUNKS, CHUNK, DESCRIBED, OTHER = range(7)
"""The part of a footer that a struct or a list is."""


@inline
def part_of(whole: int, name: int) -> int:
    """Return the part of a footer that the value of a field, or an element of a list, is."""
    if (whole in (GROUPS, CHUNKS)) or (
        (whole == FOOTER and name == GROUPS_AT)
        or (whole == GROUP and name == CHUNKS_AT)
        or (whole == CHUNK and name == DESCRIBED_AT)
    ):
        return whole + 1
    return OTHER


@kernel("BM")
def largest_group(data: np.ndarray, out: np.ndarray) -> int:
    """Write the size of the largest row group in the footer at the beginning of `data`; return the number of row groups, -1 if it is no footer.

    `out` is a matrix of `DEPTH` + 1 rows and three columns, all but the first row of it scratch.
    """
    out[0, ROWS] = out[0, BYTES] = 0
    room, end = out[1:], data.shape[0]
    room[0, LEFT], room[0, INNER], room[0, PART] = -1, 0, FOOTER
    depth = at = count = size = 0
    while depth >= 0:
        if room[depth, LEFT] == 0:
            depth -= 1
            continue
        if at >= end:
            return -1
        if room[depth, LEFT] > 0:
            room[depth, LEFT] -= 1
            kind = room[depth, INNER]
            listed = True
        else:
            head = integer(data[at])
            at += 1
            if head == 0:
                if room[depth, PART] == GROUP:
                    count += 1
                    out[0, BYTES] = max(out[0, BYTES], size)
                depth -= 1
                continue
            kind = head & 15
            listed = False
            if head >> 4:
                room[depth, INNER] += head >> 4
            else:
                room[depth, INNER] = integer(signed(number_at(data, at, end)))
                at = after_number(data, at, end)
        if I16 <= kind <= I64:
            value = integer(signed(number_at(data, at, end)))
            at = after_number(data, at, end)
            if room[depth, PART] == GROUP and room[depth, INNER] == ROWS_AT:
                if value < 0:
                    return -1
                out[0, ROWS] = max(out[0, ROWS], value)
            elif room[depth, PART] == DESCRIBED and room[depth, INNER] == BYTES_AT:
                size += value
                if value < 0 or size < 0:
                    return -1
        elif kind == BINARY:
            length = integer(number_at(data, at, end) & LOW_HALF)
            at = after_number(data, at, end) + length
        elif kind == BYTE or (listed and (kind in (TRUE, FALSE))):
            at += 1
        elif kind == DOUBLE:
            at += 8
        elif kind in (STRUCT, LIST, SET):
            if depth + 1 == room.shape[0]:
                return -1
            found = part_of(room[depth, PART], room[depth, INNER])
            depth += 1
            room[depth, LEFT], room[depth, INNER], room[depth, PART] = -1, 0, found
            if found == GROUP:
                size = 0
            if kind != STRUCT:
                if at >= end:
                    return -1
                head = integer(data[at])
                at += 1
                room[depth, LEFT], room[depth, INNER] = head >> 4, head & 15
                if head >> 4 == 15:
                    room[depth, LEFT] = integer(number_at(data, at, end) & LOW_HALF)
                    at = after_number(data, at, end)
        elif kind not in (TRUE, FALSE):
            return -1
    return count if at <= end else -1
