"""Dates, times, timestamps and intervals in polars: arithmetic on the physical integers, with overflow checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.casts import DIFF_UNITS, TRUNC_UNITS
from ddcli.expressions.coerce import integer_range
from ddcli.expressions.lower_cast import PER_SECOND
from ddcli.expressions.lower_number import integer
from ddcli.expressions.tree import Call, Literal

if TYPE_CHECKING:
    import datetime as dt

    from ddcli.expressions.lower import Lower, Lowering

DAY_LOW, DAY_HIGH = integer_range("int32")


def temporal_arithmetic(low: Lowering, call: Call, sign: str, a: pl.Expr, b: pl.Expr) -> pl.Expr:
    """Lower sums and differences of moments and intervals, and intervals times or by integers."""
    one, other = (arg.type for arg in call.args)
    if one.kind == "date" and other.kind == "duration":
        days = _whole_days(call.args[1]) * (1 if sign == "+" else -1)
        moved = a.to_physical().cast(pl.Int64) + days
        low.fail(call, (moved > DAY_HIGH) | (moved < DAY_LOW), "date out of range")
        return moved.cast(pl.Int32, strict=False).cast(pl.Date)
    if one.kind == "date":
        days_between = a.to_physical().cast(pl.Int64) - b.to_physical().cast(pl.Int64)
        most = integer_range("int64")[1] // (86400 * PER_SECOND["us"])
        low.fail(call, (days_between > most) | (days_between < -most), "interval out of range")
        return (days_between * (86400 * PER_SECOND["us"])).cast(call.type.to_polars())
    right = b if other.is_integer else b.to_physical()
    return integer(low, call, sign, a.to_physical(), right).cast(call.type.to_polars())


def _whole_days(arg: object) -> int:
    assert isinstance(arg, Literal)
    value: dt.timedelta = arg.value  # type: ignore[assignment]
    return value.days


def _add_months(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    moment, months = args
    count = call.args[1]
    # 200 000 years are more than any calendar here has, and polars raises where its own ends.
    limit, zone = 2_400_000, call.args[0].type
    year = moment.dt.year().cast(pl.Int64)
    last = 262_000 if zone.kind == "date" else {"ms": 262_000, "us": 262_000, "ns": 2_262}[zone.unit or "us"]
    first = -262_000 if last > 10_000 else 1_678
    near = months.clip(-limit, limit)
    target = year + near // 12
    outside = (months > limit) | (months < -limit) | (target >= last - 1) | (target <= first + 1)
    low.fail_given(call, args, outside, "date out of range")
    if isinstance(count, Literal) and isinstance(count.value, int):
        safe = pl.when(outside).then(None).otherwise(moment)
        return safe.dt.offset_by(f"{max(-limit, min(limit, count.value))}mo")
    safe = pl.when(outside | months.is_null()).then(None).otherwise(moment)
    return safe.dt.offset_by(pl.format("{}mo", pl.when(outside).then(0).otherwise(near)))


def _date_trunc(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[1].dt.truncate(TRUNC_UNITS[_unit(call)])


def _unit(call: Call) -> str:
    arg = call.args[0]
    assert isinstance(arg, Literal)
    return str(arg.value).lower()


def _date_diff(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    a, b = (
        value.to_physical() if arg.type.unit == "us" else value.dt.cast_time_unit("us").to_physical()
        for arg, value in zip(call.args[1:], args[1:], strict=True)
    )
    between = b - a
    low.fail(call, (b ^ a) & (b ^ between) < 0, "interval out of range")
    by = DIFF_UNITS[_unit(call)]
    if by == 1:
        return between
    quotient = between // by
    return quotient + ((between < 0) & (quotient * by != between)).cast(pl.Int64)


def _make_date(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    year, month, day = args
    inside = year.is_between(-9999, 9999) & month.is_between(1, 12) & day.is_between(1, 31)
    parts = [pl.when(inside).then(part).otherwise(1).cast(pl.Int32) for part in (year, month, day)]
    first = pl.date(parts[0], parts[1], 1)
    # pl.date raises for days that don't exist, so count from the month's first.
    date = (first.to_physical() + (parts[2] - 1)).cast(pl.Date)
    real = inside & (date.dt.month() == parts[1])
    low.fail_given(call, args, ~real, "no such date")
    return pl.when(real).then(date)


def _part(name: str) -> Lower:
    methods = {"doy": "ordinal_day", "isodow": "weekday", "dow": "weekday"}

    def lower(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
        value: pl.Expr = getattr(args[0].dt, methods.get(name, name))().cast(pl.Int64)
        return value % 7 if name == "dow" else value

    return lower


def _epoch(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].to_physical() / PER_SECOND[call.args[0].type.unit or "us"]


PARTS = ("year", "quarter", "month", "week", "day", "doy", "dow", "isodow", "hour", "minute", "second")
LOWER: dict[str, Lower] = {
    **{name: _part(name) for name in PARTS},
    "epoch": _epoch,
    "seconds": _epoch,
    "date_trunc": _date_trunc,
    "date_diff": _date_diff,
    "make_date": _make_date,
    "add_months": _add_months,
    "try_add_months": _add_months,
}
