"""Ranges of integer and decimal expressions, which prove that no row of a frame overflows; a decimal's range is its unscaled integer's.

The least and largest values of the columns cost one quick pass. They decide most overflow checks of large frames by a
few additions in Python; the exact check of every row is only made if the ranges leave a doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.coerce import integer_range
from ddcli.expressions.tree import Call, Case, Cast, Column, Expression, Literal
from ddcli.expressions.types import MAX_PRECISION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal


Range = tuple[int, int]
PROVABLE = {"+", "-", "*", "//", "%", "negate", "abs", "try_add", "try_subtract", "try_multiply"}
ADDED, MULTIPLIED = ("+", "-", "try_add", "try_subtract"), ("*", "try_multiply")
LIMIT = 10**MAX_PRECISION - 1
"""The greatest unscaled integer of a decimal."""


def bounds(expression: Expression, columns: Mapping[str, Range]) -> Range | None:
    """Return a range that holds every value of an integer or decimal expression (nulls aside), unwrapped, or None if unknown."""
    is_decimal = expression.type.kind == "decimal"
    known = _decimal(expression, columns) if is_decimal else _bounds(expression, columns)
    if known is None and is_decimal:
        most = 10**expression.type.precision - 1
        return -most, most
    if known is None and expression.type.is_integer:
        return integer_range(expression.type.kind)
    return known


def _decimal(expression: Expression, columns: Mapping[str, Range]) -> Range | None:
    """Return the range of the unscaled integers of a decimal expression, None if only the range of its type is known."""
    scale = expression.type.scale
    if isinstance(expression, Column):
        return columns.get(expression.name)
    if isinstance(expression, Literal):
        return None if expression.value is None else _unscaled(expression.value, scale)  # type: ignore[arg-type]
    if isinstance(expression, Cast):
        inner = expression.argument
        if not inner.type.is_integer and inner.type.kind != "decimal":
            return None
        return _rescaled(bounds(inner, columns), scale - (0 if inner.type.is_integer else inner.type.scale))
    if isinstance(expression, Case):
        return _alike([*(value for _, value in expression.branches), expression.default], scale, columns)
    assert isinstance(expression, Call)
    function, args = expression.function, expression.args
    if function in ("coalesce", "greatest", "least"):
        return _alike(args, scale, columns)
    if function not in (*ADDED, *MULTIPLIED, "negate", "abs") or any(arg.type.kind != "decimal" for arg in args):
        return None
    given = operands(expression, columns)
    return _arithmetic(function.removeprefix("try_"), given, len(args))


def operands(call: Call, columns: Mapping[str, Range]) -> list[Range]:
    """Return the ranges of the unscaled integers from which a call on decimals is computed: terms of a sum have the scale of the sum."""
    added = call.function in ADDED
    shifts = [call.type.scale - arg.type.scale if added else 0 for arg in call.args]
    found = [_rescaled(bounds(arg, columns), shift) for arg, shift in zip(call.args, shifts, strict=True)]
    return [each for each in found if each is not None]


def _alike(values: Sequence[Expression], scale: int, columns: Mapping[str, Range]) -> Range | None:
    """Return the range of decimal values rescaled to one scale."""
    same = all(value.type.kind == "decimal" and value.type.scale == scale for value in values)
    return _hull([bounds(value, columns) for value in values]) if same else None


def _unscaled(value: Decimal | int, scale: int) -> Range:
    number, divisor = value.as_integer_ratio()
    return _outwards(number * 10**scale, number * 10**scale, divisor)


def _rescaled(known: Range | None, digits: int) -> Range | None:
    """Return a range times a power of ten; digits that are cut are rounded outwards to the next integer."""
    if known is None:
        return None
    low, high = known
    return (low * 10**digits, high * 10**digits) if digits >= 0 else _outwards(low, high, 10**-digits)


def _outwards(low: int, high: int, divisor: int) -> Range:
    return low // divisor, -(-high // divisor)


def _bounds(expression: Expression, columns: Mapping[str, Range]) -> Range | None:
    if isinstance(expression, Column):
        return columns.get(expression.name)
    if isinstance(expression, Literal):
        value = expression.value
        return (value, value) if isinstance(value, int) and expression.type.is_integer else None
    if isinstance(expression, Cast):
        inner = expression.argument
        return bounds(inner, columns) if inner.type.is_integer and expression.type.is_integer else None
    if isinstance(expression, Case):
        return _hull([bounds(value, columns) for value in (*(v for _, v in expression.branches), expression.default)])
    assert isinstance(expression, Call)
    if not expression.type.is_integer:
        return None
    if expression.function in ("coalesce", "greatest", "least"):
        return _hull([bounds(arg, columns) for arg in expression.args])
    if expression.function not in PROVABLE:
        return None
    args = [bounds(arg, columns) if arg.type.is_integer else None for arg in expression.args]
    return _arithmetic(expression.function.removeprefix("try_"), [arg for arg in args if arg is not None], len(args))


def _hull(ranges: list[Range | None]) -> Range | None:
    known = [each for each in ranges if each is not None]
    if len(known) < len(ranges):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _arithmetic(function: str, args: list[Range], count: int) -> Range | None:
    if len(args) < count or not args:
        return None
    (a, b), (c, d) = args[0], args[-1]
    if function in ("+", "add"):
        return a + c, b + d
    if function in ("-", "subtract"):
        return a - d, b - c
    if function in ("*", "multiply"):
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if function == "negate":
        return -b, -a
    if function == "abs":
        return 0, max(abs(a), abs(b))
    if function == "%":
        most = max(abs(c), abs(d))
        return -most, most
    if function == "//":
        most = max(abs(a), abs(b))
        return -most, most
    return None


def is_safe(expression: Expression, columns: Mapping[str, Range]) -> bool:
    """Return whether the ranges prove that an operation of int64 or decimals, or a cast of an integer, fails in no row."""
    if isinstance(expression, Cast) and expression.type.is_integer and expression.argument.type.is_integer:
        low, high = integer_range(expression.type.kind)
        found = bounds(expression.argument, columns)
        return found is not None and low <= found[0] and found[1] <= high
    if not isinstance(expression, Call) or expression.function not in PROVABLE:
        return False
    if expression.type.kind == "decimal":
        found = _decimal(expression, columns) if expression.function in (*ADDED, *MULTIPLIED) else None
        return found is not None and all(
            low >= -LIMIT and high <= LIMIT for low, high in (found, *operands(expression, columns))
        )
    if not expression.type.is_integer:
        return False
    low, high = integer_range("int64")
    if expression.function in ("//", "%"):
        divisor = bounds(expression.args[1], columns)
        return divisor is not None and (divisor[0] > 0 or divisor[1] < -1)
    found = bounds(expression, columns)
    return found is not None and low <= found[0] and found[1] <= high
