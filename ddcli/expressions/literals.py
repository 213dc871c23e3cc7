"""Constants as they are written: numbers, dates and times, intervals."""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from ddcli.errors import SpecError
from ddcli.expressions.casts import DIFF_UNITS, MONTH_UNITS
from ddcli.expressions.coerce import (
    DATE,
    DURATION,
    FLOAT64,
    INT64,
    MONTHS,
    TIME,
    TIMESTAMP,
    ZONED,
    Mismatch,
    decimal_type,
    integer_range,
    temporal_value,
)
from ddcli.expressions.tree import Literal
from ddcli.expressions.types import MAX_PRECISION

if TYPE_CHECKING:
    from ddcli.errors import Span
    from ddcli.expressions.types import Type

TEMPORAL = {"date": DATE, "timestamp": TIMESTAMP, "time": TIME, "datetime": TIMESTAMP, "timestamptz": ZONED}
"""Types whose name may come before a text: `date '2013-01-01'`."""
LONGEST_WHOLE = 40
"""Digits of a whole number, more than those that any type has."""


def number(digits: str, span: Span) -> Literal:
    """Return a number: whole ones are int64, beyond its range decimals, `1.5` is a decimal, `1e3` a float. Raises SpecError for one that no type holds."""
    if re.fullmatch(r"-?\d+", digits):
        value = _whole(digits)
        low, high = integer_range("int64")
        if low <= value <= high:
            return Literal(value, INT64, span=span)
        size = len(str(abs(value)))
        if size > MAX_PRECISION:
            raise SpecError(f"{digits} has more than {MAX_PRECISION} digits", span=span)
        return Literal(Decimal(value), decimal_type(size, 0), span=span)
    if re.fullmatch(r"-?\d*\.\d*", digits):
        exact = Decimal(digits) or Decimal(digits.lstrip("-"))  # decimals have no -0.0
        whole, _, fraction = digits.lstrip("-").partition(".")
        precision = len(whole.lstrip("0")) + len(fraction)
        if precision > MAX_PRECISION:
            raise SpecError(f"{digits} has more than {MAX_PRECISION} digits", span=span)
        return Literal(exact, decimal_type(precision, len(fraction)), span=span)
    try:
        approximate = float(digits)
    except ValueError:
        raise SpecError(f"`{digits}` is not a number", span=span) from None
    if math.isinf(approximate):
        raise SpecError(f"{digits} is too large for float64", span=span)
    return Literal(approximate, FLOAT64, span=span)


def temporal(literal: Literal, target: Type) -> Literal:
    """Return a text as a date or a time. Raises SpecError for any other text."""
    try:
        return Literal(temporal_value(str(literal.value), target, literal), target, span=literal.span)
    except Mismatch as mismatch:
        raise SpecError(mismatch.problem, span=literal.span, hint=mismatch.hint) from None


PART = re.compile(r"\s*([+-]?\d+)\s*([a-z]+?)s?(?=[\s\d+-]|$)", re.IGNORECASE)


def interval_of(text: str, span: Span) -> Literal:
    """Return the interval that a text names, `1 day` or `1 year 6 months`. Raises SpecError for any other text, and for months beside days, which have no common length."""
    parts, at = [], 0
    while match := PART.match(text, at):
        parts.append(interval(match[1], match[2].lower(), span))
        at = match.end()
    if not parts or text[at:].strip():
        raise SpecError(
            f"'{text}' is no interval", span=span, hint="as in interval '1 day' or interval '2 hours 30 minutes'"
        )
    first, *others = parts
    if any(each.type != first.type for each in others):
        hint = "add them one after the other: x + interval '1' month + interval '2' day"
        raise SpecError("an interval of months and of days has no length", span=span, hint=hint)
    if not others:
        return first
    if first.type == MONTHS:
        return replace(first, value=sum(each.value for each in parts))  # type: ignore[misc]
    size = sum(each.value // dt.timedelta(microseconds=1) for each in parts)  # type: ignore[operator, misc]
    return replace(_length(size, span), in_days=all(each.in_days for each in parts))


def interval(amount: str, unit: str, span: Span) -> Literal:
    """Return the interval of `amount` units. Raises SpecError for an unknown unit, and for an amount that is not a whole number or is too large."""
    if unit not in DIFF_UNITS and unit not in MONTH_UNITS:
        hint = f"one of {', '.join([*DIFF_UNITS, *MONTH_UNITS])}"
        raise SpecError(f"unknown unit of an interval: `{unit}`", span=span, hint=hint)
    if not re.fullmatch(r"[+-]?\d+", amount):
        hint = f"write interval '30' {unit}; a column: n * interval '1' {unit}"
        raise SpecError("an interval takes a constant whole number", span=span, hint=hint)
    if unit in MONTH_UNITS:
        return Literal(_whole(amount) * MONTH_UNITS[unit], MONTHS, span=span)
    return replace(_length(_whole(amount) * DIFF_UNITS[unit], span), in_days=unit in {"day", "week"})


def _length(size: int, span: Span) -> Literal:
    """Return an interval of so many microseconds. Raises SpecError if it is too long."""
    try:
        value = dt.timedelta(microseconds=size)
    except OverflowError:
        value = None
    if value is None or abs(size) > integer_range("int64")[1]:
        raise SpecError("this interval is too long", span=span)
    return Literal(value, DURATION, span=span)


def _whole(digits: str) -> int:
    """Return a whole number; for more digits than any type holds, another such number: Python reads at most some thousand digits."""
    sign, rest = ("-" if digits[:1] == "-" else ""), digits.lstrip("+-").lstrip("0")
    return int(sign + (rest or "0") if len(rest) <= LONGEST_WHOLE else f"{sign}1{'0' * LONGEST_WHOLE}")
