"""Kernels for exact running sums, weighted by diff: of integers and decimals, and of floats, rounded once.

A sum of integers is kept in *limbs*: 32-bit digits, the last one signed, each in a lane of its own, so that adding never overflows
and only the value at an instance is tested for its range. A limb takes 2**28 rows of products before it could overflow.

A sum of floats depends on the multiset alone, never on the order of its rows: it is kept whole in a superaccumulator, limbs of 32 bits, in lanes of 64, that reach from the smallest subnormal
(2**-1074) beyond the largest float times the largest diff, as in Neal, "Fast exact summation using small and large
superaccumulators" (2015). It equals `math.fsum` over the multiset, except that what is too large becomes infinite.
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
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        for a in range(numbers.shape[0]):
            lane = numbers[a, 0]
            number = numbers[a, 1]
            null_lane = numbers[a, 2]
            null = numbers[a, 3]
            at = numbers[a, 4]
            for r in range(start, stop):
                if null_lane >= 0 and m[r, null_lane] == null:
                    continue
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
    """Add the limbs that rows have from a lane on, times their diff, to the limbs of the rows' instances."""
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


LIMBS = 72  # (2098 bits of float + 64 of diff + 32 of rows) / 32, and what carrying needs
FRACTION = (1 << 52) - 1
INFINITY = 0x7FF << 52
NOT_A_NUMBER = 0x7FF8 << 48


@inline
def add_shifted(limbs: np.ndarray, bit: int, value: int) -> None:
    """Add value * 2**bit."""
    at = bit >> 5
    shift = bit & 31
    part = (value & LOW) << shift
    limbs[at] += part & LOW
    limbs[at + 1] += part >> 32
    part = (value >> 32) << shift
    limbs[at + 1] += part & LOW
    limbs[at + 2] += part >> 32


@inline
def to_digits(limbs: np.ndarray, low: int, digits: np.ndarray) -> int:
    """Write the magnitude of the sum as 32-bit digits; returns -1 if it is negative, else 0."""
    carry = 0
    for c in range(low):
        digits[c] = 0
    for c in range(low, LIMBS):
        value = limbs[c] + carry
        digits[c] = value & LOW
        carry = value >> 32
    if carry >= 0:
        return 0
    carry = 1
    for c in range(low, LIMBS):
        value = (digits[c] ^ LOW) + carry
        digits[c] = value & LOW
        carry = value >> 32
    return -1


@inline
def rounded(digits: np.ndarray, scale: int) -> int:
    """Return the bits of the float nearest to the digits, half to even; over 2**scale where the sum is that large."""
    top = LIMBS - 1
    while top >= 0 and digits[top] == 0:
        top -= 1
    if top < 0:
        return 0
    length = 32 * top
    rest = digits[top]
    while rest > 0:
        length += 1
        rest >>= 1
    if length <= 53:
        # Subnormal or the first binade of normal floats: the bits are the number itself.
        return int(digits[0] | (digits[1] << 32))
    drop = length - 53
    at = drop >> 5
    shift = drop & 31
    whole = (digits[at] >> shift) | (digits[at + 1] << (32 - shift))
    if shift > 11:  # 64 - shift bits are less than the 53 wanted
        whole |= digits[at + 2] << (64 - shift)
    half = (digits[(drop - 1) >> 5] >> ((drop - 1) & 31)) & 1
    if half != 0:
        sticky = whole & 1
        sticky |= digits[(drop - 1) >> 5] & ((1 << ((drop - 1) & 31)) - 1)
        for c in range((drop - 1) >> 5):
            sticky |= digits[c]
        if sticky != 0:
            whole += 1
            if whole == 1 << 53:
                whole >>= 1
                drop += 1
    drop -= scale
    if drop + 1 >= 0x7FF:
        return INFINITY
    return int(((drop + 1) << 52) | (whole & FRACTION))


@kernel("MiiiiVVVVVV")
def sum_floats(
    m: np.ndarray,
    lane: int,
    null_lane: int,
    null: int,
    scale: int,
    starts: np.ndarray,
    order: np.ndarray,
    first: np.ndarray,
    limbs: np.ndarray,
    digits: np.ndarray,
    out: np.ndarray,
) -> int:
    """Sum a lane of floats over each group, running along its instances, each sum rounded once.

    With a `scale` sums are divided by 2**scale; then those below 2**(scale - 1022) mean nothing.

    The rows of instance i are those that order[starts[i]:starts[i + 1]] numbers; the last lane is the diff. `limbs`
    (all zero, and left so) and `digits` are scratch of LIMBS lanes. `out` gets the float's lane of each instance.
    """
    last = m.shape[1] - 1
    for g in range(first.shape[0] - 1):
        least = LIMBS
        most = -1
        nans = 0
        above = 0
        below = 0
        for i in range(first[g], first[g + 1]):
            for j in range(starts[i], starts[i + 1]):
                r = order[j]
                if null_lane >= 0 and m[r, null_lane] == null:
                    continue
                x = m[r, lane]
                diff = m[r, last]
                bits = x if x >= 0 else -1 - x
                if bits == 0:
                    continue
                if bits > INFINITY:
                    nans += diff
                elif bits == INFINITY:
                    if x > 0:
                        above += diff
                    else:
                        below += diff
                else:
                    exponent = bits >> 52
                    fraction = bits & FRACTION
                    position = 0
                    if exponent > 0:
                        fraction |= 1 << 52
                        position = exponent - 1
                    if x < 0:
                        fraction = -fraction
                    # diff = low + 2**32 * high and fraction likewise, so that each product is within 64 bits.
                    low = ((diff + HALF) & LOW) - HALF
                    high = (diff >> 32) + (1 if low < 0 else 0)
                    add_shifted(limbs, position, (fraction & LOW) * low)
                    add_shifted(limbs, position + 32, (fraction >> 32) * low)
                    if high != 0:
                        add_shifted(limbs, position + 32, (fraction & LOW) * high)
                        add_shifted(limbs, position + 64, (fraction >> 32) * high)
                    least = min(least, position >> 5)
                    most = max(most, (position >> 5) + 5)
            plus = above > 0 or below < 0
            minus = below > 0 or above < 0
            if nans != 0 or (plus and minus):
                out[i] = NOT_A_NUMBER
            elif plus:
                out[i] = INFINITY
            elif minus:
                out[i] = -1 - INFINITY
            elif most < 0:
                out[i] = 0
            else:
                sign = to_digits(limbs, least, digits)
                bits = rounded(digits, scale)
                out[i] = bits if sign == 0 or bits == 0 else -1 - bits
        for c in range(least, most):
            limbs[c] = 0
    return 0
