"""Pages of Parquet made of lanes, and their entries in an index: integers as differences of neighbours, or as numbers of a dictionary's entries.

`pages` reads them: data pages of version 1, without compression, differences in blocks of 128 in four parts, as other writers of Parquet
make them. A page's body is written behind a gap: its header, which comes first, has the body's length.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.hashes import NULL, PRIME_1, U0, U1, U8, U32, xxhash64
from ddcli.engine.kernels.page_headers import (
    DELTAS,
    DICTIONARY_PAGE,
    ENCODING,
    END,
    HEADER,
    LOW,
    LOW_HALF,
    NUMBERS,
    PAGE,
    U7,
    UNENCODED,
    VALUES,
    integer,
)
from ddcli.engine.kernels.page_values import ALL, FLAGGED, FLIPPED, NARROW, NULLABLE, NUMBERED, OTHER, PLAIN, SIGN_64
from ddcli.engine.kernels.sort_rows import bits_of

PARTS: Final = 4
EACH: Final = 32  # values of a part: a block's among four
GAP: Final = 64  # bytes left for a header
PAGE_BYTES: Final = 2048
"""Bytes that a page may take beside 8 for each value: headers, levels, widths, and values that fill up the last part."""
FULL: Final = -1
BYTE: Final = np.uint64(0xFF)
LEVELS: Final = 3
WORD: Final = 8


@inline
def put_bits(values: np.ndarray, begin: int, end: int, count: int, width: int, words: np.ndarray, at: int) -> int:
    """Write values[begin:end], each in `width` > 0 bits, as if zeros followed up to `count`; return where they end.

    `words` are the bytes to write to, from byte `at` on. Up to eight bytes after the end may be overwritten.
    """
    place = at >> 3
    filled = 8 * (at & 7)
    word = words[place] & ~(ALL << np.uint64(filled))
    for i in range(begin, end):
        x = np.uint64(values[i])
        word |= x << np.uint64(filled)
        filled += width
        if filled >= 64:
            words[place] = word
            place += 1
            filled -= 64
            word = x >> np.uint64(width - filled) if filled > 0 else U0
    words[place] = word
    stop = at + (count * width + 7) // 8
    while place < stop >> 3:
        place += 1
        words[place] = U0
    return stop


@inline
def put_differences(
    values: np.ndarray, count: int, narrow: int, steps: np.ndarray, out: np.ndarray, words: np.ndarray, at: int
) -> int:
    """Write values as differences, which wrap around in 64 bits, or 32 where `narrow`; return where they end."""
    at = put_number(out, at, np.uint64(BLOCK))
    at = put_number(out, at, np.uint64(PARTS))
    at = put_number(out, at, np.uint64(count))
    at = put_number(out, at, unsigned(values[0]) if count > 0 else U0)
    mask = LOW_HALF if narrow else ALL
    i = 1
    while i < count:
        some = min(BLOCK, count - i)
        least = NULL
        for j in range(some):
            step = np.uint64(values[i + j]) - np.uint64(values[i + j - 1])
            if narrow:
                step = np.uint64(narrowed(integer(step), 1))
            steps[j] = integer(step)
            least = min(least, steps[j])
        at = put_number(out, at, unsigned(least))
        widths = at
        at += PARTS
        for part in range(PARTS):
            begin = part * EACH
            end = min(begin + EACH, some)
            union = U0
            for j in range(begin, end):
                above = np.uint64(steps[j]) - np.uint64(least) & mask
                union |= above
                steps[j] = integer(above)
            width = bits_of(union)
            out[widths + part] = np.uint8(width)
            if width > 0:
                at = put_bits(steps, begin, end, EACH, width, words, at)
        i += some
    return at


@inline
def put_runs(
    numbers: np.ndarray, begin: int, count: int, width: int, out: np.ndarray, words: np.ndarray, at: int
) -> int:
    """Write numbers[begin:count] of `width` > 0 bits as runs of equal ones and packed ones, eight of these at a time; return where they end."""
    packed = begin
    i = begin
    while i < count:
        stop = i + 1
        while stop < count and numbers[stop] == numbers[i]:
            stop += 1
        if stop - i < WORD and stop < count:
            i = min(i + WORD, count)
            if i < count:
                continue
            stop = i
        if packed < i:
            groups = (i - packed + 7) // 8
            at = put_number(out, at, np.uint64(groups << 1 | 1))
            at = put_bits(numbers, packed, i, groups * 8, width, words, at)
        if stop > i:
            at = put_number(out, at, np.uint64((stop - i) << 1))
            word = np.uint64(numbers[i])
            for _ in range((width + 7) // 8):
                out[at] = np.uint8(word & BYTE)
                word >>= U8
                at += 1
        i = stop
        packed = i
    return at


@inline
def put_levels(there: np.ndarray, count: int, out: np.ndarray, words: np.ndarray, at: int) -> int:
    """Write the definition levels that precede a page's values: which of them are not null; return where they end."""
    end = put_runs(there, 0, count, 1, out, words, at + 4)
    size = np.uint64(end - at - 4)
    for k in range(4):
        out[at + k] = np.uint8(size >> np.uint64(8 * k) & BYTE)
    return end


@inline
def close_page(out: np.ndarray, at: int, end: int, count: int, encoding: int) -> int:
    """Write the header of a page whose body is behind a gap, up to `end`, and move the body to it; return the end of the page.

    `encoding` is Parquet's number, that of the values as they are (0) for a dictionary.
    """
    size = end - at - GAP
    place = at
    kind = DICTIONARY_PAGE if encoding == 0 else 0
    for value in (kind, size, size):
        out[place] = np.uint8(0x15)
        place = put_number(out, place + 1, np.uint64(value << 1))
    out[place] = np.uint8(0x4C) if encoding == 0 else np.uint8(0x2C)
    place += 1
    for value in (count, encoding):
        out[place] = np.uint8(0x15)
        place = put_number(out, place + 1, np.uint64(value << 1))
    if encoding != 0:
        for _ in range(2):
            out[place] = np.uint8(0x15)
            out[place + 1] = np.uint8(LEVELS << 1)
            place += 2
    out[place] = np.uint8(0)
    out[place + 1] = np.uint8(0)
    place += 2
    for k in range(size):
        out[place + k] = out[at + GAP + k]
    return place + size


@inline
def width_of(m: np.ndarray, form: int) -> Any:
    """Return how many lanes of a row a column of this form can begin at."""
    return m.shape[1] - 1 if form & FLAGGED else m.shape[1]


@inline
def load(m: np.ndarray, begin: int, end: int, lane: int, form: int, there: np.ndarray, values: np.ndarray) -> int:
    """Write which rows have a value in a column, and these values as Parquet stores them; return how many they are."""
    place = lane + 1 if form & FLAGGED else lane
    count = 0
    for i in range(begin, end):
        here = 1
        if form & FLAGGED:
            here = 1 if m[i, lane] == 0 else 0
        elif form & NULLABLE:
            here = 0 if m[i, lane] == NULL else 1
        there[i - begin] = here
        value = np.uint64(m[i, place])
        if form & FLIPPED:
            value ^= SIGN_64
        if form & NARROW:
            value = np.uint64(narrowed(integer(value), 1))
        values[count] = integer(value)
        count += here
    return count


@kernel("MiiiVVVBU")
def pack_differences(
    m: np.ndarray,
    lane: int,
    form: int,
    page: int,
    there: np.ndarray,
    values: np.ndarray,
    steps: np.ndarray,
    out: np.ndarray,
    words: np.ndarray,
) -> int:
    """Write a column's pages of so many rows, its values as differences; return how many bytes, or FULL.

    `there` and `values` have room for the rows of a page, `steps` for a block. `words` is the memory of `out`.
    """
    if not 0 <= lane < width_of(m, form) or page < 1 or steps.size < BLOCK:
        return FULL
    if min(page, m.shape[0]) > min(there.size, values.size):
        return FULL
    at = 0
    for begin in range(0, m.shape[0], page):
        end = min(begin + page, m.shape[0])
        if min(out.size, 8 * words.size) - at < WORD * (end - begin) + PAGE_BYTES:
            return FULL
        count = load(m, begin, end, lane, form, there, values)
        body = at + GAP
        if form & NULLABLE:
            body = put_levels(there, end - begin, out, words, body)
        body = put_differences(values, count, form & NARROW, steps, out, words, body)
        at = close_page(out, at, body, end - begin, DELTAS)
    return at


@kernel("MiiVVVVH")
def number_values(
    m: np.ndarray,
    lane: int,
    form: int,
    there: np.ndarray,
    values: np.ndarray,
    numbers: np.ndarray,
    known: np.ndarray,
    table: np.ndarray,
) -> int:
    """Write the numbers of a column's values that are not null, in the order of their first occurrence; return how many are distinct, or FULL.

    `there`, `values` and `numbers` have room for the rows, `known` for the distinct values. `table` is zero and has a power of two of slots; at
    most half of them get filled.
    """
    rows = m.shape[0]
    if not 0 <= lane < width_of(m, form) or rows > min(there.size, values.size, numbers.size):
        return FULL
    count = load(m, 0, rows, lane, form, there, values)
    shift = np.uint64(64 - bits_of(np.uint64(table.size - 1)))
    distinct = 0
    for i in range(count):
        value = values[i]
        if i > 0 and value == values[i - 1]:
            numbers[i] = numbers[i - 1]
            continue
        slot = integer(np.uint64(value) * PRIME_1 >> shift)
        while table[slot] > 0 and known[integer(table[slot]) - 1] != value:
            slot = slot + 1 if slot + 1 < table.size else 0
        if table[slot] == 0:
            if 2 * distinct >= table.size or distinct == known.size:
                return FULL
            known[distinct] = value
            distinct += 1
            table[slot] = np.uint32(distinct)
        numbers[i] = integer(table[slot]) - 1
    return distinct


@kernel("iiiVVViBU")
def pack_numbers(
    rows: int,
    form: int,
    page: int,
    there: np.ndarray,
    numbers: np.ndarray,
    known: np.ndarray,
    distinct: int,
    out: np.ndarray,
    words: np.ndarray,
) -> int:
    """Write a column that `number_values` has numbered as a dictionary and pages of so many rows; return how many bytes, or FULL.

    `words` is the memory of `out`. The first value of `known` becomes the size of the dictionary's page.
    """
    if page < 1 or distinct < 0 or distinct > known.size or known.size == 0 or rows > min(there.size, numbers.size):
        return FULL
    each = 4 if form & NARROW else 8
    if min(out.size, 8 * words.size) < each * distinct + PAGE_BYTES:
        return FULL
    at = GAP
    for k in range(distinct):
        if form & NARROW:
            known[k] = integer(np.uint64(known[k]) & LOW_HALF)
        at = put_bits(known, k, k + 1, 1, 8 * each, words, at)
    at = close_page(out, 0, at, distinct, 0)
    known[0] = at
    width = max(1, bits_of(np.uint64(max(distinct - 1, 0))))
    first = 0
    for begin in range(0, rows, page):
        end = min(begin + page, rows)
        if min(out.size, 8 * words.size) - at < WORD * (end - begin) + PAGE_BYTES:
            return FULL
        body = at + GAP
        count = end - begin
        if form & NULLABLE:
            body = put_levels(there[begin:end], end - begin, out, words, body)
            count = 0
            for i in range(begin, end):
                count += there[i]
        out[body] = np.uint8(width)
        body = put_runs(numbers, first, first + count, width, out, words, body + 1)
        first += count
        at = close_page(out, at, body, end - begin, NUMBERS)
    return at


BLOCK: Final = 128
"""Differences of a block."""
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
