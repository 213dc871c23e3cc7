"""Pages of Parquet, looked up by the leaves of a batch file and read in place: the rows with some keys, and their values (see `page_values`).

A leaf (see `store.batch.page_index`) is a row of numbers: the first key of each page; then, for each column, the begin of the bytes before its pages,
the ends of these bytes and of each page, with the size of its header, and the checksums of both.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.hashes import NULL, U0, half, xxhash64
from ddcli.engine.kernels.page_headers import integer
from ddcli.engine.kernels.page_values import FLAGGED, NULLABLE, SLACK, WIDTH, read_page, start_of, write_lanes
from ddcli.engine.kernels.page_writer import SIZES
from ddcli.engine.kernels.rows import compare, compare_at


@inline
def after_less(values: np.ndarray, start: int, end: int, wanted: int) -> int:
    """Return the first of values[start:end], which ascend, that is not less than a wanted one: galloping reads only a few of them."""
    low = start
    high = start
    step = 1
    while high < end and integer(values[high]) < wanted:
        low = high + 1
        high += step
        step += step
    high = min(high, end)
    while low < high:
        middle = (low + high) >> 1
        if integer(values[middle]) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel("BMVUUVVVi")
def find_rows(
    data: np.ndarray,
    pages: np.ndarray,
    wanted: np.ndarray,
    values: np.ndarray,
    levels: np.ndarray,
    counts: np.ndarray,
    rows: np.ndarray,
    lanes: np.ndarray,
    form: int,
) -> int:
    """Write the numbers, within their pages, of the rows with a wanted lane, these lanes, and the count of each page; return the count of all.

    `pages` are (n, 5): begin and end of the page's values and the number of its rows, begin and end of its dictionary; `wanted` and the values of all
    pages, one after the other, ascend. `rows` and `lanes` have room for all rows of the pages. Returns -1 for a page that can't be read.
    """
    total = 0
    w = 0
    for page in range(pages.shape[0]):
        if read_page(data, pages, page, pages[page, 2], form, values, levels) < 0:
            return -1
        before = total
        i = 0
        while i < pages[page, 2] and w < wanted.size:
            lane = integer(values[i])
            if lane < wanted[w]:
                i = after_less(values, i + 1, pages[page, 2], wanted[w])
            elif lane > wanted[w]:
                w += 1
            else:
                rows[total] = i
                lanes[total] = lane
                total += 1
                i += 1
        counts[page] = total - before
    return total


@kernel("BMVVUUMii")
def pick_values(
    data: np.ndarray,
    pages: np.ndarray,
    counts: np.ndarray,
    rows: np.ndarray,
    values: np.ndarray,
    levels: np.ndarray,
    out: np.ndarray,
    lane: int,
    form: int,
) -> int:
    """Write the lanes of some rows of pages, as `find_rows` found them, or of all rows where `counts` is empty; return how many they are.

    Returns -1 for a page that can't be read, and for rows that do not exist.
    """
    wide = form >> WIDTH
    width = 2 if form & FLAGGED or wide > 0 else 1
    some = counts.size > 0
    if lane < 0 or lane + width > out.shape[1] or (some and counts.size < pages.shape[0]):
        return -1
    o = 0
    for page in range(pages.shape[0]):
        count = counts[page] if some else pages[page, 2]
        if count < 0 or count > out.shape[0] - o or (some and count > rows.size - o):
            return -1
        read = rows[o + count - 1] + 1 if some and count > 0 else count
        if read > pages[page, 2] or read_page(data, pages, page, read, form, values, levels) < 0:
            return -1
        if not some and not form & NULLABLE and wide == 0:
            for i in range(count):
                out[o + i, lane] = integer(values[i])
        else:
            for k in range(count):
                i = rows[o + k] if some else k
                if i < 0 or i >= read:
                    return -1
                write_lanes(data, values, levels, i, form, out, o + k, lane)
        o += count
    return o


@kernel("BMVVUVVi")
def pick_texts(
    data: np.ndarray,
    pages: np.ndarray,
    counts: np.ndarray,
    rows: np.ndarray,
    levels: np.ndarray,
    starts: np.ndarray,
    lengths: np.ndarray,
    form: int,
) -> int:
    """Write where the texts of some rows of pages begin and how long they are, -1 for null; the rows and the returned number are as in `pick_values`."""
    some = counts.size > 0
    if some and counts.size < pages.shape[0]:
        return -1
    o = 0
    for page in range(pages.shape[0]):
        end = pages[page, 1]
        at = start_of(data, pages, page, pages[page, 2], form, levels)
        count = counts[page] if some else pages[page, 2]
        if at < 0 or count < 0 or count > min(starts.size, lengths.size) - o or (some and count > rows.size - o):
            return -1
        k = 0
        i = 0
        while k < count and i < pages[page, 2]:
            wanted = not some or rows[o + k] == i
            null = form & NULLABLE and levels[i] == U0
            length = -1
            if not null:
                if end - at < 4:
                    return -1
                length = integer(half(data, np.uint64(at)))
                at += 4
                if length > end - at:
                    return -1
            if wanted:
                starts[o + k] = 0 if null else at
                lengths[o + k] = length
                k += 1
            if not null:
                at += length
            i += 1
        if k < count:
            return -1
        o += count
    return o


@kernel("BiiVV")
def split_texts(data: np.ndarray, start: int, end: int, starts: np.ndarray, lengths: np.ndarray) -> int:
    """Write where the texts of a dictionary in data[start:end] begin and how long they are; return how many they are, or -1 where the bytes are no dictionary."""
    if start < 0 or end < start or end > data.shape[0] - SLACK:
        return -1
    at = start
    count = 0
    while at < end:
        if end - at < 4 or count == min(starts.size, lengths.size):
            return -1
        length = integer(half(data, np.uint64(at)))
        at += 4
        if length > end - at:
            return -1
        starts[count] = at
        lengths[count] = length
        at += length
        count += 1
    return count


HEADERS: Final = (1 << SIZES) - 1


@kernel("MMVMiiiM")
def find_pages(
    leaves: np.ndarray,
    after: np.ndarray,
    heights: np.ndarray,
    keys: np.ndarray,
    pages: int,
    page: int,
    lanes: int,
    found: np.ndarray,
) -> int:
    """Write each page that can have one of the sorted keys, as [leaf | number there | rows]; return how many pages there are.

    A leaf has `pages` pages of `page` rows, `lanes` lanes of each page's key, and `heights` rows in all; `after` has the key with which the next leaf begins.
    """
    count = 0
    k = 0
    for place in range(leaves.shape[0]):
        for number in range(pages):
            rows = min(heights[place] - number * page, page)
            if rows <= 0:
                break
            while k < keys.shape[0] and compare_at(keys, k, 0, leaves, place, number * lanes, keys.shape[1]) < 0:
                k += 1
            if k == keys.shape[0]:
                return count
            # A key's rows may begin in the page before one that begins with it: a page has keys up to the next one's first.
            if number + 1 < pages:
                order = compare_at(keys, k, 0, leaves, place, (number + 1) * lanes, keys.shape[1])
            else:
                order = compare(keys, k, after, place, keys.shape[1])
            if order <= 0:
                found[count, 0] = place
                found[count, 1] = number
                found[count, 2] = rows
                count += 1
    return count


@kernel("MMiiVM")
def locate_pages(
    leaves: np.ndarray, chosen: np.ndarray, column: int, pages: int, starts: np.ndarray, table: np.ndarray
) -> int:
    """Write where pages of a column, [leaf | number there | rows], begin, and, as `find_rows` takes them, where their values begin and end, their rows, and the bytes before the leaf's pages.

    The leaf's numbers of the column begin at `column`.
    """
    for i in range(chosen.shape[0]):
        place = chosen[i, 0]
        number = chosen[i, 1]
        if number < 0 or number >= pages:
            return -1
        start = leaves[place, column + 1 + number] >> SIZES
        packed = leaves[place, column + 2 + number]
        before = leaves[place, column + 1]
        starts[i] = start
        table[i, 0] = start + (packed & HEADERS)
        table[i, 1] = packed >> SIZES
        table[i, 2] = chosen[i, 2]
        table[i, 3] = leaves[place, column] + (before & HEADERS)
        table[i, 4] = before >> SIZES
    return 0


@inline
def is_sound(data: np.ndarray, start: int, body: int, end: int, checksum: int) -> bool:
    """Return whether a range of bytes has its checksum."""
    if start < 0 or end > data.shape[0] or end < body or body < start:
        return False
    found = np.int64(xxhash64(data, start, end - start))
    sound: bool = found - (found == NULL) == checksum
    return sound


@kernel("BMMiiiVM")
def are_sound(
    data: np.ndarray,
    leaves: np.ndarray,
    chosen: np.ndarray,
    column: int,
    pages: int,
    numbered: int,
    starts: np.ndarray,
    table: np.ndarray,
) -> int:
    """Return 1 if the located pages have their checksums, and, of a `numbered` column, the bytes before them too; else 0."""
    sums = column + pages + 2
    known = -1
    for i in range(chosen.shape[0]):
        place = chosen[i, 0]
        if not is_sound(data, starts[i], table[i, 0], table[i, 1], leaves[place, sums + 1 + chosen[i, 1]]):
            return 0
        if numbered and place != known:
            if not is_sound(data, leaves[place, column], table[i, 3], table[i, 4], leaves[place, sums]):
                return 0
            known = place
    return 1
