"""The times at which a record exists: bounds in the unit of the pipeline's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import SpecError, Text
from ddcli.expressions.arithmetic import as_date
from ddcli.expressions.scope import ColumnScope
from ddcli.expressions.tree import Cast

if TYPE_CHECKING:
    from ddcli.errors import Span
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Type

FORMS = {
    "int64": "an integer, as time is",
    "date": "a date, as time is: `cast(... as date)`",
    "datetime": "a timestamp, as time is: `cast(... as timestamp)`",
}


def bound(expression: Expression, text: Text, time: Type) -> Expression:
    """Return a bound of a temporal filter as a time. A time of a coarser unit is rounded up: there `<=` and `<` are exact."""
    given, wanted = expression.type.required(), time.or_null(expression.type.nullable)
    if given == time:
        return expression
    if time.is_integer and given.is_integer:
        return Cast(expression, wanted, span=expression.span)
    if time.kind == "datetime" and given.kind == "date" and not time.zone:
        return Cast(expression, wanted, span=expression.span)
    if time.kind == given.kind == "datetime" and bool(time.zone) == bool(given.zone):
        finer = given.second_digits > time.second_digits
        return _rounded_up(expression, wanted, text.span) if finer else Cast(expression, wanted, span=expression.span)
    if time.kind == "date" and given.kind == "datetime" and (day := as_date(expression)) is not None:
        return day  # `placed + interval '7' day` is a timestamp that begins a day
    problem = f"a bound is of the type of the pipeline's time, {time}, not {given}"
    raise SpecError(problem, span=text.span, hint=f"give {FORMS[time.kind]}")


def _rounded_up(expression: Expression, time: Type, span: Span) -> Expression:
    """Return the first time in a coarser unit that is not before a time in a finer one; a cast alone rounds down."""
    from ddcli.expressions.parse import parse_scalar

    down, unit = f"cast(x as {time.required()})", {"ms": "millisecond", "us": "microsecond"}[time.unit or "us"]
    up = f"cast({down} + interval '1' {unit} as {time.required()})"
    text = f"case when cast({down} as {expression.type.required()}) < x then {up} else {down} end"
    return parse_scalar(Text(text, span), ColumnScope({"x": expression.type})).substitute({"x": expression})
