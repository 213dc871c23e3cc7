"""Pair equal numbers of two sides, each once at most, as hashes of rows that may be equal are paired.

Many numbers are dealt to parts first, by their first bits, so that what is looked up of a part lies in the processor's cache. The right side's
numbers are in a table of open addressing, probed linearly, at most half full: a slot has the last place of a number, and `following` of each
place the one before it with the same number. A place that is paired is taken off its list, so that numbers which are often there cost no
more than others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.xxhash import whole


@inline
def part_of(number: int, shift: int) -> Any:
    """Return the part of a number: its bits above `shift`."""
    return np.int64(np.uint64(number) >> np.uint64(shift))


@kernel("ViVVV")
def deal(numbers: np.ndarray, shift: int, ends: np.ndarray, dealt: np.ndarray, places: np.ndarray) -> int:
    """Write the numbers part by part, with the place that each had, and where each part ends. `ends` is filled with zeros."""
    for i in range(numbers.size):
        ends[part_of(numbers[i], shift)] += 1
    start = 0
    for part in range(ends.size):
        count = ends[part]
        ends[part] = start
        start += count
    for i in range(numbers.size):
        part = part_of(numbers[i], shift)
        dealt[ends[part]] = numbers[i]
        places[ends[part]] = i
        ends[part] += 1
    return 0


@inline
def slot_of_number(right: np.ndarray, firsts: np.ndarray, mask: int, number: int) -> int:
    """Return the slot of a number: the one that has it, or the free one where it belongs. `firsts[slot]` is a place that has the slot's number."""
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
    """Write for each place of the left side the one of the right that it is paired with, or -1; return how many are paired.

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


@kernel("VBVBVVB")
def keep_equal_texts(
    left_ends: np.ndarray,
    left: np.ndarray,
    right_ends: np.ndarray,
    right: np.ndarray,
    places: np.ndarray,
    others: np.ndarray,
    equal: np.ndarray,
) -> int:
    """Write 0 for each pair of places that have different texts; text `i` of a side has the bytes from `ends[i]` to `ends[i + 1]`."""
    for i in range(places.size):
        start = left_ends[places[i]]
        begin = right_ends[others[i]]
        length = left_ends[places[i] + 1] - start
        same = right_ends[others[i] + 1] - begin == length
        at = 0
        while same and at + 8 <= length:
            same = whole(left, np.uint64(start + at)) == whole(right, np.uint64(begin + at))
            at += 8
        while same and at < length:
            same = left[start + at] == right[begin + at]
            at += 1
        if not same:
            equal[i] = 0
    return 0
