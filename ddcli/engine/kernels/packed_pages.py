"""Values packed for Parquet's pages, and the index entries of pages: the writing counterpart of `pages`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.page_headers import (
    DELTAS,
    DICTIONARY_PAGE,
    ENCODING,
    END,
    HEADER,
    LOW,
    NUMBERS,
    PAGE,
    U7,
    UNENCODED,
    VALUES,
    integer,
)
from ddcli.engine.kernels.page_values import NUMBERED, OTHER, PLAIN
from ddcli.engine.kernels.xxhash import NULL, U0, U1, U8, U32, xxhash64

BLOCK: Final = 128
"""Differences of a block, or several times as many."""
HEAD: Final = 48
"""Bytes before the differences of a block, at most."""
SIZES: Final = 8
"""Bits for the size of a page's header; the bits above it are the page's end."""
FEWER, MORE, ENCODED, HIGHER, LONGER = -1, -2, -3, -4, -5
"""The result of `describe_pages` for unexpected pages."""


@inline
def put_number(out: np.ndarray, at: int, value: np.uint64) -> int:
    """Write an unsigned number of variable length; return where it ends."""
    while value > LOW:
        out[at] = np.uint8(value & LOW | np.uint64(128))
        value >>= U7
        at += 1
    out[at] = np.uint8(value)
    return at + 1


@inline
def unsigned(value: int) -> np.uint64:
    """Return the unsigned number that stands for a signed one: 0, -1, 1, -2, ... are 0, 1, 2, 3, ..."""
    return np.uint64(value) << U1 ^ np.uint64(value >> 63)


@inline
def narrowed(value: Any, narrow: int) -> Any:
    """Return the lowest bits of a number, 32 where it is narrow, with a sign."""
    if narrow:
        return integer(np.uint64(value) << U32) >> 32
    return value


@kernel("ViB")
def pack_deltas(values: np.ndarray, narrow: int, out: np.ndarray) -> int:
    """Write numbers as differences of neighbours, in one block, as wide as the largest in whole bytes; return how many bytes these are.

    The differences wrap around, and readers wrap around too. `out` has room for `HEAD` bytes and for a block of as many words as there are numbers, or more.
    """
    count = values.size
    block = BLOCK * max(1, (count + BLOCK - 2) // BLOCK)
    if out.size < HEAD + 8 * block:
        return -1
    at = put_number(out, 0, np.uint64(block))
    at = put_number(out, at, U1)
    at = put_number(out, at, np.uint64(count))
    at = put_number(out, at, unsigned(narrowed(values[0], narrow) if count > 0 else 0))
    if count < 2:
        return at
    least = narrowed(values[1] - values[0], narrow)
    for i in range(2, count):
        step = narrowed(values[i] - values[i - 1], narrow)
        least = min(least, step)
    widest = U0
    for i in range(1, count):
        above = np.uint64(narrowed(values[i] - values[i - 1], narrow) - least)
        if narrow:
            above &= np.uint64(0xFFFFFFFF)
        widest |= above
    size = 0
    while widest > U0:
        widest >>= U8
        size += 1
    at = put_number(out, at, unsigned(least))
    out[at] = np.uint8(8 * size)
    at += 1
    end = at + block * size
    for i in range(1, count):
        above = np.uint64(narrowed(values[i] - values[i - 1], narrow) - least)
        for _ in range(size):
            out[at] = np.uint8(above & np.uint64(0xFF))
            above >>= U8
            at += 1
    while at < end:
        out[at] = np.uint8(0)
        at += 1
    return at


@kernel("BMiVViiVi")
def describe_pages(
    data: np.ndarray,
    found: np.ndarray,
    count: int,
    forms: np.ndarray,
    rows: np.ndarray,
    start: int,
    wide: int,
    leaf: np.ndarray,
    place: int,
) -> int:
    """Write from `place` on in a leaf (see `page_index`) of each column where its pages end, how large their headers are, and their checksums.

    `found` are the `count` pages in `data` as `walk_pages` found them, which lie from `start` on in the file; `forms` are the columns',
    `rows` the number of rows of each page of a column. Up to `wide` pages have no rows. Returns where the last page ends, or one of the negative numbers above.
    """
    row = at = 0
    pages = rows.size
    if pages > wide or place + forms.size * (2 * wide + 3) > leaf.size:
        return HIGHER
    magic = 0 if start > 0 else 4
    for column in range(forms.size):
        form = forms[column]
        end = at if at > 0 else magic
        header = end - at
        if row < count and found[row, PAGE] == DICTIONARY_PAGE:
            end = found[row, END]
            header += found[row, HEADER]
            row += 1
        if row + pages > count:
            return FEWER
        leaf[place] = start + at
        for slot in range(wide + 1):
            if 0 < slot <= pages:
                if found[row, PAGE] == DICTIONARY_PAGE:
                    return MORE
                if form != OTHER:
                    wanted = NUMBERS if form & NUMBERED else UNENCODED if form & PLAIN else DELTAS
                    if found[row, ENCODING] != wanted:
                        return ENCODED
                    if found[row, VALUES] != rows[slot - 1]:
                        return HIGHER
                end = found[row, END]
                header = found[row, HEADER]
                row += 1
            elif slot > 0:
                header = 0
            if header >= 1 << SIZES:
                return LONGER
            leaf[place + 1 + slot] = (start + end) << SIZES | header
            digest = integer(xxhash64(data, at, end - at))
            leaf[place + wide + 2 + slot] = digest - 1 if digest == NULL else digest
            at = end
        place += 2 * wide + 3
    return at if row == count else MORE
