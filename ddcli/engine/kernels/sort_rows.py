"""The order of some rows by their lanes, found within the processor's cache: helpers compiled into the kernels that sort.

Lanes are packed, each as narrow as its values allow, into words of 64 bits, and those are sorted by radix from the last word to the
first. Constant lanes cost nothing. Ranges of lanes are computed unsigned: compiled code assumes that signed arithmetic does
not overflow.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.rows import add_row, close_rows, copy_row

PIECE_BITS: Final = 15
DIGIT: Final = 11  # most bits of a radix digit
LEAD_DIGIT: Final = 9  # bits of a digit; the first sort is by three digits
SMALL: Final = 1 << 10  # rows up to which two digits do, of
SMALL_DIGIT: Final = 8  # bits
MOVES: Final = 4  # moves a row, on average, that are spent on ordering what three digits leave equal
BLOCK: Final = 512  # rows surveyed lane by lane while they are in cache


@inline
def before(a: np.ndarray, i: int, b: np.ndarray, j: int, lanes: np.ndarray) -> int:
    """Return -1, 0 or 1 as row i of `a` is before, equal to or after row j of `b` by the given lanes, in their order."""
    for c in range(lanes.size):
        x = a[i, lanes[c]]
        y = b[j, lanes[c]]
        if x != y:
            return -1 if x < y else 1
    return 0


@inline
def row_at(order: np.ndarray, i: int) -> Any:
    """Return an entry of an order, which is kept in 32 bits, as a signed number to compute with."""
    return np.int64(order[i])


@inline
def bits_of(number: np.uint64) -> int:
    """Return how many bits an unsigned number takes."""
    bits = 0
    step = 32
    while step > 0:
        if number >> np.uint64(step) != 0:
            number >>= np.uint64(step)
            bits += step
        step >>= 1
    return bits + 1 if number != 0 else bits


@inline
def measure(m: np.ndarray, start: int, end: int, lanes: np.ndarray, low: np.ndarray, width: np.ndarray) -> int:
    """Find each lane's smallest value and the bits of its range, in `low` and `width`; return the sum of the bits."""
    for c in range(lanes.size):
        low[c] = m[start, lanes[c]]
        width[c] = low[c]
    block = start
    while block < end:
        stop = min(block + BLOCK, end)
        for c in range(lanes.size):
            lane = lanes[c]
            smallest = low[c]
            largest = width[c]
            for i in range(block, stop):
                x = m[i, lane]
                smallest = min(smallest, x)
                largest = max(largest, x)
            low[c] = smallest
            width[c] = largest
        block = stop
    total = 0
    for c in range(lanes.size):
        width[c] = bits_of(np.uint64(width[c]) - np.uint64(low[c]))
        total += width[c]
    return total


@inline
def insert_row(m: np.ndarray, start: int, lanes: np.ndarray, order: np.ndarray, begin: int, i: int, row: int) -> int:
    """Insert a row of m[start:] into order[begin:i], which is in order, after the rows that equal it; return its place."""
    j = i
    while j > begin and before(m, start + row_at(order, j - 1), m, start + row, lanes) > 0:
        order[j] = order[j - 1]
        j -= 1
    order[j] = np.uint32(row)
    return j


@inline
def insertion_sort(m: np.ndarray, start: int, end: int, lanes: np.ndarray, order: np.ndarray) -> None:
    """Set `order` to the stable order of m[start:end], counted from `start`."""
    for i in range(end - start):
        insert_row(m, start, lanes, order, 0, i, i)


@inline
def lead_sort(
    m: np.ndarray,
    start: int,
    end: int,
    lanes: np.ndarray,
    order: np.ndarray,
    keys: np.ndarray,
    counts: np.ndarray,
    low: np.ndarray,
    width: np.ndarray,
) -> bool:
    """Set `order` to the stable order of m[start:end], counted from `start`, unless that turns out to be slow; return whether it was done.

    Sorts by the rows' leading bits alone, about twice as many as distinguish so many rows, and orders the few that
    these bits leave equal one by one. `low` and `width` are as `measure` has set them.
    """
    n = end - start
    half = keys.size >> 1
    digit = SMALL_DIGIT if n < SMALL else LEAD_DIGIT
    passes = 2 if n < SMALL else 3
    left = digit * passes
    total = 0
    for i in range(n):
        keys[i] = np.uint64(0)
    for c in range(lanes.size):
        keep = min(left, width[c])
        if keep > 0:
            lane = lanes[c]
            least = np.uint64(low[c])
            drop = np.uint64(width[c] - keep)
            shift = np.uint64(keep)
            for i in range(n):
                keys[i] = (keys[i] << shift) | ((np.uint64(m[start + i, lane]) - least) >> drop)
            left -= keep
        total += width[c]
    # The row's number lies below the leading bits and moves with them.
    size = 1 << digit
    mask = np.uint64(size - 1)
    first = np.uint64(PIECE_BITS)
    second = np.uint64(PIECE_BITS + digit)
    third = np.uint64(PIECE_BITS + 2 * digit)
    for k in range(3 * size):
        counts[k] = 0
    offset1 = np.uint64(size)
    offset2 = np.uint64(2 * size)
    for i in range(n):
        key = (keys[i] << first) | np.uint64(i)
        keys[i] = key
        counts[(key >> first) & mask] += 1
        counts[((key >> second) & mask) + offset1] += 1
        counts[((key >> third) & mask) + offset2] += 1
    here = 0
    there = half
    shift = first
    for p in range(passes):
        position = there
        for k in range(p * size, (p + 1) * size):
            count = counts[k]
            counts[k] = position
            position += count
        offset = np.uint64(p * size)
        for i in range(here, here + n):
            key = keys[i]
            k = ((key >> shift) & mask) + offset
            position = counts[k]
            counts[k] = position + 1
            keys[position] = key
        here, there = there, here
        shift += np.uint64(digit)
    low_bits = np.uint64((1 << PIECE_BITS) - 1)
    for i in range(n):
        order[i] = np.uint32(keys[here + i] & low_bits)
    if total <= digit * passes:
        return True
    budget = n * MOVES
    begin = 0
    for i in range(1, n):
        if keys[here + i - 1] >> first != keys[here + i] >> first:
            begin = i
            continue
        budget -= i - insert_row(m, start, lanes, order, begin, i, row_at(order, i))
        if budget < 0:
            return False
    return True


@inline
def radix_sort(
    m: np.ndarray,
    start: int,
    end: int,
    lanes: np.ndarray,
    order: np.ndarray,
    keys: np.ndarray,
    counts: np.ndarray,
    low: np.ndarray,
    width: np.ndarray,
) -> None:
    """Set the first end - start entries of `order` to the stable order of m[start:end], counted from `start`.

    `order` and `keys` are twice as long as the piece: every pass of the sort moves from one half to the other.
    """
    n = end - start
    half = order.size >> 1
    here = 0
    there = half
    for i in range(n):
        order[i] = np.uint32(i)
    c = lanes.size - 1
    while c >= 0:
        # Pack as many lanes as fit into one word, the later ones lower.
        used = 0
        for i in range(n):
            keys[here + i] = np.uint64(0)
        while c >= 0 and used + width[c] <= 64:
            if width[c] > 0:
                lane = lanes[c]
                least = np.uint64(low[c])
                shift = np.uint64(used)
                for i in range(n):
                    x = np.uint64(m[start + row_at(order, here + i), lane]) - least
                    keys[here + i] |= x << shift
                used += width[c]
            c -= 1
        if used == 0:
            continue
        passes = (used + DIGIT - 1) // DIGIT
        digit = (used + passes - 1) // passes
        mask = np.uint64((1 << digit) - 1)
        shift = np.uint64(0)
        for _ in range(passes):
            for k in range(1 << digit):
                counts[k] = 0
            for i in range(n):
                counts[np.int64((keys[here + i] >> shift) & mask)] += 1
            position = there
            for k in range(1 << digit):
                count = counts[k]
                counts[k] = position
                position += count
            for i in range(n):
                key = keys[here + i]
                bucket = (key >> shift) & mask
                position = counts[bucket]
                counts[bucket] = position + 1
                keys[position] = key
                order[position] = order[here + i]
            here, there = there, here
            shift += np.uint64(digit)
    if here:
        for i in range(n):
            order[i] = order[here + i]


@inline
def emit(
    m: np.ndarray,
    start: int,
    count: int,
    lanes: np.ndarray,
    order: np.ndarray,
    out: np.ndarray,
    o: int,
    consolidate: int,
) -> int:
    """Write rows in order to `out` from row `o` on, summing equal ones if asked; return the row after the last one written.

    A diff that overflows returns -1 - i, for the place i in the order whose row could not be added to the row at out[0].
    """
    first = o
    if consolidate == 0:
        for i in range(count):
            copy_row(m, start + row_at(order, i), out, o + i)
        return o + count
    for i in range(count):
        row = start + row_at(order, i)
        end = add_row(m, row, out, o, first, o > first and before(out, o - 1, m, row, lanes) == 0)
        if end < 0:
            copy_row(out, o - 1, out, 0)
            return -1 - i
        o = end
    return close_rows(out, first, o)
