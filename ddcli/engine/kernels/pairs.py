"""Pair equal numbers of two sides, each at most once. The numbers are hashes of rows that may be equal.

Many numbers are first distributed to parts by their leading bits, so that the table of a part fits the processor's cache. The right side's
numbers are in a table of open addressing, probed linearly, at most half full: a slot has the last place of a number, and `following` of each
place the one before it with the same number. A paired place is removed from its list, so that frequent numbers cost no
more than others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.pool_table import INLINE, LOW, same_bytes


@inline
def part_of(number: int, shift: int) -> Any:
    """Return the part of a number: its bits above `shift`."""
    return np.int64(np.uint64(number) >> np.uint64(shift))


@kernel("ViVVV")
def partition(numbers: np.ndarray, shift: int, ends: np.ndarray, distributed: np.ndarray, places: np.ndarray) -> int:
    """Write the numbers part by part, with their original places, and where each part ends. `ends` is all zero before."""
    for i in range(numbers.size):
        ends[part_of(numbers[i], shift)] += 1
    start = 0
    for part in range(ends.size):
        count = ends[part]
        ends[part] = start
        start += count
    for i in range(numbers.size):
        part = part_of(numbers[i], shift)
        distributed[ends[part]] = numbers[i]
        places[ends[part]] = i
        ends[part] += 1
    return 0


@inline
def slot_of_number(right: np.ndarray, firsts: np.ndarray, mask: int, number: int) -> int:
    """Return the slot of a number: the one that holds it, or the free one where it belongs. `firsts[slot]` is a place with the slot's number."""
    slot: int = number & mask
    while firsts[slot] >= 0 and right[firsts[slot]] != number:
        slot = (slot + 1) & mask
    return slot


@kernel("VVVVVVVV")
def pair(
    left: np.ndarray,
    right: np.ndarray,
    left_ends: np.ndarray,
    right_ends: np.ndarray,
    firsts: np.ndarray,
    slots: np.ndarray,
    following: np.ndarray,
    found: np.ndarray,
) -> int:
    """Write the partner on the right of each place on the left, or -1; return how many are paired.

    `firsts` and `slots` have room for a power of two that is at least twice the numbers of the largest part on the right, and larger.
    """
    count = 0
    start = 0
    begin = 0
    for part in range(left_ends.size):
        size = 2
        while size <= 2 * (right_ends[part] - start):
            size *= 2
        for slot in range(size):
            firsts[slot] = -1
            slots[slot] = -1
        for j in range(start, right_ends[part]):
            slot = slot_of_number(right, firsts, size - 1, right[j])
            if firsts[slot] < 0:
                firsts[slot] = j
            following[j] = slots[slot]
            slots[slot] = j
        for i in range(begin, left_ends[part]):
            slot = slot_of_number(right, firsts, size - 1, left[i])
            place = slots[slot]
            found[i] = place
            if place >= 0:
                slots[slot] = following[place]
                count += 1
        start = right_ends[part]
        begin = left_ends[part]
    return count


@kernel("VViVVV")
def pair_near(
    left: np.ndarray,
    right: np.ndarray,
    least: int,
    slots: np.ndarray,
    following: np.ndarray,
    found: np.ndarray,
) -> int:
    """Pair as `pair` does, where the numbers on the right are dense: from `least` on, in a range no larger than the number of slots."""
    count = 0
    last = least + slots.size - 1
    for slot in range(slots.size):
        slots[slot] = -1
    for j in range(right.size):
        following[j] = slots[right[j] - least]
        slots[right[j] - least] = j
    for i in range(left.size):
        found[i] = -1
        if least <= left[i] <= last:
            place = slots[left[i] - least]
            if place >= 0:
                found[i] = place
                slots[left[i] - least] = following[place]
                count += 1
    return count


@kernel("VVVB")
def keep_equal_words(left: np.ndarray, right: np.ndarray, found: np.ndarray, equal: np.ndarray) -> int:
    """Write 0 for each place on the left whose word differs from its partner's."""
    for i in range(found.size):
        if equal[i] != 0 and left[i] != right[found[i]]:
            equal[i] = 0
    return 0


@kernel("MVM")
def place_views(views: np.ndarray, bases: np.ndarray, placed: np.ndarray) -> int:
    """Write views of texts in which a long text's address replaces its buffer and offset; buffer b begins at bases[b].

    The view of a null may be anything, even one of a buffer that does not exist.
    """
    for i in range(views.shape[0]):
        buffer = views[i, 1] & LOW
        placed[i, 0] = views[i, 0]
        placed[i, 1] = views[i, 1]
        if (views[i, 0] & LOW) > INLINE and buffer < bases.size:
            placed[i, 1] = bases[buffer] + ((views[i, 1] >> 32) & LOW)
    return 0


@kernel("BiMMVB")
def keep_equal_texts(
    data: np.ndarray, base: int, left: np.ndarray, right: np.ndarray, found: np.ndarray, equal: np.ndarray
) -> int:
    """Write 0 for each place on the left whose text differs from its partner's; both sides are placed views, `data` is the memory from `base` on.

    The first word of a view is the length and the first four bytes. All of a null's bits are set.
    """
    for i in range(found.size):
        if equal[i] == 0:
            continue
        j = found[i]
        if left[i, 0] != right[j, 0]:
            equal[i] = 0
        elif left[i, 1] != right[j, 1]:
            length = left[i, 0] & LOW
            if length <= INLINE or not same_bytes(data, left[i, 1] - base, data, right[j, 1] - base, length):
                equal[i] = 0
    return 0
