"""The table of functions of dates, times, timestamps and intervals."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from ddcli.expressions.arithmetic import arithmetic, negate
from ddcli.expressions.coerce import DURATION, TIMESTAMP, Mismatch, nullable_if_any
from ddcli.expressions.moments import is_zone
from ddcli.expressions.signatures import Function, check_arguments, parse_signature, signature_rule, table
from ddcli.expressions.tree import Call, Literal
from ddcli.expressions.types import current_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.expressions.arithmetic import Resolved
    from ddcli.expressions.tree import Expression


def _date_part(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `date_part`: the call of the part's own function."""
    part = args[0].value if args and isinstance(args[0], Literal) else None
    function = part_named(part) if isinstance(part, str) else None
    if len(args) != 2 or function is None:
        raise Mismatch(
            f"{name} takes a part and a date or timestamp", args[0] if args else None, f"parts: {', '.join(PARTS)}"
        )
    return function.rule(function.name, args[1:])


def part_named(word: str) -> Function | None:
    """Return the function of a part for `extract` and `date_part`; None for an unknown part."""
    return PARTS.get(PART_SYNONYMS.get(word.lower(), word.lower()))


def _date_add(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a sum of a date or timestamp and an interval, or a number of days."""
    if len(args) != 2:
        raise _no_sum(name, "date_add")
    if args[1].type.is_integer:
        return check_arguments(parse_signature(ADD_DAYS), args), nullable_if_any(args[0].type, args), "add_days"
    return arithmetic("+", args)


def _date_sub(name: str, args: Sequence[Expression]) -> Resolved:
    """Type a difference of a date or timestamp and an interval, or a number of days; with three arguments the whole units between two moments."""
    if len(args) == 3:
        return signature_rule(WHOLE)(name, args)
    if len(args) == 2 and args[1].type.is_integer:
        days, type_, _ = negate("-", args[1:])
        return _date_add(name, [args[0], Call("negate", tuple(days), type_, span=args[1].span)])
    if len(args) != 2:
        raise _no_sum(name, "date_sub")
    return arithmetic("-", args)


def _no_sum(name: str, plain: str) -> Mismatch:
    return Mismatch(
        f"{name} takes a date and an interval, or a number of days", hint=f"{plain}(day, interval '1' month)"
    )


def _timezone(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `timezone` and `at time zone`: an instant becomes the time on clocks of the zone, and such a time an instant."""
    given = check_arguments(parse_signature(TIMEZONE), args)
    zone, value = given
    _check_zone(zone)
    back = None if value.type.zone else current_zone()
    return given, replace(value.type, zone=back), name


def _check_zone(zone: Expression) -> None:
    if not (isinstance(zone, Literal) and is_zone(str(zone.value))):
        raise Mismatch(f"no time zone is named {zone.text()}", zone, "for example 'Europe/Berlin' or 'UTC'")


def _time_bucket(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `time_bucket`; with a zone, buckets of days begin at midnights of its clocks."""
    (width, value, *zones), *_ = signature_rule(TIME_BUCKET)(name, args)
    if not zones:
        of_date = args[1].type.kind == "date"
        return [width, args[1] if of_date else value], args[1].type if of_date else value.type, name
    (zone,) = zones
    _check_zone(zone)
    if value.type.zone is None:
        raise Mismatch(f"{name} takes a zone beside a timestamp with one", zone, "leave it out")
    assert isinstance(width, Literal)
    if width.in_days:
        local = replace(value.type, zone=None)
        shown = Call("timezone", (zone, value), local)
        return [zone, Call(name, (width, shown), local)], value.type, "timezone"
    first = dt.datetime(2000, 1, 3, tzinfo=ZoneInfo(str(zone.value)))  # type: ignore[attr-defined]
    offset = Literal(first.utcoffset() or dt.timedelta(), DURATION)
    moved, type_, plus = arithmetic("+", [value, offset])
    bucket = Call(name, (width, Call(plus, tuple(moved), type_)), type_)
    return arithmetic("-", [bucket, offset])


def _strptime(name: str, args: Sequence[Expression]) -> Resolved:
    """Type `strptime`: the timestamp has a zone if its format has an offset."""
    given, *_ = signature_rule(STRPTIME)(name, args)
    form = given[1].value if isinstance(given[1], Literal) else ""
    kind = replace(TIMESTAMP, zone=current_zone()) if "%z" in str(form).replace("%%", "") else TIMESTAMP
    return given, nullable_if_any(kind, given).or_null(name.startswith("try_")), name


TIMEZONE = "timezone(zone: constant string, x: timestamp) -> x"
TIME_BUCKET = "time_bucket(width: constant duration, x: timestamp, zone: constant string = 'UTC') -> x"
STRPTIME = "strptime(text: string, format: constant string) -> timestamp"
ADD_DAYS = "add_days(x: dated, n: integer) -> x"
DIFFERENCE = "date_diff(unit: constant string, a: timestamp, b: timestamp) -> int64"
WHOLE = DIFFERENCE.replace("date_diff", "date_sub")
PART_SYNONYMS = {
    "dayofweek": "dow",
    "weekday": "dow",
    "dayofmonth": "day",
    "dayofyear": "doy",
    "weekofyear": "week",
    "isoweek": "week",
    "milliseconds": "millisecond",
    "microseconds": "microsecond",
}
PARTS = {
    each.name: each
    for each in table(
        """
    year(x: dated) -> int64 -- Year. Also `extract(year from x)`. -- year(date '2013-05-04') => 2013
    quarter(x: dated) -> int64 -- Quarter, 1 to 4. Also `extract(quarter from x)`. -- quarter(date '2013-05-04') => 2
    month(x: dated) -> int64 -- Month, 1 to 12. Also `extract(month from x)`. -- month(date '2013-05-04') => 5
    week(x: dated) -> int64 -- ISO week, 1 to 53. Also `extract(week from x)`. -- week(date '2013-05-04') => 18
    day(x: dated) -> int64 -- Day of the month. Also `extract(day from x)`. -- day(date '2013-05-04') => 4
    doy(x: dated) -> int64 -- Day of the year, from 1. Also `extract(doy from x)`. -- doy(date '2013-05-04') => 124
    dow(x: dated) -> int64 -- Day of the week, Sunday 0 to Saturday 6. Also `extract(dow from x)`. -- dow(date '2013-05-04') => 6
    isodow(x: dated) -> int64 -- Day of the week, Monday 1 to Sunday 7. Also `extract(isodow from x)`. -- isodow(date '2013-05-04') => 6
    isoyear(x: dated) -> int64 -- The year of its ISO week. Also `extract(isoyear from x)`. -- isoyear(date '2013-05-04') => 2013
    yearweek(x: dated) -> int64 -- ISO year and week, such as 201318. Also `extract(yearweek from x)`. -- yearweek(date '2013-05-04') => 201318
    decade(x: dated) -> int64 -- The year, divided by ten. Also `extract(decade from x)`. -- decade(date '2013-05-04') => 201
    century(x: dated) -> int64 -- Century: 2001 is the first year of the 21st. Also `extract(century from x)`. -- century(date '2013-05-04') => 21
    millennium(x: dated) -> int64 -- Millennium: 2001 is the first year of the 3rd. Also `extract(millennium from x)`. -- millennium(date '2013-05-04') => 3
    hour(x: timed) -> int64 -- The hour, whole. Also `extract(hour from x)`. -- hour(time '07:08:09.5') => 7
    minute(x: timed) -> int64 -- The minute, whole. Also `extract(minute from x)`. -- minute(time '07:08:09.5') => 8
    second(x: timed) -> int64 -- The second, whole. Also `extract(second from x)`. -- second(time '07:08:09.5') => 9
    millisecond(x: timed) -> int64 -- Whole milliseconds since the beginning of the minute. Also `extract(millisecond from x)`. -- millisecond(time '07:08:09.5') => 9500
    microsecond(x: timed) -> int64 -- Whole microseconds since the beginning of the minute. Also `extract(microsecond from x)`. -- microsecond(time '07:08:09.5') => 9500000
    epoch(x: timestamp) -> float64 -- Seconds since 1970-01-01 00:00 (UTC). Also `extract(epoch from x)`. -- epoch(timestamp '1970-01-01 00:01:00.5') => 60.5e0
    """
    )
}
"""The parts that `extract` and `date_part` take out of a date, time or timestamp."""
TIME = [
    *PARTS.values(),
    *table(
        f"""
    date_trunc(unit: constant string, x: timestamp) -> x -- The beginning of its year, quarter, month, week (Monday), day, hour, minute or second, a timestamp of a date, too. -- date_trunc('month', date '2013-05-04') => timestamp '2013-05-01 00:00:00'
    {DIFFERENCE} -- The number of boundaries of years, quarters, months, days, hours, minutes, seconds, milliseconds or microseconds from a to b; a week is seven days. -- date_diff('day', date '2013-05-04', date '2013-06-01') => 28
    make_date(year: integer, month: integer, day: integer) -> date -- The date; an error if it does not exist. -- make_date(2013, 5, 4) => date '2013-05-04'
    make_timestamp(year: integer, month: integer, day: integer, hour: integer, minute: integer, seconds: float) -> timestamp -- The timestamp; an error if it does not exist. `make_timestamptz` is that instant, and may have a zone as its last argument. -- make_timestamp(2013, 5, 4, 10, 20, 30.5) => timestamp '2013-05-04 10:20:30.5' -- case when year is null or month is null or day is null or hour is null or minute is null or seconds is null then null when not (hour between 0 and 23 and minute between 0 and 59 and seconds between 0 and 60 or (hour = 24 and minute = 0 and seconds = 0)) then error('there is no such time of a day') else cast(make_date(year, month, day) as timestamp) + to_hours(hour) + to_minutes(minute) + to_seconds(cast(trunc(seconds) as bigint)) + to_microseconds(cast(round((seconds - trunc(seconds)) * 1e6) as bigint)) end
    whole_seconds(x: timestamp) -> x -- A timestamp without a zone in whole seconds, rounded half away from 1970: `cast(x as timestamp_s)`. -- whole_seconds(timestamp '2013-05-04 10:20:30.5') => timestamp '2013-05-04 10:20:31' -- timestamp '1970-01-01 00:00:00' + to_seconds((epoch_us(x) + case when epoch_us(x) < 0 then -500000 else 500000 end) // 1000000)
    add_months(x: dated, n: integer) -> x -- The date or time n months later, on the last day of the month if it has no such day: `x + interval '1' month` is one of a timestamp. -- add_months(date '2013-01-31', 1) => date '2013-02-28'
    seconds(x: duration) -> float64 -- An interval in seconds. -- seconds(interval '2' hour) => 7200e0
    date_part [date_part]: date_part(part: constant string, x) -- A part of a date, time or timestamp, `extract(part from x)`. -- date_part('year', date '2024-02-01') => 2024
    date_add [date_add]: date_add(x, interval), date_add(x, days) -- `x + interval`; with a number, days later. -- date_add(date '2024-02-28', 2) => date '2024-03-01'
    date_sub [date_sub]: date_sub(x, interval), date_sub(x, days), date_sub(unit, a, b) -- `x - interval`; with a number, days earlier; with a unit and two moments, the whole units from a to b, toward zero. -- date_sub(date '2024-03-01', 2) => date '2024-02-28'
    {ADD_DAYS} -- n days later. -- add_days(date '2024-02-28', 2) => date '2024-03-01'
    days_in_month(x: dated) -> int64 -- The number of days of its month. -- days_in_month(date '2024-02-01') => 29 -- day(last_day(x))
    to_timestamp(seconds: float) -> any -- The instant this many seconds after 1970-01-01 00:00 UTC, a timestamp with a zone. -- to_timestamp(1.5) => timestamptz '1970-01-01 00:00:01.5+00' -- timestamptz '1970-01-01 00:00:00+00' + to_microseconds(cast(round(seconds * 1e6) as bigint))
    last_day(x: dated) -> date -- The last day of its month. -- last_day(date '2024-02-01') => date '2024-02-29'
    to_weeks(n: integer) -> duration -- An interval of n weeks. -- to_weeks(2) => interval '2' week -- n * interval '1' week
    to_months(n: integer) -> duration -- An interval of n months, to add to a date or timestamp. -- date '2024-01-31' + to_months(1) => timestamp '2024-02-29 00:00:00' -- n * interval '1' month
    to_years(n: integer) -> duration -- An interval of n years. -- date '2024-02-29' + to_years(1) => timestamp '2025-02-28 00:00:00' -- n * interval '1' year
    to_days(n: integer) -> duration -- An interval of n days. -- to_days(2) => interval '2' day -- n * interval '1' day
    to_hours(n: integer) -> duration -- An interval of n hours. -- to_hours(2) => interval '2' hour -- n * interval '1' hour
    to_minutes(n: integer) -> duration -- An interval of n minutes. -- to_minutes(2) => interval '2' minute -- n * interval '1' minute
    to_seconds(n: integer) -> duration -- An interval of n seconds. -- to_seconds(2) => interval '2' second -- n * interval '1' second
    to_milliseconds(n: integer) -> duration -- An interval of n milliseconds. -- to_milliseconds(2) => interval '2' millisecond -- n * interval '1' millisecond
    to_microseconds(n: integer) -> duration -- An interval of n microseconds. -- to_microseconds(2) => interval '2' microsecond -- n * interval '1' microsecond
    dayname(x: dated) -> string -- The name of its day, in English. -- dayname(date '2024-02-01') => 'Thursday' -- strftime(x, '%A')
    monthname(x: dated) -> string -- The name of its month, in English. -- monthname(date '2024-02-01') => 'February' -- strftime(x, '%B')
    epoch_ms(x: timestamp) -> int64 -- Milliseconds since 1970-01-01 00:00 (UTC), rounded half away from zero. -- epoch_ms(timestamp '1969-12-31 23:59:59.9995') => -1 -- (epoch_us(x) + 500 * sign(epoch_us(x))) // 1000
    epoch_us(x: timestamp) -> int64 -- Whole microseconds since 1970-01-01 00:00 (UTC). -- epoch_us(timestamp '1970-01-01 00:00:01.5') => 1500000 -- date_diff('microsecond', timestamp '1970-01-01 00:00:00', x)
    strptime [strptime]: strptime(text, format: constant) -- Text in this format as a timestamp: `%Y`, `%y`, `%m`, `%b`, `%B`, `%d`, `%H`, `%I`, `%p`, `%M`, `%S`, `%f`, `%z` (an offset: then it has a zone), `%F`, `%T`, `%R`, `%%`; other text is an error. A day: `cast(strptime(...) as date)`. -- strptime('01.02.2024', '%d.%m.%Y') => timestamp '2024-02-01 00:00:00'
    try_strptime [strptime]: try_strptime(text, format: constant) -- The same; null for other text. -- try_strptime('1 Feb 2024', '%d.%m.%Y') => null
    timezone [timezone]: timezone(zone: constant, x), x at time zone zone -- The clock time of the zone at a timestamp with a zone; the timestamp at which its clocks show one without a zone. -- timezone('Europe/Berlin', timestamp '2024-07-01 12:00:00') => timestamptz '2024-07-01 10:00:00+00'
    time_bucket [time_bucket]: time_bucket(width: constant interval, x [, zone: constant]) -- The beginning of the bucket of x, its day for a date: buckets have the width of the interval, counted from Monday, 2000-01-03, in UTC unless a zone is given. -- time_bucket(interval '15' minute, timestamp '2024-02-01 10:20:00') => timestamp '2024-02-01 10:15:00'
    """,
        date_part=_date_part,
        date_add=_date_add,
        strptime=_strptime,
        timezone=_timezone,
        time_bucket=_time_bucket,
        date_sub=_date_sub,
    ),
]
