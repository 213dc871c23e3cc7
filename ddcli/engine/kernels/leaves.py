"""The pages of a batch file that its leaves name (see `store.batch.page_index`): those that can have a key, their places, their checksums.

A leaf is a row of numbers: the first key of each page; then, for each column, the begin of the bytes before its pages, the ends of these bytes and of each page,
with the size of its header, and the checksums of both.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.packed_pages import SIZES
from ddcli.engine.kernels.xxhash import NULL, xxhash64

HEADERS: Final = (1 << SIZES) - 1


@inline
def compare_from(keys: np.ndarray, k: int, m: np.ndarray, row: int, first: int) -> int:
    """Return -1, 0 or 1 as key k is before, equal to or after the lanes of a row of `m` from the lane `first` on."""
    for c in range(keys.shape[1]):
        x = keys[k, c]
        y = m[row, first + c]
        if x != y:
            return -1 if x < y else 1
    return 0


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
            while k < keys.shape[0] and compare_from(keys, k, leaves, place, number * lanes) < 0:
                k += 1
            if k == keys.shape[0]:
                return count
            # A key's rows may begin in the page before one that begins with it: a page has keys up to the next one's first.
            if number + 1 < pages:
                order = compare_from(keys, k, leaves, place, (number + 1) * lanes)
            else:
                order = compare_from(keys, k, after, place, 0)
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
