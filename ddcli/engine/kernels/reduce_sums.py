"""Kernels for exact running sums of integers and decimals, weighted by diff.

A sum is kept in *limbs*: 32-bit digits, the last one signed, each in a lane of its own, so that adding never overflows
and only the value at an instance is tested for its range. A limb takes 2**28 rows of products before it could overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline

if TYPE_CHECKING:
    import numpy as np

# The number that a row adds: 1, a lane as int64, a lane as uint64 (sign bit flipped), or two lanes (128 bits).
ONE = 0
SIGNED = 1
UNSIGNED = 2
WIDE = 3
LOW = 0xFFFFFFFF
HALF = 1 << 31
BLOCK = 1 << 8
"""The rows of a block, which stays in the processor's cache while all its numbers are added."""
# 10**38 as two 64-bit halves (the lower one as a signed integer after flipping its sign bit): decimals stay below it.
WIDE_HIGH = 10**38 >> 64
WIDE_LOW = (10**38 & 0xFFFFFFFFFFFFFFFF) - (1 << 63)


@inline
def add_product(limbs: np.ndarray, i: int, at: int, digit: int, low: int, high: int) -> None:
    """Add digit * (low + 2**32 * high) to the limbs of row i from lane `at`; |digit| < 2**32, the others in 32 bits."""
    product = digit * low
    limbs[i, at] += product & LOW
    limbs[i, at + 1] += product >> 32
    if high != 0:
        product = digit * high
        limbs[i, at + 1] += product & LOW
        limbs[i, at + 2] += product >> 32


@inline
def add_number(limbs: np.ndarray, i: int, at: int, m: np.ndarray, r: int, lane: int, number: int) -> None:
    """Add the number of row r to the limbs of row i from lane `at`, once, as `add_times` does for a diff of 1."""
    if number == ONE:
        limbs[i, at] += 1
        return
    x = m[r, lane]
    if number == WIDE:
        limbs[i, at + 2] += x & LOW
        limbs[i, at + 3] += x >> 32
        x = m[r, lane + 1]
        limbs[i, at] += x & LOW
        limbs[i, at + 1] += (x >> 32) + HALF
    else:
        limbs[i, at] += x & LOW
        limbs[i, at + 1] += (x >> 32) + (HALF if number == UNSIGNED else 0)


@inline
def add_times(limbs: np.ndarray, i: int, at: int, m: np.ndarray, r: int, lane: int, number: int) -> None:
    """Add the number of row r, times its diff, to the limbs of row i from lane `at`."""
    diff = m[r, m.shape[1] - 1]
    low = diff
    high = 0
    if diff < -HALF or diff >= HALF:
        low = ((diff + HALF) & LOW) - HALF  # right even where the addition wraps
        high = (diff >> 32) + (1 if low < 0 else 0)
    if number == ONE:
        limbs[i, at] += low & LOW
        limbs[i, at + 1] += (low >> 32) + high
        return
    x = m[r, lane]
    if number == WIDE:
        add_product(limbs, i, at + 2, x & LOW, low, high)
        add_product(limbs, i, at + 3, x >> 32, low, high)
        x = m[r, lane + 1]
        add_product(limbs, i, at, x & LOW, low, high)
        add_product(limbs, i, at + 1, (x >> 32) + HALF, low, high)
    else:
        add_product(limbs, i, at, x & LOW, low, high)
        add_product(limbs, i, at + 1, (x >> 32) + (HALF if number == UNSIGNED else 0), low, high)


@kernel("MMVM")
def add_rows(m: np.ndarray, numbers: np.ndarray, instances: np.ndarray, limbs: np.ndarray) -> int:
    """Add numbers of each row, times its diff, to the limbs of the row's instance.

    Each of `numbers` is (lane, its kind of number, null lane, null, first limb): a row whose null lane holds null adds nothing; that lane is
    -1 where there are no nulls. Uses 6 limbs for WIDE, else 4. Rows are processed by blocks, which stay in the cache for all numbers.
    """
    n = m.shape[0]
    last = m.shape[1] - 1
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        once = True
        for r in range(start, stop):
            once &= m[r, last] == 1
        for a in range(numbers.shape[0]):
            lane = numbers[a, 0]
            number = numbers[a, 1]
            null_lane = numbers[a, 2]
            null = numbers[a, 3]
            at = numbers[a, 4]
            for r in range(start, stop):
                if null_lane >= 0 and m[r, null_lane] == null:
                    continue
                if once:
                    add_number(limbs, instances[r], at, m, r, lane, number)
                else:
                    add_times(limbs, instances[r], at, m, r, lane, number)
    return 0


@kernel("MV")
def carry(limbs: np.ndarray, sizes: np.ndarray) -> int:
    """Bring all limbs but the last of each number to 32 bits; the number stays the same. `sizes` has how many limbs each has."""
    for i in range(limbs.shape[0]):
        c = 0
        for s in range(sizes.size):
            for _ in range(sizes[s] - 1):
                limbs[i, c + 1] += limbs[i, c] >> 32
                limbs[i, c] &= LOW
                c += 1
            c += 1
    return 0


@kernel("MiVM")
def add_limbs(m: np.ndarray, lane: int, instances: np.ndarray, limbs: np.ndarray) -> int:
    """Add the limbs that rows have from a lane on, times their diff, to those of the rows' instances."""
    last = m.shape[1] - 1
    for r in range(m.shape[0]):
        for c in range(limbs.shape[1]):
            limbs[instances[r], c] += m[r, lane + c] * m[r, last]
    return 0


@inline
def fits(limbs: np.ndarray, i: int, at: int, size: int, number: int) -> bool:
    """Return whether normalised limbs are in the range of the lanes that `number` names."""
    used = 4 if number == WIDE else 2
    sign = 0
    if number != UNSIGNED and limbs[i, at + used - 1] >= HALF:
        sign = -1
    for c in range(used, size):
        if limbs[i, at + c] != (sign if c == size - 1 else sign & LOW):
            return False
    return True


@kernel("VMiiiMiV")
def apply_sums(
    first: np.ndarray,
    limbs: np.ndarray,
    at: int,
    size: int,
    number: int,
    out: np.ndarray,
    lane: int,
    present: np.ndarray,
) -> int:
    """Turn the sums that the instances add into running sums along their groups, and write them as lanes from `lane` of `out`.

    Marks the instances whose sum is not zero in `present`. Returns 0, or -1 - instance for a sum out of range:
    int64 for SIGNED (and ONE), uint64 for UNSIGNED, less than 10**38 either side of zero for WIDE.
    """
    for g in range(first.shape[0] - 1):
        for i in range(first[g], first[g + 1]):
            carry = 0
            some = 0
            for c in range(size):
                value = limbs[i, at + c] + carry
                if i > first[g]:
                    value += limbs[i - 1, at + c]
                carry = value >> 32
                if c < size - 1:
                    value &= LOW
                limbs[i, at + c] = value
                some |= value
            if not fits(limbs, i, at, size, number):
                return -1 - i
            top = limbs[i, at + 1]
            if number == UNSIGNED or number == WIDE:  # noqa: PLR1714, SIM109 - kernels are plain
                out_low = ((top - HALF) << 32) + limbs[i, at]
            else:
                out_low = ((top - (LOW + 1) if top >= HALF else top) << 32) + limbs[i, at]
            if number == WIDE:
                top = limbs[i, at + 3]
                high = ((top - (LOW + 1) if top >= HALF else top) << 32) + limbs[i, at + 2]
                if high > WIDE_HIGH or (high == WIDE_HIGH and out_low >= WIDE_LOW):
                    return -1 - i
                if high < -WIDE_HIGH - 1 or (high == -WIDE_HIGH - 1 and out_low <= -WIDE_LOW):
                    return -1 - i
                out[i, lane] = high
                out[i, lane + 1] = out_low
            else:
                out[i, lane] = out_low
            if some != 0:
                present[i] = 1
    return 0
