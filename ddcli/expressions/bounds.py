"""Ranges of integer expressions, to prove that no row of a frame can overflow.

Least and largest values of the columns cost one quick pass; with them most overflow checks of large frames are settled by a
few additions in Python, and the exact check of every row is only made where the ranges leave a doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.coerce import integer_range
from ddcli.expressions.tree import Call, Case, Cast, Column, Expression, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Range = tuple[int, int]
PROVABLE = {"+", "-", "*", "/", "%", "negate", "abs", "try_add", "try_subtract", "try_multiply", "try_divide"}


def bounds(expression: Expression, columns: Mapping[str, Range]) -> Range | None:
    """Return a range that holds every value of an integer expression (nulls aside), unwrapped, or None if unknown."""
    known = _bounds(expression, columns)
    if known is None and expression.type.is_integer:
        return integer_range(expression.type.kind)
    return known


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
    if function in ("/", "divide"):
        most = max(abs(a), abs(b))
        return -most, most
    return None


def is_safe(expression: Expression, columns: Mapping[str, Range]) -> bool:
    """Return whether the ranges prove that an int64 operation, or a cast of an integer, fails in no row."""
    if isinstance(expression, Cast) and expression.type.is_integer and expression.argument.type.is_integer:
        low, high = integer_range(expression.type.kind)
        found = bounds(expression.argument, columns)
        return found is not None and low <= found[0] and found[1] <= high
    if not isinstance(expression, Call) or expression.function not in PROVABLE or not expression.type.is_integer:
        return False
    low, high = integer_range("int64")
    if expression.function in ("/", "%", "try_divide"):
        divisor = bounds(expression.args[1], columns)
        return divisor is not None and (divisor[0] > 0 or divisor[1] < -1)
    found = bounds(expression, columns)
    return found is not None and low <= found[0] and found[1] <= high
