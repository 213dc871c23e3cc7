"""The choice of batches, segments and small files to merge, in memory and on disk: pure functions of their sizes, so that they can be tested by simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BOUNDLESS = 1 << 63
"""A limit that no rows reach."""

RATIO = 2
"""Each batch is to be at least this many times the size of the next: then there are at most log2(rows) of them."""

FUEL = 8
"""Rows of merging paid for each row inserted: more than RATIO * log2(size) / size is ever owed, so merges keep up."""

LEAST_FUEL = 256
"""Rows of merging paid at each insertion, however small, so that a stream of tiny batches is merged as well."""

AT_ONCE = 8
"""The number of least portions up to which small batches are merged at once: to keep a merge under way would cost more."""

TOGETHER = 4
"""The number of least portions that are merged in one call: a call costs more than merging a few rows."""

WAITING = 8
"""The number of batches of a few rows that wait to be merged together: a lookup in one costs less than merging it."""

LARGE = 256
"""A batch is large if it has this many times the number of the keys looked up."""

MOST_RUNS = 16
"""The most runs of rounds, within one interval of a loop, that are kept apart."""

LITTLE = 100_000
"""Rows of an interval's rounds up to which they are merged at once, however many runs they are."""

ROWS_A_KEY = 2
"""Rows of runs that are merged for each key to look up in them: that takes as long as looking it up in some runs."""


def next_merge(sizes: Sequence[int], ratio: int = RATIO) -> int | None:
    """Return the index of the older of two adjacent batches to merge, the youngest such pair, or None.

    `sizes` runs from the oldest batch to the youngest; each is to be at least `ratio` times the next.

    >>> next_merge([100, 10, 9]), next_merge([1000, 100, 30], 4), next_merge([1000, 100, 10], 4)
    (1, 1, None)
    >>> next_merge([100, 40, 9]) is None
    True
    """
    return next((at for at in range(len(sizes) - 2, -1, -1) if sizes[at] < ratio * sizes[at + 1]), None)


def joins(size: int, rows: int, limit: int, ratio: int = RATIO, small: int = 0) -> bool:
    """Return whether a batch of `size` rows is merged at once with `rows` younger ones, which count as `small` at least: it is due, and both are at most `limit` rows."""
    return size < ratio * max(rows, small) and rows + size <= limit


def fold(sizes: Sequence[int], limit: int = BOUNDLESS, ratio: int = RATIO, small: int = 0) -> int:
    """Return the place of the oldest of the batches, or files, to merge with the youngest at once: those that are due, up to `limit` rows.

    So there are few, and a row is merged again a logarithmic number of times. `small` sizes are due in any case.

    >>> fold([1000, 100, 30, 10], 1000, 4), fold([1000, 100, 30, 10], 50, 4), fold([1000, 100, 10], 1000, 4)
    (1, 2, 2)
    >>> fold([900, 40, 2, 0]), fold([900, 40, 2, 0], small=30)
    (3, 1)
    """
    first, rows = len(sizes) - 1, sizes[-1]
    while first and joins(sizes[first - 1], rows, limit, ratio, small):
        first -= 1
        rows += sizes[first]
    return first


def fuel(inserted: int) -> int:
    """Return how many rows each merge under way may process after `inserted` rows came in."""
    return max(LEAST_FUEL, FUEL * inserted)


def waits(inserted: int, waiting: int) -> bool:
    """Return whether a batch of `inserted` rows waits, behind `waiting` others, to be merged with the next ones."""
    return 0 < FUEL * inserted <= LEAST_FUEL and waiting < WAITING


def to_join(sizes: Sequence[int]) -> int:
    """Return how many of the smallest runs of an interval to merge at once: all, or those that are a quarter of the rows.

    >>> to_join([10, 20, 30]), to_join([10**6, 10**5, 10**5, 10**6])
    (3, 2)
    """
    return _smallest(sizes, max(LITTLE, sum(sizes) // 4))


def to_fold(sizes: Sequence[int], keys: int) -> int:
    """Return how many of the smallest runs to merge before `keys` keys are looked up in each: never a large part of all rows.

    >>> to_fold([1000, 500, 40, 30, 20], 45), to_fold([1000, 500, 40, 30, 20], 25), to_fold([10, 20], 1000)
    (3, 2, 0)
    """
    return _smallest(sizes, min(ROWS_A_KEY * keys, sum(sizes) // 4))


def _smallest(sizes: Sequence[int], budget: int) -> int:
    """Return how many of the smallest sizes fit into a budget together."""
    count = 0
    for size in sorted(sizes):
        budget -= size
        if budget < 0:
            break
        count += 1
    return count
