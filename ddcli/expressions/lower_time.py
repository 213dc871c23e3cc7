"""Arithmetic and functions of dates, times, timestamps and intervals in polars: on the physical integers, with overflow checks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.arithmetic import MOST_DAYS
from ddcli.expressions.lower_cast import moment_in
from ddcli.expressions.lower_number import arithmetic, check_zero, integer, quotient
from ddcli.expressions.moments import DIFF_UNITS, MONTH_UNITS, RANGE, TRUNC_UNITS, clocks, instants, iso, outside
from ddcli.expressions.tree import Call, Column, Literal
from ddcli.expressions.types import UTC

if TYPE_CHECKING:
    from ddcli.expressions.lower import Lower, Lowering
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Type


FINE_TIME = "cast(cast(day as string) || ' ' || cast(t as string) as timestamp_ns) has nine"
SIGNS = {
    "try_add": "+",
    "try_subtract": "-",
    "try_multiply": "*",
    "try_divide": "/",
    **{sign: sign for sign in ("+", "-", "*", "/", "//", "%")},
}


def _arithmetic(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    temporal = call.args[0].type.kind in ("datetime", "duration", "time")
    return (_moments if temporal else arithmetic)(low, call, SIGNS[call.function], *args)


def _moments(low: Lowering, call: Call, sign: str, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Lower sums and differences of moments and intervals, and intervals times or by integers."""
    other = call.args[1].type
    if call.type.kind == "duration" and other.is_numeric:
        return _scaled(low, call, sign, a.to_physical(), b).cast(call.type.to_polars())
    right = b.to_physical()
    if call.type.kind == "time":  # of nanoseconds since midnight
        length = right % (86400 * 10**other.second_digits) * 10 ** (9 - other.second_digits)
        moved: pl.Expr = (a.to_physical() + length if sign == "+" else a.to_physical() - length) % (86400 * 10**9)
        return moved.cast(pl.Time)
    if call.type.kind == "datetime" and call.type.unit != "ns":
        # If the sum of a timestamp in these years and an interval wraps, the result is far outside of them.
        left = a.to_physical()
        if other.kind == "time":
            low.fail(call, right % 1000 != 0, "a timestamp has six digits of a second, and the time more", FINE_TIME)
            right = right // 1000
        return dated(low, call, left + right if sign == "+" else left - right).cast(call.type.to_polars())
    return integer(low, call, "//" if sign == "/" else sign, a.to_physical(), right).cast(call.type.to_polars())


def _scaled(low: Lowering, call: Call, sign: str, length: pl.Expr, number: pl.Expr) -> pl.Expr:
    """Lower an interval times or by a number, rounded half to even."""
    if not call.args[1].type.is_integer:
        if sign == "/":
            check_zero(low, call, length, number)
        size = length.cast(pl.Float64)
        found = (size * number if sign == "*" else quotient(size, number)).round(0, mode="half_to_even")
        beyond = found.is_nan() | (found.abs() >= 2.0**63)
        low.fail(call, beyond, "interval overflow")
        return pl.when(~beyond).then(found).cast(pl.Int64)
    if sign == "*":
        return integer(low, call, "*", length, number)
    whole = integer(low, call, "//", length, number)
    rest = length - whole * number
    # Sizes below zero, which can't overflow: the rest is more than half of the divisor where it is less than what is left.
    part, left = (pl.when(each > 0).then(-each).otherwise(each) for each in (rest, number))
    is_up = (part < left - part) | ((part == left - part) & (whole % 2 != 0))
    step = pl.when((length < 0) != (number < 0)).then(-1).otherwise(1)
    return whole + pl.when(is_up).then(step).otherwise(0)


def dated(low: Lowering, call: Expression, physical: pl.Expr) -> pl.Expr:
    """Return the physical values of a date or timestamp; rows outside the years 1 to 9999 fail, and are null, as polars stops there."""
    beyond = outside(physical, call.type)
    low.fail(call, beyond, f"{'date' if call.type.kind == 'date' else 'timestamp'} out of range", RANGE)
    return pl.when(beyond).then(None).otherwise(physical)


def _add_months(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    moment, months = args
    count = call.args[1]
    kind = call.args[0].type
    if has_changes(kind):
        plain = replace(kind, zone=None)
        column = replace(call, args=(Column("", plain), count), type=replace(call.type, zone=None))
        local = _add_months(low, column, [clocks(moment, kind), months])
        # Of a time that occurs twice it is the second one, as in DuckDB and Postgres, but for no months.
        return _shown_by(low, call, local, pl.when(months == 0).then(moment))
    limit = 12 * 9999
    # Nanoseconds end within 1677 and 2262.
    first, last = (1678, 2261) if call.type.unit == "ns" else (1, 9999)
    near = months.clip(-limit, limit)
    target = moment.dt.year().cast(pl.Int64) * 12 + (moment.dt.month() - 1) + near
    beyond = (target < 12 * first) | (target > 12 * last + 11)
    low.fail_given(call, args, beyond, "date out of range", RANGE)
    if isinstance(count, Literal) and isinstance(count.value, int):
        safe = pl.when(beyond).then(None).otherwise(moment)
        return safe.dt.offset_by(f"{max(-limit, min(limit, count.value))}mo")
    safe = pl.when(beyond | months.is_null()).then(None).otherwise(moment)
    return safe.dt.offset_by(pl.format("{}mo", pl.when(beyond).then(0).otherwise(near)))


def has_changes(kind: Type) -> bool:
    """Return whether a timestamp's clocks may change: a day has not always 24 hours then."""
    return kind.zone not in {None, UTC}


def _shown_by(low: Lowering, call: Call, local: pl.Expr, like: pl.Expr) -> pl.Expr:
    """Return the instants at which the clocks of a call's zone show times, in the years 1 to 9999; of two the one with the offset of `like`."""
    found = instants(local, call.type, like)
    beyond = outside(found.to_physical(), call.type)
    low.fail(call, beyond, "timestamp out of range", RANGE)
    return pl.when(~beyond).then(found)


def _timezone(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Lower `timezone(zone, x)`: the time on clocks of the zone at an instant, or the instant at which they show a time."""
    zone = str(call.args[0].value)  # type: ignore[attr-defined]
    value, kind = args[1], call.args[1].type
    if kind.zone:
        found = value.dt.convert_time_zone(zone).dt.replace_time_zone(None)
    else:
        found = instants(value, replace(call.type, zone=zone)).dt.convert_time_zone(call.type.zone or UTC)
    beyond = outside(found.to_physical(), call.type)
    low.fail(call, beyond, "timestamp out of range", RANGE)
    return pl.when(~beyond).then(found)


def _unit(call: Call) -> str:
    arg = call.args[0]
    assert isinstance(arg, Literal)
    return str(arg.value).lower()


def _date_diff(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Count the units that begin between two moments: days and longer ones by the clocks of their zone, of two zones by UTC."""
    unit = _unit(call)
    if unit in MONTH_UNITS or unit in ("week", "day"):
        a, b = _on_clocks(call, args[1:])
        if unit in MONTH_UNITS:
            by = MONTH_UNITS[unit]
            first, last = (each.dt.year().cast(pl.Int64) * 12 + each.dt.month() - 1 for each in (a, b))
            return last // by - first // by
        first, last = (each.dt.date().to_physical().cast(pl.Int64) for each in (a, b))
        days = last - first
        return days if unit == "day" else (days.abs() // 7) * days.sign()
    (a, _), (b, _) = (_microseconds(value, arg.type.unit) for arg, value in zip(call.args[1:], args[1:], strict=True))
    by = DIFF_UNITS[unit]
    first, last = a // by, b // by
    if by == 1:
        low.fail(call, (last ^ first) & (last ^ (last - first)) < 0, "interval out of range")
    return last - first


def _on_clocks(call: Call, args: list[pl.Expr]) -> list[pl.Expr]:
    """Return two moments as the clocks of their zone show them, of two zones in UTC, in microseconds."""
    zones = [arg.type.zone for arg in call.args[1:]]
    if len(set(zones)) > 1:
        args = [arg.dt.convert_time_zone("UTC") if zone else arg for arg, zone in zip(args, zones, strict=True)]
    return [arg.dt.replace_time_zone(None).dt.cast_time_unit("us") for arg in args]


def _date_sub(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Count the whole units between two moments, toward zero."""
    if _unit(call) in MONTH_UNITS:
        return _months_between(call, args[1:])
    (a, below_a), (b, below_b) = (
        _microseconds(value, arg.type.unit) for arg, value in zip(call.args[1:], args[1:], strict=True)
    )
    between = b - a
    low.fail(call, (b ^ a) & (b ^ between) < 0, "interval out of range")
    if below_a is not None or below_b is not None:
        rest = (below_b if below_b is not None else 0) - (below_a if below_a is not None else 0)
        between -= ((between > 0) & (rest < 0)).cast(pl.Int64) - ((between < 0) & (rest > 0)).cast(pl.Int64)
    by = DIFF_UNITS[_unit(call)]
    if by == 1:
        return between
    quotient = between // by
    return quotient + ((between < 0) & (quotient * by != between)).cast(pl.Int64)


def _microseconds(value: pl.Expr, unit: str | None) -> tuple[pl.Expr, pl.Expr | None]:
    """Return the whole microseconds of a moment, rounded down, and the nanoseconds beyond them where its type has some."""
    physical = value.to_physical()
    if unit == "us":
        return physical, None
    whole = value.dt.cast_time_unit("us").to_physical()
    return whole, physical - whole * 1000 if unit == "ns" else None


def _months_between(call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Return the most months (or quarters, years) that can be added to the earlier moment without passing the later one, with the sign of the difference."""
    one, other = _on_clocks(call, args)
    backwards = one > other
    a, b = pl.when(backwards).then(other).otherwise(one), pl.when(backwards).then(one).otherwise(other)
    months = (b.dt.year().cast(pl.Int64) - a.dt.year()) * 12 + b.dt.month() - a.dt.month()
    # This many months after `a` is in the month of `b`, on the day of `a` or the month's last; the time of day is `a`'s.
    day = pl.min_horizontal(a.dt.day(), b.dt.month_end().dt.day())
    later = (day > b.dt.day()) | ((day == b.dt.day()) & (a.dt.time() > b.dt.time()))
    whole = (months - later.cast(pl.Int64)) // MONTH_UNITS[_unit(call)]
    return pl.when(backwards).then(-whole).otherwise(whole)


def _add_days(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    moment, n = args
    kind = call.args[0].type
    if has_changes(kind):
        plain = replace(
            call, args=(Column("", replace(kind, zone=None)), call.args[1]), type=replace(call.type, zone=None)
        )
        return _shown_by(low, call, _add_days(low, plain, [clocks(moment, kind), n]), moment)
    near = n.clip(-MOST_DAYS, MOST_DAYS)
    by = 1 if kind.kind == "date" else 86400 * kind.per_second
    if kind.unit != "ns":
        moved = dated(low, call, moment.to_physical().cast(pl.Int64) + near * by)
    else:
        moved = integer(low, call, "+", moment.to_physical(), near.clip(-106752, 106752) * by)
        low.fail_given(call, args, near.abs() > 106752, "timestamp out of range")
    return moved.cast(pl.Int32).cast(pl.Date) if kind.kind == "date" else moved.cast(call.type.to_polars())


def _time_bucket(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    width = call.args[0]
    assert isinstance(width, Literal)
    per = call.type.per_second
    size = width.value // timedelta(microseconds=1) * per // 10**6  # type: ignore[operator]
    origin, day = 10959 * 86400 * per, 86400 * per
    is_date = call.type.kind == "date"
    moment = args[1].to_physical().cast(pl.Int64) * day if is_date else args[1].to_physical()
    start = (moment - origin) // size * size + origin
    if is_date:
        return dated(low, call, start // day).cast(pl.Int32).cast(pl.Date)
    return dated(low, call, start).cast(call.type.to_polars())


def _make_date(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    year, month, day = args
    inside = year.is_between(1, 9999) & month.is_between(1, 12) & day.is_between(1, 31)
    parts = [pl.when(inside).then(part).otherwise(1).cast(pl.Int32) for part in (year, month, day)]
    first = pl.date(parts[0], parts[1], 1)
    # pl.date raises for days that don't exist, so count from the month's first.
    date = (first.to_physical() + (parts[2] - 1)).cast(pl.Date)
    real = inside & (date.dt.month() == parts[1])
    low.fail_given(call, args, ~real, "no such date")
    return pl.when(real).then(date)


def on_clock(call: Call, value: pl.Expr) -> pl.Expr:
    """Return a function's first argument as the clocks of its zone show it: a cast of polars would convert it to UTC."""
    return value.dt.replace_time_zone(None) if call.args[0].type.zone else value


def _part(name: str) -> Lower:
    methods = {"doy": "ordinal_day", "isodow": "weekday", "isoyear": "iso_year"}

    def lower(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
        value: pl.Expr = getattr(args[0].dt, methods.get(name, name))().cast(pl.Int64)
        return value

    return lower


def _of_second(name: str, per: int) -> Lower:
    def lower(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
        part: pl.Expr = getattr(args[0].dt, name)().cast(pl.Int64)
        return args[0].dt.second().cast(pl.Int64) * per + part

    return lower


def _epoch(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    physical, per = args[0].to_physical(), call.args[0].type.per_second
    # As a float a larger number has been rounded before it is divided: nanoseconds since 1970 all are.
    whole = physical // per
    near, far = quotient(physical, per), whole + quotient(physical - whole * per, per)
    return pl.when(physical.abs() < 1 << 53).then(near).otherwise(far)


PARTS = (
    "year", "quarter", "month", "week", "day", "doy", "isodow", "isoyear", "century", "millennium", "hour",
    "minute", "second",
)  # fmt: skip


def _strptime(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    form = call.args[1]
    assert isinstance(form, Literal)
    result = moment_in(iso(args[0], str(form.value)), call.type)
    if call.function == "strptime":
        problem = f"a text is not a date in the format {form.text()}"
        low.fail(call, args[0].is_not_null() & result.is_null(), problem, "use try_strptime for null")
    return result


LOWER: dict[str, Lower] = {
    **dict.fromkeys(SIGNS, _arithmetic),
    **{name: _part(name) for name in PARTS},
    "millisecond": _of_second("millisecond", 1000),
    "microsecond": _of_second("microsecond", 10**6),
    "dow": lambda _, __, args: args[0].dt.weekday().cast(pl.Int64) % 7,
    "decade": lambda _, __, args: args[0].dt.year().cast(pl.Int64) // 10,
    "yearweek": lambda _, __, args: args[0].dt.iso_year().cast(pl.Int64) * 100 + args[0].dt.week().cast(pl.Int64),
    "epoch": _epoch,
    "seconds": _epoch,
    "date_trunc": lambda _, call, args: args[1].dt.truncate(TRUNC_UNITS[_unit(call)]),
    "date_diff": _date_diff,
    "date_sub": _date_sub,
    "make_date": _make_date,
    "add_days": _add_days,
    "try_add_days": _add_days,
    "timezone": _timezone,
    "last_day": lambda _, call, args: on_clock(call, args[0]).cast(pl.Date).dt.month_end(),
    "time_bucket": _time_bucket,
    "strptime": _strptime,
    "try_strptime": _strptime,
    "add_months": _add_months,
    "try_add_months": _add_months,
}
