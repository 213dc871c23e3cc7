"""Values of a page of Parquet, read in place: the form of a column's pages, and their decoders.

https://parquet.apache.org/docs/file-format/data-pages/encodings/ describes the encodings. Data pages are of version 1, without
compression (`page_headers` finds them). A page's checksum is compared before it is read (see `hash_ranges`). Even so no kernel uses a byte outside of a page, and no bytes of a page
make one read or write outside of its arrays.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.hashes import NULL, U0, U64, half, whole
from ddcli.engine.kernels.page_headers import LOW_HALF, after_number, integer, number_at, signed

NARROW: Final = 1
NULLABLE: Final = 2
NUMBERED: Final = 4
UNSIGNED: Final = 8
FLIPPED: Final = 16
FLAGGED: Final = 32
FLOAT: Final = 64
TEXT: Final = 128
PLAIN: Final = 256
WIDTH: Final = 9
"""The form of a column's pages, a sum of flags: values of 32 bits, nulls, indices into a dictionary, 32 bits without a sign; how a lane holds
64 bits: with the sign bit flipped, behind a lane that flags nulls, in the order of floats; texts, which are represented by their indices into the dictionary;
plain values in compressed pages. From the bit `WIDTH` on the form has a number: the bytes of a wide decimal, big end first, which takes two lanes."""
OTHER: Final = -1
"""The form of pages that no kernel reads, only a library for Parquet."""
WIDEST: Final = 16
SLACK: Final = 8
"""Bytes that follow every page: integers are read eight bytes at a time."""
ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)
SIGN_32: Final = np.uint64(0x80000000)
SIGN_64: Final = np.uint64(0x8000000000000000)
LOW_BITS: Final = np.uint64(0x7FFFFFFFFFFFFFFF)
WIDEST_WORD: Final = 57
"""Bits that eight bytes have from any bit of the first byte on."""


@inline
def read_deltas(data: np.ndarray, at: int, end: int, count: int, out: np.ndarray) -> int:
    """Write the first `count` > 0 values packed as differences in data[at:end]; return 0, or -1 where the bytes are not so encoded."""
    block = integer(number_at(data, at, end) & LOW_HALF)
    at = after_number(data, at, end)
    parts = integer(number_at(data, at, end) & LOW_HALF)
    at = after_number(data, at, end)
    total = integer(number_at(data, at, end) & LOW_HALF)
    at = after_number(data, at, end)
    value = signed(number_at(data, at, end))
    at = after_number(data, at, end)
    if at > end or total < count or parts < 1 or block < 8 * parts or block % (8 * parts) != 0:
        return -1
    each = block // parts
    out[0] = value
    i = 1
    while i < count:
        least = signed(number_at(data, at, end))
        widths = after_number(data, at, end)
        at = widths + parts
        if at > end:
            return -1
        for part in range(parts):
            if i >= count:
                break
            width = integer(data[widths + part])
            size = width * each // 8
            if width > 64 or size > end - at or at + size + SLACK > data.shape[0]:
                return -1
            stop = min(i + each, count)
            bit = 0
            if width == 0:
                while i < stop:
                    value += least
                    out[i] = value
                    i += 1
            elif width <= WIDEST_WORD:
                mask = ALL >> (U64 - np.uint64(width))
                while i < stop:
                    value += least + (whole(data, np.uint64(at + (bit >> 3))) >> np.uint64(bit & 7) & mask)
                    out[i] = value
                    bit += width
                    i += 1
            else:
                mask = ALL >> (U64 - np.uint64(width))
                while i < stop:
                    byte = at + (bit >> 3)
                    shift = np.uint64(bit & 7)
                    word = whole(data, np.uint64(byte)) >> shift
                    if shift > U0:
                        word |= np.uint64(data[byte + 8]) << (U64 - shift)
                    value += least + (word & mask)
                    out[i] = value
                    bit += width
                    i += 1
            at += size
    return 0


@inline
def read_runs(data: np.ndarray, at: int, end: int, width: int, count: int, out: np.ndarray) -> int:
    """Write the first `count` numbers of `width` bits in data[at:end], runs of equal ones and packed ones; return 0, or -1 as `read_deltas`."""
    if width > 32:
        return -1
    mask = ALL >> (U64 - np.uint64(width)) if width > 0 else U0
    i = 0
    while i < count:
        head = integer(number_at(data, at, end) & LOW_HALF)
        at = after_number(data, at, end)
        length = head >> 1
        if at > end or length == 0:
            return -1
        if head & 1:
            size = length * width
            if size > end - at or at + size + SLACK > data.shape[0]:
                return -1
            stop = min(i + 8 * length, count)
            bit = 0
            while i < stop:
                out[i] = whole(data, np.uint64(at + (bit >> 3))) >> np.uint64(bit & 7) & mask
                bit += width
                i += 1
        else:
            size = (width + 7) >> 3
            if size > end - at or at + SLACK > data.shape[0]:
                return -1
            value = whole(data, np.uint64(at)) & mask
            stop = min(i + length, count)
            while i < stop:
                out[i] = value
                i += 1
        at += size
    return 0


@inline
def start_of(data: np.ndarray, pages: np.ndarray, page: int, count: int, form: int, levels: np.ndarray) -> int:
    """Return where the values of a page begin, or -1 as `read_deltas` does; for a nullable column, write which of the first rows have a value."""
    at: int = pages[page, 0]
    end = pages[page, 1]
    if at < 0 or end < at or end > data.shape[0] - SLACK or count < 0 or count > levels.size:
        return -1
    if form & NULLABLE:
        if end - at < 4:
            return -1
        length = integer(half(data, np.uint64(at)))
        at += 4
        if length > end - at or read_runs(data, at, at + length, 1, count, levels) < 0:
            return -1
        at += length
    return at


@inline
def read_page(
    data: np.ndarray, pages: np.ndarray, page: int, count: int, form: int, values: np.ndarray, levels: np.ndarray
) -> int:
    """Write the first `count` rows of a page: the bits of their lanes, for wide decimals their positions, and for a nullable column which are not null.

    Returns 0, or -1 as `read_deltas` does.
    """
    at = start_of(data, pages, page, count, form, levels)
    end = pages[page, 1]
    wide = form >> WIDTH
    if at < 0 or count > values.size or wide < 0 or wide > WIDEST or 0 < wide <= 8:
        return -1
    present = count
    if form & NULLABLE:
        present = 0
        for i in range(count):
            present += integer(levels[i])
    if present > 0:
        if form & NUMBERED:
            if at >= end or read_runs(data, at + 1, end, integer(data[at]), present, values) < 0:
                return -1
            if not form & TEXT and look_up(data, pages[page, 3], pages[page, 4], form, present, values) < 0:
                return -1
        elif form & PLAIN:
            size = wide if wide > 0 else 8
            if size * present > end - at:
                return -1
            for i in range(present):
                place = np.uint64(at + size * i)
                values[i] = place if wide > 0 else whole(data, place)
        elif read_deltas(data, at, end, present, values) < 0:
            return -1
        to_lanes(values, present, form)
    if present < count:
        i = count - 1
        while i >= 0:
            if levels[i] > U0:
                present -= 1
                values[i] = values[present]
            else:
                values[i] = U0
            i -= 1
    return 0


@inline
def look_up(data: np.ndarray, start: int, end: int, form: int, count: int, values: np.ndarray) -> int:
    """Replace indices by the values of the dictionary in data[start:end], for wide decimals by their positions; return 0, or -1 for an index beyond the dictionary."""
    wide = form >> WIDTH
    size = wide if wide > 0 else 4 if form & NARROW else 8
    if start < 0 or end < start or end > data.shape[0] - SLACK:
        return -1
    known = np.uint64((end - start) // size)
    for i in range(count):
        if values[i] >= known:
            return -1
        at = np.uint64(start) + values[i] * np.uint64(size)
        if wide > 0:
            values[i] = at
        else:
            values[i] = np.uint64(half(data, at)) if form & NARROW else whole(data, at)
    return 0


@inline
def to_lanes(values: np.ndarray, count: int, form: int) -> None:
    """Turn the first stored values into the bits of lanes. A loop handles one form only, so that it is compiled into vector instructions."""
    if form & NARROW:
        if form & UNSIGNED:
            for i in range(count):
                values[i] &= LOW_HALF
        else:
            for i in range(count):
                values[i] = (values[i] & LOW_HALF ^ SIGN_32) - SIGN_32
    if form & FLIPPED:
        for i in range(count):
            values[i] ^= SIGN_64
    if form & FLOAT:
        for i in range(count):
            if values[i] >= SIGN_64:
                values[i] ^= LOW_BITS


@inline
def big_end(data: np.ndarray, at: int, size: int) -> int:
    """Return the signed number in so many bytes, 1 to 8, the big end first."""
    bits = U0
    for i in range(size):
        bits = bits << np.uint64(8) | np.uint64(data[at + i])
    spare = U64 - np.uint64(8 * size)
    number: int = integer(bits << spare) >> integer(spare)
    return number


@inline
def write_lanes(
    data: np.ndarray, values: np.ndarray, levels: np.ndarray, i: int, form: int, out: np.ndarray, row: int, lane: int
) -> None:
    """Write the lanes of a value that was read from a page to a row."""
    wide = form >> WIDTH
    null = form & NULLABLE and levels[i] == U0
    if wide > 0:
        at = integer(values[i])
        out[row, lane] = NULL if null else big_end(data, at, wide - 8)
        out[row, lane + 1] = 0 if null else integer(np.uint64(big_end(data, at + wide - 8, 8)) ^ SIGN_64)
    elif form & FLAGGED:
        out[row, lane] = 1 if null else 0
        out[row, lane + 1] = 0 if null else integer(values[i])
    else:
        out[row, lane] = NULL if null else integer(values[i])
