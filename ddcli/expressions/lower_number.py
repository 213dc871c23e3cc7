"""Arithmetic in polars, exact or an error; bits and digits of integers.

polars wraps integers on overflow, floors integer division and cuts decimals to the scale of an operand. So integers get overflow checks
(exact, by sign bits or in 128 bits), and decimals are computed on their unscaled 128-bit integers, the result's digits checked only where
the types leave room for too many.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl

from ddcli.expressions.coerce import integer_range
from ddcli.expressions.tree import Call, Column, Literal
from ddcli.expressions.types import MAX_PRECISION, Type

if TYPE_CHECKING:
    from collections.abc import Callable

    from polars.datatypes import DataType, DataTypeClass

    from ddcli.expressions.lower import Lower, Lowering
    from ddcli.expressions.tree import Expression


def each(
    value: pl.Expr,
    made: Callable[[Any], str | bytes | int | list[Any] | None],
    dtype: DataType | DataTypeClass = pl.String,
) -> pl.Expr:
    """Return the results of a Python function for each value that is not null."""

    def of(values: pl.Series) -> pl.Series:
        return pl.Series(values.name, [None if one is None else made(one) for one in values], dtype)

    return value.map_batches(of, return_dtype=dtype, is_elementwise=True)


def balanced(connect: Callable[[pl.Expr, pl.Expr], pl.Expr], parts: list[pl.Expr]) -> pl.Expr:
    """Return parts connected by an associative operator, in their order, as a balanced tree: deep trees overflow polars' stack."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return connect(balanced(connect, parts[:half]), balanced(connect, parts[half:]))


def _shift(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    value, bits = args
    outside = (bits < 0) | (bits > 63)
    by = wide(2).pow(pl.when(outside).then(0).otherwise(bits))
    if call.function == ">>":
        return (
            pl.when(outside).then(0 * (value + bits)).otherwise((value.cast(pl.Int128) // by).cast(pl.Int64) + 0 * bits)
        )
    low.fail_given(call, args, bits < 0, "`<<` by a number below zero", "`>>` goes the other way")
    moved = value.cast(pl.Int128) * by
    beyond = (moved > wide(HIGH)) | (moved < wide(LOW)) | ((bits > 63) & (value != 0))
    low.fail_given(call, args, beyond, "integer overflow")
    return pl.when(beyond).then(None).otherwise(moved).cast(pl.Int64)


def _gcd(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    both = pl.struct(args[0].alias("0"), args[1].alias("1"))
    found = each(both, lambda pair: None if None in pair.values() else math.gcd(*pair.values()), pl.Int128)
    low.fail_given(call, args, found > wide(HIGH), "integer overflow")
    return pl.when(found <= wide(HIGH)).then(found).cast(pl.Int64)


OF_BITS: dict[str, Lower] = {
    "gcd": _gcd,
    "&": lambda _, __, args: args[0] & args[1],
    "|": lambda _, __, args: args[0] | args[1],
    "xor": lambda _, __, args: args[0] ^ args[1],
    "~": lambda _, __, args: ~args[0],
    "<<": _shift,
    ">>": _shift,
    "bit_count": lambda _, __, args: args[0].bitwise_count_ones().cast(pl.Int64),
    "bin": lambda _, __, args: each(args[0], lambda number: f"{number % 2**64:b}"),
}


Number = TypeVar("Number", pl.Expr, float)
LOW, HIGH = integer_range("int64")
OVERFLOW_HINT = "cast one side to decimal(38, 0) or float64, or use try_{} for null"
NAMES = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "divide", "%": "divide"}
INTEGER = "_dd_integer"
"""The attribute of a decimal's expression for the 128-bit integer that it was made from."""
ZERO_HINT = "use try_divide(a, b), or nullif(b, 0), for null"


def unscaled(value: pl.Expr) -> pl.Expr:
    """Return a decimal's 128-bit integer: if it was made from one, that integer, since polars would check the digits of an unneeded decimal."""
    integer: pl.Expr | None = vars(value).get(INTEGER)
    return value.to_physical() if integer is None else integer


def scaled(value: pl.Expr, type_: Type) -> pl.Expr:
    """Return the decimal of a 128-bit integer already known to fit."""
    found = value.reinterpret(dtype=type_.to_polars())
    vars(found)[INTEGER] = value
    return found


def wide(number: int) -> pl.Expr:
    """Return a 128-bit constant."""
    return pl.lit(number, dtype=pl.Int128)


def minus(value: pl.Expr) -> pl.Expr:
    """Return a 128-bit integer with the other sign; polars has no unary minus for them."""
    return wide(0) - value


def grown(value: pl.Expr, digits: int) -> pl.Expr:
    """Return a 128-bit integer times a power of ten."""
    return value * wide(10**digits) if digits else value


def quotient(a: pl.Expr, b: pl.Expr | float, dtype: DataType | DataTypeClass = pl.Float64) -> pl.Expr:
    """Return a quotient of floats of a type, rounded once.

    By one number for all rows polars multiplies with its reciprocal, where there is more than one row: a record would have another
    quotient in the run that inserts it than in the one that retracts it. So the divisor gets a value for each row.
    """
    return a / (b + a.is_null().cast(dtype))


def divided(value: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """Return a quotient of 128-bit integers, half away from zero, for a divisor that isn't zero."""
    size, by = value.abs(), divisor.abs()
    quotient, rest = size // by, size % by
    # rest >= by - rest says "half or more" without doubling, which might overflow.
    rounded = quotient + (rest >= by - rest).cast(pl.Int128)
    return pl.when((value < 0) != (divisor < 0)).then(minus(rounded)).otherwise(rounded)


def shrunk(value: pl.Expr, digits: int) -> pl.Expr:
    """Return a 128-bit integer with that many digits cut, half away from zero."""
    return divided(value, wide(10**digits)) if digits else value


def checked(
    low: Lowering, node: Expression, value: pl.Expr, failing: pl.Expr, problem: str, hint: str | None = None
) -> pl.Expr:
    """Return a 128-bit integer that fails in some rows, null there: polars refuses decimals with too many digits."""
    may_fail = low.fail(node, failing, problem, hint)
    return pl.when(failing).then(None).otherwise(value) if may_fail else value


def too_long(value: pl.Expr, precision: int) -> pl.Expr:
    """Return the mask of 128-bit integers with more digits than a precision."""
    return (value >= wide(10**precision)) | (value <= wide(-(10**precision)))


def scale_to(low: Lowering, call: Expression, value: pl.Expr, digits: int, problem: str) -> pl.Expr:
    """Return a 128-bit integer times a power of ten, rows that would pass 38 digits failing."""
    if digits > 0:
        value = checked(low, call, value, too_long(value, MAX_PRECISION - digits), problem)
    return grown(value, digits)


def trunc_divide(low: Lowering, call: Call, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Return an integer quotient cut toward zero; polars floors, which is the same for equal signs."""
    quotient = a // b
    if low.never_negative(call.args[0]) and low.never_negative(call.args[1]):
        return quotient
    signs = a < 0 if low.never_negative(call.args[1]) else (a < 0) != (b < 0)
    return quotient + ((quotient * b != a) & signs).cast(pl.Int64)


def trunc_remainder(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Return the remainder with the dividend's sign; polars' has the divisor's."""
    rest = a % b
    return pl.when((rest != 0) & ((a < 0) != (b < 0))).then(rest - b).otherwise(rest)


def arithmetic(low: Lowering, call: Call, sign: str, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Lower a sum, difference, product, quotient or remainder of numbers."""
    if call.type.is_float:
        if sign in "/%":
            check_zero(low, call, a, b)
            return (quotient if sign == "/" else _remainder)(a, b, call.type.to_polars())
        return {"+": a + b, "-": a - b, "*": a * b}[sign]
    if call.type.kind == "decimal":
        return _decimal(low, call, sign, a, b)
    return integer(low, call, sign, a, b)


def _remainder(a: pl.Expr, b: pl.Expr, dtype: DataType | DataTypeClass) -> pl.Expr:
    """Return the exact remainder of floats of a type, with the sign of `a`: polars' remainder is rounded, and has the sign of `b`."""

    def of(pairs: pl.Series) -> pl.Series:
        one, other = pairs.struct.field("a"), pairs.struct.field("b")
        with np.errstate(invalid="ignore"):
            found = pl.Series(np.fmod(one.fill_null(0).to_numpy(), other.fill_null(1).to_numpy()), dtype=dtype)
        return found.zip_with(one.is_not_null() & other.is_not_null(), pl.Series([None], dtype=dtype))

    return pl.struct(a.alias("a"), b.alias("b")).map_batches(of, return_dtype=dtype, is_elementwise=True)


def check_zero(low: Lowering, call: Call, a: pl.Expr, b: pl.Expr) -> None:
    """Have rows fail whose divisor is zero."""
    divisor = call.args[1]
    if not isinstance(divisor, Literal) or not divisor.value:
        low.fail_given(call, (a, b), b == 0, "division by zero", ZERO_HINT)


def integer(low: Lowering, call: Call, sign: str, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Lower int64 arithmetic with its checks."""
    hint = OVERFLOW_HINT.format(NAMES[sign])
    if sign in "+-":
        value = a + b if sign == "+" else a - b
        # Overflow iff the result's sign is impossible: both xors have the sign bit set.
        wrapped = (a ^ value) & (b ^ value) if sign == "+" else (a ^ b) & (a ^ value)
        low.fail(call, wrapped < 0, "integer overflow", hint)
        return value
    if sign == "*":
        product = a.cast(pl.Int128) * b.cast(pl.Int128)
        low.fail(call, (product > wide(HIGH)) | (product < wide(LOW)), "integer overflow", hint)
        return a * b
    check_zero(low, call, a, b)
    divisor = call.args[1]
    if sign == "//":
        if not isinstance(divisor, Literal) or divisor.value == -1:
            low.fail(call, (a == LOW) & (b == -1), "integer overflow", hint)
        return trunc_divide(low, call, a, b)
    if low.never_negative(call.args[0]) and low.never_negative(call.args[1]):
        return a % b
    return trunc_remainder(a, b)


def _decimal(low: Lowering, call: Call, sign: str, left: pl.Expr, right: pl.Expr) -> pl.Expr:
    one, other = (arg.type for arg in call.args)
    a, b, out = unscaled(left), unscaled(right), call.type
    problem, hint = "decimal overflow (38 digits)", "round or cast to fewer digits first, or use try_" + NAMES[sign]
    if any(t.precision + out.scale - t.scale > MAX_PRECISION for t in (one, other)):
        # An operand alone may not fit: that is no error where the other one is null.
        a, b = (pl.when(v.is_not_null()).then(u) if t.nullable else u for u, v, t in ((a, b, other), (b, a, one)))
    if sign in "+-":
        # Operands may need digits that 38 can't hold; then the row fails before the sum is looked at.
        a, b = (
            scale_to(low, call, v, out.scale - t.scale, problem) if t.precision + out.scale - t.scale > MAX_PRECISION
            else grown(v, out.scale - t.scale)
            for v, t in ((a, one), (b, other))
        )  # fmt: skip
        value = a + b if sign == "+" else a - b
        whole = max(one.precision - one.scale, other.precision - other.scale)
        if whole + out.scale + 1 > MAX_PRECISION:
            value = checked(low, call, value, too_long(value, MAX_PRECISION), problem, hint)
    elif sign == "*":
        value = a * b
        if one.precision + other.precision > MAX_PRECISION:
            wrapped = (b != 0) & (value // pl.when(b == 0).then(wide(1)).otherwise(b) != a)
            value = checked(low, call, value, wrapped | too_long(value, MAX_PRECISION), problem, hint)
    elif sign == "/":
        check_zero(low, call, a, b)
        digits = out.scale + other.scale - one.scale
        if one.precision + digits > MAX_PRECISION:
            a = checked(low, call, a, too_long(a, max(MAX_PRECISION - digits, 0)), problem, hint)
        value = divided(grown(a, min(digits, MAX_PRECISION)), b)
    else:
        check_zero(low, call, a, b)
        value = trunc_remainder(a, b)
    return scaled(value, out)


def _negate(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    (a,) = args
    if call.type.kind == "decimal":
        return scaled(minus(unscaled(a)), call.type)
    if call.type.kind == "duration":
        low.fail(call, a.to_physical() == LOW, "interval overflow")
        return (-a.to_physical()).cast(call.type.to_polars())
    if call.type.is_integer:
        low.fail(call, a == LOW, "integer overflow", OVERFLOW_HINT.format("subtract"))
    return -a


def _abs(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    (a,) = args
    if call.type.kind == "decimal":
        return scaled(unscaled(a).abs(), call.type)
    if call.type.kind == "duration":
        low.fail(call, a.to_physical() == LOW, "interval overflow")
        return a.to_physical().abs().cast(call.type.to_polars())
    if call.type.is_integer:
        low.fail(call, a == LOW, "integer overflow", "cast it to decimal(38, 0)")
    return a.abs()


def _sign(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    kind = call.args[0].type.kind
    value = args[0].to_physical() if kind in ("decimal", "duration") else args[0]
    if call.args[0].type.is_float:  # NaN is above every number
        value = value.fill_nan(0.0)
    return (value > 0).cast(pl.Int64) - (value < 0).cast(pl.Int64)


def _places(call: Call) -> int:
    digits = call.args[1].value if len(call.args) > 1 and isinstance(call.args[1], Literal) else 0
    assert isinstance(digits, int)
    return digits


def _rounding(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    places, source, value = _places(call), call.args[0].type, args[0]
    if call.type.is_float:
        if call.function == "round" and places > 0 and not isinstance(call.args[0], Column):
            value = low.bound(value)  # it is named dozens of times below: nested, these would multiply
        return _round_float(call.function, value, places, call.type.to_polars())
    if call.type.is_integer:
        if places >= 0 or call.function in ("floor", "ceil"):
            return value
        number = _round_wide(call.function, value.cast(pl.Int128), -places)
        number = grown(number, -places)
        low.fail(call, (number > wide(HIGH)) | (number < wide(LOW)), "integer overflow")
        return number.cast(pl.Int64, strict=False)
    cut = source.scale - min(places, source.scale)
    number = _round_wide(call.function, unscaled(value), cut)
    number = grown(number, call.type.scale - source.scale + cut)
    if source.precision - source.scale + call.type.scale + 1 > MAX_PRECISION:
        number = checked(low, call, number, too_long(number, MAX_PRECISION), "decimal overflow (38 digits)")
    return scaled(number, call.type)


def _round_wide(function: str, value: pl.Expr, digits: int) -> pl.Expr:
    if digits <= 0:
        return value
    if digits > MAX_PRECISION:
        return value * wide(0)
    by = wide(10**digits)
    if function == "round":
        return shrunk(value, digits)
    if function == "floor":
        return value // by
    if function == "ceil":
        return minus(minus(value) // by)
    cut = value.abs() // by
    return pl.when(value < 0).then(minus(cut)).otherwise(cut)


def _round_float(function: str, value: pl.Expr, places: int, dtype: DataType | DataTypeClass) -> pl.Expr:
    if function in ("floor", "ceil"):
        return value.floor() if function == "floor" else value.ceil()
    if function == "round" and places > 0:
        return _to_places(value.cast(pl.Float64), places).cast(dtype)
    power = float(10 ** abs(places))
    moved = value * power if places > 0 else quotient(value, power, dtype) if places < 0 else value
    if function == "round":
        moved_back = moved.round(0, mode="half_away_from_zero")
    else:
        moved_back = pl.when(moved < 0).then(moved.ceil()).otherwise(moved.floor())
    result = quotient(moved_back, power, dtype) if places > 0 else moved_back * power if places < 0 else moved_back
    # Scaling may leave the range of floats; a number that large has no digits to round.
    return pl.when(moved.is_finite()).then(result).otherwise(value) if places > 0 else result


def _to_places(value: pl.Expr, places: int) -> pl.Expr:
    """Return the multiple of a power of ten that is nearest to a float as it is in binary: 2.675 is less than that, so it becomes 2.67.

    The error of the scaled float decides where this is halfway between two whole numbers, or has no room for a half.
    """
    power = float(10**places)  # as exact as 5**places, which has at most 42 bits
    size = value.abs()
    moved = size * power
    (high, low), (above, below) = _halves(size), _halves(power)
    error = high * above - moved + high * below + low * above + low * below
    whole = moved.floor()
    rest = moved - whole
    up = (rest > 0.5) | ((rest == 0.5) & (error >= 0)) | ((rest == 0) & (error >= 0.5))
    rounded = quotient(pl.when(up).then(whole + 1).otherwise(whole), power)
    # A larger float has no digits there.
    return pl.when(moved < 2**53).then(pl.when(value < 0).then(-rounded).otherwise(rounded)).otherwise(value)


def _halves(value: Number) -> tuple[Number, Number]:
    """Return two floats of 26 bits whose sum is a float, by Dekker: the products of such halves are exact."""
    spread = value * 134217729.0
    high = spread - (spread - value)
    return high, value - high


def _sqrt(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    # NaN is above zero in our order, so it passes.
    low.fail(call, args[0] < 0, "square root of a negative number")
    return args[0].sqrt()


def _ln(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    low.fail(call, args[0] <= 0, "logarithm of zero or less")
    return args[0].log() if call.function == "ln" else exact_log(pl.lit(10.0), args[0])


def exact_log(base: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Return a logarithm that is whole for whole powers: a quotient of logarithms misses log(10, 1000) = 3 by a bit."""
    near = quotient(value.log(), base.log())
    whole = near.round(0, mode="half_away_from_zero")
    # The smallest floats have few digits: many powers round to one of them.
    return pl.when((base.pow(whole) == value) & (value >= 2.0**-1022)).then(whole).otherwise(near)


def _log(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    base, value = args
    low.fail_given(call, args, (value <= 0) | (base <= 0), "logarithm of zero or less")
    low.fail_given(call, args, base == 1, "logarithm to base 1")
    return exact_log(base, value)


def _power(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    x, y = args
    low.fail(call, (x == 0) & (y < 0), "zero to a negative power")
    low.fail(
        call, (x < 0) & x.is_finite() & y.is_finite() & (y != y.floor()), "a negative number to a fractional power"
    )
    # polars takes the root, which -infinity has none of.
    return pl.when((y == 0.5) & (x == -math.inf)).then(math.inf).otherwise(x.pow(y))


def _cbrt(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    # The nearest whole number first: a power of a third misses cbrt(27) = 3 by a bit.
    near = args[0].cbrt()
    whole = near.round(0)
    return pl.when(whole * whole * whole == args[0]).then(whole).otherwise(near)


def _inverse(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    # NaN passes: it is above every number.
    name = "sine" if call.function == "asin" else "cosine"
    low.fail(call, ((args[0] < -1) | (args[0] > 1)) & ~args[0].is_nan(), f"no angle has such a {name}")
    return args[0].arcsin() if call.function == "asin" else args[0].arccos()


LOWER: dict[str, Lower] = {
    **OF_BITS,
    "atan2": lambda _, __, args: pl.arctan2(args[0], args[1]),
    "negate": _negate,
    "abs": _abs,
    "sign": _sign,
    **dict.fromkeys(["round", "trunc", "floor", "ceil"], _rounding),
    "sqrt": _sqrt,
    "ln": _ln,
    "log10": _ln,
    "log": _log,
    "power": _power,
    "exp": lambda _, __, args: args[0].exp(),
    "is_nan": lambda _, __, args: args[0].is_nan(),
    "cbrt": _cbrt,
    "sin": lambda _, __, args: args[0].sin(),
    "cos": lambda _, __, args: args[0].cos(),
    "tan": lambda _, __, args: args[0].tan(),
    "asin": _inverse,
    "acos": _inverse,
    "atan": lambda _, __, args: args[0].arctan(),
}
