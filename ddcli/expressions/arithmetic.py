"""Typing of arithmetic: on numbers, and on dates, times and durations.

Integers of all widths compute in `int64`, floats in their type (`float64` if one side has it), decimals exactly: `+` and `-` keep the
larger scale, `*` adds the scales, `/` has at least 6 digits after the point, rounded half away from zero. A quotient of integers is a float; `//` cuts it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from ddcli.expressions.coerce import (
    DURATION,
    FLOAT32,
    FLOAT64,
    INT64,
    MONTHS,
    STRING,
    TIMESTAMP,
    Mismatch,
    as_decimal,
    convert,
    decimal_type,
    nullable_if_any,
    unify,
)
from ddcli.expressions.tree import Call, Expression, Literal
from ddcli.expressions.types import MAX_PRECISION, UTC, Type

Resolved = tuple[list[Expression], Type, str]
"""Converted arguments, the type of the result, and the name of the function to call."""
Rule = Callable[[str, Sequence[Expression]], Resolved]

DIVISION_SCALE = 6
LENGTHS, MOMENTS = ("duration", "months"), ("date", "datetime", "time")
NO_TIME = Literal(dt.timedelta(), DURATION)
MOST_DAYS = 3_652_059
"""Days from the first date to the last."""


def arithmetic(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `+ - * / // %` and their try_ forms."""
    operator = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/", "mod": "%"}.get(name, name)
    tried = name.startswith("try_")
    if len(args) != 2:
        raise Mismatch(f"{name} takes 2 arguments, got {len(args)}")
    left, right = args
    kinds = {left.type.kind, right.type.kind}
    if found := _sum_of_parts(name, operator, left, right) or _zoned_sum(name, operator, left, right):
        converted, type_, name = found
    elif kinds & {"date", "datetime", "duration", "months", "time"}:
        converted, type_, name = temporal_arithmetic(name, operator, left, right)
    else:
        converted, type_ = numeric_arithmetic(name, operator, left, right)
    return converted, type_.or_null(tried), "%" if name == "mod" else name


def numeric_arithmetic(name: str, operator: str, left: Expression, right: Expression) -> tuple[list[Expression], Type]:
    """Convert both sides to int64, floats or decimals."""
    args = (left, right)
    for arg in args:
        if not arg.type.is_numeric and arg.type.kind != "null":
            raise Mismatch(
                f"`{name}` expects numbers, got {arg.type.required()}", arg, _number_hint(arg.type, operator)
            )
    types = [arg.type for arg in args if arg.type.kind != "null"]
    if operator == "//" and any(not type_.is_integer for type_ in types):
        wrong = next(arg for arg in args if not arg.type.is_integer and arg.type.kind != "null")
        hint = "of other numbers write `floor(a / b)` or `trunc(a / b)`"
        raise Mismatch(f"`//` takes integers, got {wrong.type.required()}", wrong, hint)
    if any(type_.is_float for type_ in types):
        common = FLOAT64 if "float64" in [type_.kind for type_ in types] else FLOAT32
        return [convert(arg, common) for arg in args], nullable_if_any(common, args)
    if any(type_.kind == "decimal" for type_ in types):
        return decimal_arithmetic(operator, left, right)
    if operator == "/":
        return [convert(arg, FLOAT64) for arg in args], nullable_if_any(FLOAT64, args)
    return [convert(arg, INT64) for arg in args], nullable_if_any(INT64, args)


def _number_hint(type_: Type, operator: str) -> str | None:
    if type_.kind == "string":
        return "text is joined by `||`" if operator == "+" else "cast it to a number"
    return "cast it to int64" if type_.kind == "bool" else None


def decimal_arithmetic(operator: str, left: Expression, right: Expression) -> tuple[list[Expression], Type]:
    """Bring both sides to decimals; return the result's digits."""
    sides = [convert(arg, INT64) if arg.type.kind == "null" else arg for arg in (left, right)]
    # A constant integer needs only its own digits: `price * 2` must not claim 19 of the 38.
    sides = [
        _smallest_decimal(arg) if isinstance(arg, Literal) else convert(arg, as_decimal(arg.type)) for arg in sides
    ]
    a, b = (side.type for side in sides)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    scale = max(a.scale, b.scale)
    if operator == "*":
        scale = a.scale + b.scale
        if scale > MAX_PRECISION:
            raise Mismatch(f"the product would have {scale} digits after the point", hint="round one side first")
        found = decimal_type(a.precision + b.precision, scale)
    elif operator == "/":
        found = decimal_type(MAX_PRECISION, max(DIVISION_SCALE, scale))
    elif operator == "%":
        common = decimal_type(whole + scale, scale)
        sides, found = [convert(side, common) for side in sides], common
    else:
        found = decimal_type(whole + scale + 1, scale)
    return sides, nullable_if_any(found, sides)


def _smallest_decimal(literal: Literal) -> Expression:
    if not literal.type.is_integer or not isinstance(literal.value, int):
        return convert(literal, as_decimal(literal.type))
    converted = convert(literal, decimal_type(len(str(abs(literal.value))), 0))
    assert isinstance(converted, Literal)
    return converted


def temporal_arithmetic(
    name: str, operator: str, left: Expression, right: Expression
) -> tuple[list[Expression], Type, str]:
    """Type sums and differences of dates, times and intervals.

    A date plus a number of days is a date, plus an interval or a time a timestamp, and a time plus an interval a time. A difference of dates is a number of days, of timestamps an interval.
    """
    one, other = left.type, right.type
    tried = name.startswith("try_")
    is_length = one.kind in LENGTHS
    if operator == "+" and (
        (is_length and other.kind in MOMENTS)
        or (one.is_integer and other.kind == "date")
        or (one.kind == "time" and other.kind == "date")
    ):
        return temporal_arithmetic(name, operator, right, left)
    if operator == "+" and one.kind == "date" and other.kind == "time":
        sides = [convert(left, TIMESTAMP), right]
        return sides, nullable_if_any(TIMESTAMP, sides), name
    if operator in "+-" and one.kind == "date" and other.is_integer:
        days = convert(right, INT64) if operator == "+" else minus(right)
        return [left, days], nullable_if_any(one, [left, days]), "try_add_days" if tried else "add_days"
    if operator == "-" and one.kind == other.kind == "date":
        sides = [convert(right, TIMESTAMP), convert(left, TIMESTAMP)]
        return [Literal("day", STRING), *sides], nullable_if_any(INT64, sides), "date_diff"
    if operator in "+-" and one.kind == "date" and other.kind in LENGTHS:
        left, one = convert(left, TIMESTAMP), nullable_if_any(TIMESTAMP, [left])
    if operator in "+-" and other.kind == "months" and one.kind == "datetime":
        months = _number_of_months(right)
        if operator == "-":
            months = minus(months)
        return [left, months], nullable_if_any(one, [left, months]), "try_add_months" if tried else "add_months"
    return _of_lengths(name, operator, left, right)


def _of_lengths(name: str, operator: str, left: Expression, right: Expression) -> tuple[list[Expression], Type, str]:
    """Type differences of timestamps, and sums and products with intervals of a length. Raises Mismatch for what is not defined."""
    one, other = left.type, right.type
    sides = [left, right]
    if operator == "-" and one.kind == other.kind == "datetime":
        sides, common = unify(sides, f"`{name}`")
        return sides, nullable_if_any(replace(DURATION, unit=common.unit or "us"), sides), name
    if operator == "-" and {one.kind, other.kind} == {"date", "datetime"}:
        sides, common = unify(sides, f"`{name}`")
        return sides, nullable_if_any(replace(DURATION, unit=common.unit), sides), name
    if operator in "+-" and one.kind == other.kind == "duration":
        sides, common = unify(sides, f"`{name}`")
        return sides, common, name
    if operator in "+-" and one.kind == "datetime" and other.kind == "duration":
        finer = max(one, other, key=lambda each: each.second_digits).unit
        sides = [convert(left, replace(one, unit=finer)), convert(right, replace(other, unit=finer))]
        return sides, nullable_if_any(replace(one, unit=finer), sides), name
    if operator in "+-" and one.kind == "time" and other.kind in LENGTHS:
        if other.kind == "months":  # a time begins again at midnight
            sides[1] = _called("*", NO_TIME, _number_of_months(right))
        return sides, nullable_if_any(one, sides), name
    if operator in "*/" and one.kind == "duration" and other.is_numeric:
        sides = [left, convert(right, INT64 if other.is_integer else FLOAT64)]
        return sides, nullable_if_any(one, sides), name
    if operator == "*" and one.is_numeric and other.kind in LENGTHS:
        return temporal_arithmetic(name, operator, right, left)
    if operator == "*" and one.kind == "months" and other.is_integer:
        sides = [_number_of_months(left), convert(right, INT64)]
        return sides, nullable_if_any(MONTHS, sides), name
    hint = "write a number of days as n * interval '1' day" if one.is_integer or other.is_integer else None
    if "months" in (one.kind, other.kind):
        hint = "months and years differ in length: an interval of them is added to a date, and multiplied by integers"
    raise Mismatch(f"`{name}` is not defined for {one.required()} and {other.required()}", right, hint)


def _sum_of_parts(name: str, operator: str, left: Expression, right: Expression) -> Resolved | None:
    """Type a sum of intervals with months, an integer times months beside days, and a moment plus or minus these; None for anything else.

    The months are added first, as in DuckDB, but for a timestamp with a zone: see `_zoned_parts`.
    """
    if operator in "+*" and left.type.kind in LENGTHS and right.type.kind not in LENGTHS:
        left, right = right, left
    if right.type.kind not in LENGTHS or operator not in "+-*":
        return None
    months, rest = _months_and_rest(right)
    if operator == "*":
        if months is None or rest is None or not left.type.is_integer:
            return None
        sides = [_called("*", left, months), _called("*", left, rest)]
        return sides, nullable_if_any(MONTHS, sides), "+"
    if operator == "-":
        months, rest = (None if each is None else minus(each) for each in (months, rest))
    if left.type.kind in LENGTHS and "months" in (left.type.kind, right.type.kind):
        more, other = _months_and_rest(left)
        total = _sum(*(None if each is None else _number_of_months(each) for each in (more, months)))
        assert isinstance(total, Literal | Call)
        sides = [replace(total, type=nullable_if_any(MONTHS, [total])), _sum(other, rest) or NO_TIME]
        return sides, nullable_if_any(MONTHS, sides), "+"
    if left.type.kind not in MOMENTS or months is None or rest is None:
        return None
    *firsts, last = _zoned_parts(months, rest) if left.type.zone else (months, rest)
    plus = "try_add" if name.startswith("try_") else "+"
    return arithmetic(plus, [reduce(lambda moment, each: _called(plus, moment, each), firsts, left), last])


def _months_and_rest(length: Expression) -> tuple[Expression | None, Expression | None]:
    """Return the months of an interval, and its days and finer units; None for nothing."""
    if length.type.kind == "duration":
        return None, length
    if isinstance(length, Call) and length.args[1].type.kind == "duration":
        return length.args[0], length.args[1]
    return length, None


def _zoned_parts(months: Expression, rest: Expression) -> list[Expression]:
    """Return the parts of an interval in the order in which a timestamp with a zone gets them: what is finer than days comes first if a part is negative, as in DuckDB."""
    if not isinstance(months, Literal) or not isinstance(rest, Literal) or not isinstance(rest.value, dt.timedelta):
        raise Mismatch("months and days are added one after the other here", rest, "write `x + a + b`")
    days, finer = dt.timedelta(days=rest.days), rest.value - dt.timedelta(days=rest.days)
    by_calendar, exact = [months, replace(rest, value=days)], replace(rest, value=finer, days=0)
    is_negative = int(str(months.value)) < 0 or min(days, finer) < dt.timedelta()
    return [exact, *by_calendar] if is_negative else [*by_calendar, exact]


def _number_of_months(value: Expression) -> Expression:
    """Return an interval of months, or a product of one and integers, as its number of months; an integer as it is."""
    if value.type.kind != "months":
        return convert(value, INT64)
    assert isinstance(value, Literal | Call)
    return replace(value, type=nullable_if_any(INT64, [value]))


def _zoned_sum(name: str, operator: str, left: Expression, right: Expression) -> Resolved | None:
    """Type the sum of a timestamp and an interval of days by the clocks of its zone, which may change; None for any other."""
    if operator == "+" and left.type.kind == "duration":
        left, right = right, left
    kind = left.type
    if operator not in "+-" or kind.zone in {None, UTC} or right.type.kind != "duration":
        return None
    days, rest = _days_and_rest(right if operator == "+" else minus(right))
    if days is None:
        return None
    tried = name.startswith("try_")
    called = "try_add_days" if tried else "add_days"
    later = nullable_if_any(kind, [left, days]).or_null(tried)
    if rest is None:
        return [left, days], later, called
    plus = "try_add" if tried else "+"
    if not isinstance(days, Literal) or not isinstance(rest, Literal):
        raise Mismatch("days and a finer interval are added one after the other here", right, "write `x + a + b`")
    if min(days.value, rest.value // dt.timedelta(microseconds=1)) < 0:  # type: ignore[operator,type-var]
        moved, type_, finer = arithmetic(plus, [left, rest])  # as in DuckDB: the finer part comes first then
        return [Call(finer, tuple(moved), type_, span=right.span), days], type_.or_null(tried), called
    return arithmetic(plus, [Call(called, (left, days), later, span=right.span), rest])


def _days_and_rest(length: Expression) -> tuple[Expression | None, Expression | None]:
    """Return an interval as a number of days, as far as it was written in days, and the rest; None for nothing."""
    if isinstance(length, Literal) and length.days and isinstance(length.value, dt.timedelta):
        finer = replace(length, value=length.value - dt.timedelta(days=length.days), days=0)
        return Literal(length.days, INT64, span=length.span), finer if finer.value else None
    if isinstance(length, Call) and length.function in ("*", "/", "+", "-", "negate"):
        if length.args[0].type.kind in MOMENTS:
            hint = "x + date_diff('microsecond', a, b) * interval '1' microsecond adds the exact time"
            raise Mismatch("a difference of timestamps has days, which the clocks of a zone count", length, hint)
        parts = [_days_and_rest(each) for each in length.args]
        if length.function == "negate":
            return tuple(None if each is None else minus(each) for each in parts[0])  # type: ignore[return-value]
        if length.function in "*/":
            if parts[0][0] is None:
                return None, length
            if length.function == "/" or not length.args[1].type.is_integer:
                raise Mismatch("parts of days are added as hours here", length, "write interval '36' hour")
            return tuple(None if each is None else _called("*", each, length.args[1]) for each in parts[0])  # type: ignore[return-value]
        if length.function in "+-":
            (days, rest), (more, left) = parts
            if length.function == "-":
                more, left = (None if each is None else minus(each) for each in (more, left))
            return _sum(days, more), _sum(rest, left)
    return None, length


def _sum(one: Expression | None, other: Expression | None) -> Expression | None:
    if isinstance(one, Literal) and isinstance(other, Literal):
        return replace(one, value=one.value + other.value, days=one.days + other.days)  # type: ignore[operator]
    return _called("+", one, other) if one is not None and other is not None else one or other


def minus(value: Expression) -> Expression:
    """Return an integer, or an interval, with the other sign."""
    if isinstance(value, Literal) and isinstance(value.value, int | dt.timedelta):
        return replace(value, value=-value.value, days=-value.days)
    if value.type.kind == "months":
        parts = [each for each in _months_and_rest(value) if each is not None]
        if isinstance(value, Call) and len(parts) > 1:
            return replace(value, args=tuple(map(minus, parts)))
        return _called("*", Literal(-1, INT64), value)
    args, type_, name = negate("negate", [value])
    return Call(name, tuple(args), type_, span=value.span)


def _called(name: str, *args: Expression) -> Expression:
    converted, type_, name = arithmetic(name, args)
    return Call(name, tuple(converted), type_, span=args[0].span)


def negate(name: str, args: Sequence[Expression]) -> Resolved:
    """Type unary minus."""
    (arg,) = args
    type_ = arg.type
    if type_.kind in {"duration", "decimal"} or type_.is_float:
        return [arg], nullable_if_any(type_, args), name
    if type_.is_integer or type_.kind == "null":
        return [convert(arg, INT64)], nullable_if_any(INT64, args), name
    raise Mismatch(f"`-` expects a number, got {type_.required()}", arg)


def rounding(name: str, args: Sequence[Expression]) -> Resolved:
    """Type round, floor, ceil, trunc: integers stay int64; decimals lose digits; floats stay floats."""
    with_digits = name in ("round", "trunc")
    if not 1 <= len(args) <= 1 + with_digits:
        raise Mismatch(f"{name} takes a number{' and optional digits' if with_digits else ''}")
    arg, *digits = args
    if not arg.type.is_numeric and arg.type.kind != "null":
        raise Mismatch(f"{name} expects a number, got {arg.type.required()}", arg)
    places = 0
    for digit in digits:
        if not isinstance(digit, Literal) or not isinstance(digit.value, int) or isinstance(digit.value, bool):
            raise Mismatch(f"{name}: the number of digits must be a constant integer", digit)
        places = digit.value
        if not -18 <= places <= 18:
            raise Mismatch(f"{name}: the number of digits must be between -18 and 18", digit)
    if arg.type.kind == "decimal":
        scale = max(0, min(arg.type.scale, places))
        grown = arg.type.precision - arg.type.scale + scale + 1
        return [arg, *digits], nullable_if_any(decimal_type(grown, scale), [arg]), name
    target = arg.type if arg.type.is_float else INT64
    return [convert(arg, target), *digits], nullable_if_any(target, [arg]), name


def magnitude(name: str, args: Sequence[Expression]) -> Resolved:
    """Type abs and sign."""
    if len(args) != 1:
        raise Mismatch(f"{name} takes 1 argument, got {len(args)}")
    sides, type_, _ = negate(name, args)
    if name == "sign":
        return sides, nullable_if_any(INT64, args), name
    return sides, type_, name
