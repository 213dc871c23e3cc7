"""Headers of Parquet's pages: the places of pages, the number and encoding of their values.

They are structs in Thrift's compact protocol (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
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

TRUE, FALSE, BYTE, I16, I64, DOUBLE, BINARY, STRUCT = 1, 2, 3, 4, 6, 7, 8, 12
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
