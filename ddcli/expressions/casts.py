"""Casts between types, casts of constants, and the checks of constant arguments that a signature can't express."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import TYPE_CHECKING

from ddcli.errors import SpecError
from ddcli.expressions.arithmetic import as_date
from ddcli.expressions.coerce import Mismatch, fits_decimal, integer_range, rescaled
from ddcli.expressions.moments import FormatError, parts_of
from ddcli.expressions.patterns import check_pattern, like_pattern
from ddcli.expressions.tree import Cast, Literal
from ddcli.expressions.types import ALIASES, SIMPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.errors import Span
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Type

TARGETS = [*(kind for kind in SIMPLE if kind != "null"), *ALIASES, "decimal(18, 2)", "datetime[us]", "duration[us]"]
HINTS = {
    ("date", "int64"): "use year(x), epoch(x) or date_diff(...)",
    ("datetime", "int64"): "use epoch(x) or date_diff(...)",
}
HINTS |= {
    ("string", "list"): "x::json::bigint[] reads JSON, split(x, ',') the parts between commas",
    ("string", "struct"): "x::json::struct(...) reads JSON",
    ("list", "string"): "to_json(x) writes it as JSON",
    ("struct", "string"): "to_json(x) writes it as JSON",
    ("string", "binary"): "encode(x) has the bytes of a text in UTF-8",
    ("binary", "string"): "decode(x) is the text of bytes in UTF-8",
}
HINTS |= {("int64", "date"): "use date '1970-01-01' + n * interval '1' day", ("duration", "int64"): "use seconds(x)"}
FLOAT32_END = 2.0**128 - 2.0**103
"""The distance from zero from which on numbers round to a float32 beyond the largest."""
TRUNC_UNITS = {
    "year": "1y",
    "quarter": "1q",
    "month": "1mo",
    "week": "1w",
    "day": "1d",
    "hour": "1h",
    "minute": "1m",
    "second": "1s",
}
DIFF_UNITS = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
DIFF_UNITS |= {"day": 86400 * 10**6, "week": 7 * 86400 * 10**6}

MONTH_UNITS = {"month": 1, "quarter": 3, "year": 12}
STRFTIME = "YymbBdjaAHIpMSf%"
"""The letters that may follow a percent sign in a format."""


def is_castable(source: Type, target: Type) -> bool:
    """Return whether a cast is in our table."""
    one, other = source.kind, target.kind
    if one == "null" or source.required() == target.required():
        return True
    if source.is_numeric:
        return target.is_numeric or other == "string" or (other == "bool" and source.is_integer)
    if one == "bool":
        return other == "string" or target.is_integer
    if one == "string":
        return target.is_numeric or other in ("bool", "date", "time", "datetime")
    if one == "date":
        return other in ("string", "datetime")
    if one == "datetime":
        return other in ("string", "date", "time", "datetime")
    if one == "list" and other == "list" and source.inner and target.inner:
        return source.inner.kind == "null" or source.inner.required() == target.inner.required()
    if one == other == "struct":
        pairs = zip(source.fields, target.fields, strict=False)
        same = all(a == b and (x.kind == "null" or x.required() == y.required()) for (a, x), (b, y) in pairs)
        return same and len(source.fields) == len(target.fields)
    return (one == "time" and other == "string") or (one == other == "duration")


def fold(literal: Literal, target: Type) -> Literal | None:
    """Return a constant cast when the tree is made, or None to leave it to the row; raises Mismatch if it fails."""
    value = literal.value
    if value is None:
        return replace(literal, type=target.or_null())
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not target.is_numeric:
        return None
    if target.is_float:
        if target.kind == "float32" and FLOAT32_END <= abs(float(value)) < math.inf:
            raise Mismatch(f"{value} is out of range for {target}")
        return replace(literal, value=float(value), type=target) if target.kind == "float64" else None
    if isinstance(value, float):
        return None
    exact = Decimal(value)
    if target.is_integer:
        low, high = integer_range(target.kind)
        with localcontext() as context:
            context.prec = 80
            whole = int(exact.quantize(Decimal(1), rounding=ROUND_HALF_UP))
        if not low <= whole <= high:
            raise Mismatch(f"{value} is out of range for {target}")
        return replace(literal, value=whole, type=target)
    if not fits_decimal(exact, target):
        raise Mismatch(f"{value} is out of range for {target}")
    return replace(literal, value=rescaled(exact, target), type=target)


def check_constants(function: str, args: Sequence[Expression]) -> None:
    """Check patterns, units and fills, which are constants; raises Mismatch."""
    constants = {index: arg.value for index, arg in enumerate(args) if isinstance(arg, Literal)}
    if function in ("lpad", "rpad") and len(args) > 2 and len(str(constants[2])) != 1:
        raise Mismatch(f"{function}: the fill is one character", args[2])
    if function in ("date_trunc", "date_diff", "date_sub"):
        known = TRUNC_UNITS if function == "date_trunc" else [*DIFF_UNITS, *MONTH_UNITS]
        unit = str(constants[0]).lower()
        if unit not in known:
            raise Mismatch(f"{function} has no unit '{unit}'", args[0], f"one of {', '.join(known)}")
    if function == "list_slice" and len(args) > 3:
        if not constants[3]:
            raise Mismatch("a slice has no step of 0", args[3])
        if args[0].type.kind != "list":
            raise Mismatch("a slice of a text has no step", args[3])
    if function == "time_bucket" and constants[0] <= timedelta():  # type: ignore[operator]
        raise Mismatch("the width of a bucket must be positive", args[0])
    if function in ("strftime", "strptime", "try_strptime"):
        _check_format(function, str(constants[1]), args[1])
    if function in ("like", "ilike"):
        like_pattern(str(constants[1]), str(constants.get(2, "")), args)
    if function.startswith("regexp_"):
        check_pattern(function, constants, args)


def _check_format(function: str, text: str, arg: Expression) -> None:
    """Check the format of a date or timestamp; raises Mismatch."""
    if function == "strftime":
        wrong = [each for each in re.findall(r"%(.?)", text, re.DOTALL) if not each or each not in STRFTIME]
        if wrong:
            hint = f"one of {', '.join(f'%{letter}' for letter in STRFTIME)}"
            raise Mismatch(f"strftime has no directive `%{wrong[0]}`", arg, hint)
        return
    try:
        parts_of(text)
    except FormatError as error:
        raise Mismatch(f"{function}: the format {error}", arg, "as in '%d.%m.%Y %H:%M'") from None


def cast(argument: Expression, target: Type, span: Span, *, tried: bool) -> Expression:
    """Return a cast; that of a constant is computed. Raises SpecError if the types have no cast, or the constant can't be cast."""
    if not is_castable(argument.type, target):
        problem = f"{argument.type.required()} can't be cast to {target}"
        raise SpecError(problem, span=span, hint=HINTS.get((argument.type.kind, target.kind)))
    if argument.type.required() == target:
        return argument
    if target.kind == "date" and argument.type.kind == "datetime" and (day := as_date(argument)) is not None:
        return day
    if isinstance(argument, Literal) and (argument.value is None or argument.type.kind != "string"):
        try:
            folded = fold(argument, target)
        except Mismatch as mismatch:
            if not tried:
                raise SpecError(mismatch.problem, span=span) from None
            folded = Literal(None, target.or_null())
        if folded is not None:
            return replace(folded, span=span)
    return Cast(argument, target.or_null(argument.type.nullable or tried), try_=tried, span=span)
