"""Kernels for float sums rounded once: the result depends on the multiset alone, never on the order of its rows.

The sum is kept whole in a superaccumulator: limbs of 32 bits, in lanes of 64, that reach from the smallest subnormal
(2**-1074) beyond the largest float times the largest diff, as in Neal, "Fast exact summation using small and large
superaccumulators" (2015). It equals `math.fsum` over the multiset, except that what is too large becomes infinite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline

if TYPE_CHECKING:
    import numpy as np

LOW = 0xFFFFFFFF
HALF = 1 << 31
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
