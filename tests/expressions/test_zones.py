"""Functions of timestamps with a zone: what its clocks and calendars show, as Python's `zoneinfo` has them."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from ddcli import Dataflow
from ddcli.expressions.types import parse_type
from tests.draws import chance, many
from tests.expressions.support import values
from tests.reference.expressions import shown_at

if TYPE_CHECKING:
    from collections.abc import Callable

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"]
FORM = "%Y-%m-%d %H:%M:%S %j %A %B %I %p"
SHOWN: dict[str, Callable[[dt.datetime], Any]] = {
    "year(x)": lambda x: x.year,
    "quarter(x)": lambda x: (x.month + 2) // 3,
    "month(x)": lambda x: x.month,
    "week(x)": lambda x: x.isocalendar().week,
    "day(x)": lambda x: x.day,
    "doy(x)": lambda x: x.timetuple().tm_yday,
    "dow(x)": lambda x: x.isoweekday() % 7,
    "isodow(x)": lambda x: x.isoweekday(),
    "isoyear(x)": lambda x: x.isocalendar().year,
    "hour(x)": lambda x: x.hour,
    "minute(x)": lambda x: x.minute,
    "last_day(x)": lambda x: x.date().replace(day=calendar.monthrange(x.year, x.month)[1]),
    "dayname(x)": lambda x: f"{x:%A}",
    "monthname(x)": lambda x: f"{x:%B}",
    f"strftime(x, '{FORM}')": lambda x: f"{x:{FORM}}",
    "date_trunc('day', x)": lambda x: dt.datetime(x.year, x.month, x.day, tzinfo=x.tzinfo),
    "date_trunc('month', x)": lambda x: dt.datetime(x.year, x.month, 1, tzinfo=x.tzinfo),
    "date_trunc('hour', x)": lambda x: x - dt.timedelta(minutes=x.minute, seconds=x.second),
    "cast(x as date)": lambda x: x.date(),
    "cast(x as timestamp)": lambda x: x.replace(tzinfo=None, fold=0),
    "cast(x as time)": lambda x: x.time(),
    "cast(x as string)": lambda x: f"{x:%Y-%m-%d %H:%M:%S}{offset_text(x)}",
    "x at time zone 'Asia/Tokyo'": lambda x: x.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None),
    "(x at time zone 'Europe/Berlin') at time zone 'Europe/Berlin'": lambda x: shown_at(
        x.astimezone(ZoneInfo("Europe/Berlin")).replace(tzinfo=None, fold=0), "Europe/Berlin"
    ),
    "epoch(x)": lambda x: x.timestamp(),
    "epoch_ms(x)": lambda x: int(x.timestamp()) * 1000,
}


def offset_text(x: dt.datetime) -> str:
    """Return the offset of a moment from UTC, as short as it may be written."""
    return re.sub("(:00)+$", "", x.isoformat()[19:])


HALF = dt.timedelta(minutes=30)
CHANGES = [dt.datetime(2024, month, day, tzinfo=dt.UTC) for month, day in ((3, 10), (3, 31), (10, 27), (4, 7))]


def moments(zone: str) -> list[dt.datetime]:
    """Return moments around changes of clocks and the ends of months, and some others."""
    rng, own = chance("zones", zone), ZoneInfo(zone)
    ends = [dt.datetime(2024, month, 1, tzinfo=own) - n * HALF for month in (1, 2, 3, 7) for n in (-1, 0, 1)]
    near = [change + n * HALF for change in CHANGES for n in range(48)]
    some = [dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + rng.randrange(1 << 22) * 16 * HALF / 100 for _ in range(many(200))]
    return [each.astimezone(own).replace(microsecond=0) for each in (*ends, *near, *some)]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_function_has_what_the_clocks_of_the_zone_show(zone: str, unit: str) -> None:
    given = moments(zone)
    for text, shown in SHOWN.items():
        assert values(text, {"x": f"datetime[{unit}, {zone}]"}, x=given) == [shown(each) for each in given], text


@pytest.mark.parametrize(
    ("kind", "function"), [("datetime[ns]", "epoch"), ("duration[ns]", "seconds"), ("datetime[us]", "epoch")]
)
def test_seconds_are_those_of_all_digits(kind: str, function: str) -> None:
    """Where more digits are behind them than a float has, they are rounded once."""
    rng = chance("seconds", kind)
    far = 1 << 62 if kind.endswith("[ns]") else 250_000_000_000_000_000
    per = 10**9 if kind.endswith("[ns]") else 10**6
    given = [
        rng.randrange(-far // 10, far) // (1, 1000, per)[at % 3] * (1, 1000, per)[at % 3] for at in range(many(999))
    ]
    given += [per * 1_018_523_520, 0, -per, -1, 1, -per * 1_018_523_520 - 1]
    column = pl.Series(given, dtype=pl.Int64).cast(parse_type(kind).to_polars())
    assert values(f"{function}(x)", {"x": kind}, x=column) == [float(Fraction(each, per)) for each in given]


def test_months_between_two_zones_are_counted_by_utc() -> None:
    """As days and hours are, and a timestamp without a zone is taken for one in UTC."""
    first, last = dt.datetime(2024, 1, 1, 0, 30, tzinfo=dt.UTC), dt.datetime(2024, 1, 31, 23, 30, tzinfo=dt.UTC)
    for one, given in (("datetime[us]", first.replace(tzinfo=None)), ("datetime[us, UTC]", first)):
        columns = {"a": one, "b": "datetime[us, Europe/Berlin]"}
        for later, months in ((last, 0), (last + dt.timedelta(hours=1), 1)):
            assert values("date_sub('month', a, b)", columns, a=[given], b=[later]) == [months]


@pytest.mark.parametrize("unit", ["microsecond", "millisecond", "second"])
@pytest.mark.parametrize("kinds", [("ns", "ns"), ("ns", "us"), ("us", "ns"), ("ns", "ms")])
def test_whole_units_are_counted_with_nanoseconds(unit: str, kinds: tuple[str, str]) -> None:
    rng, per = chance("units", unit, kinds), {"ns": 1, "us": 1000, "ms": 10**6}
    size = {"microsecond": 10**3, "millisecond": 10**6, "second": 10**9}[unit]
    # Near whole units, where a nanosecond decides.
    sides = [
        [
            (rng.randrange(-3, 4) * max(size, per[kind]) + rng.randrange(-1500, 1500)) // per[kind]
            for _ in range(many(500))
        ]
        for kind in kinds
    ]
    columns = {name: f"datetime[{kind}]" for name, kind in zip("ab", kinds, strict=True)}
    a, b = (
        pl.Series(side, dtype=pl.Int64).cast(pl.Datetime(kind))  # type: ignore[arg-type]
        for side, kind in zip(sides, kinds, strict=True)
    )
    apart = [other * per[kinds[1]] - one * per[kinds[0]] for one, other in zip(*sides, strict=True)]
    wanted = [abs(each) // size * (1 if each > 0 else -1) for each in apart]
    assert values(f"date_sub('{unit}', a, b)", columns, a=a, b=b) == wanted


def test_a_constant_is_its_instant_after_the_last_change_of_clocks() -> None:
    dataflow = Dataflow(timezone="America/New_York")
    rows = dataflow.input("t", {"n": "int64"})
    instant = "timestamptz '2500-07-15 12:00:00+00'"
    output = rows.sql(
        f"select epoch_us({instant}) as a, {instant} = {instant} + n * interval '1' hour as b from self"
    ).output()
    rows.insert((0,))
    rows.close()
    dataflow.step()
    assert [record for record, _, _ in output.updates()] == [(16_742_116_800_000_000, True)]


def test_a_series_by_days_is_one_of_the_calendar_of_the_zone() -> None:
    dataflow = Dataflow(timezone="America/New_York")
    rows = dataflow.input("t", {"n": "int64"})
    days = "generate_series(timestamptz '{}', timestamptz '{}', interval '{}' day) as g(x)"
    spring = days.format("2024-03-09 12:00:00-05", "2024-03-12 12:00:00-04", 1)
    autumn = days.format("2024-11-05 12:00:00-05", "2024-11-02 12:00:00-04", -1)
    outputs = [dataflow.sql(f"select cast(x as varchar) as x from {one}").output() for one in (spring, autumn)]
    rows.insert((0,))
    rows.close()
    dataflow.step()
    found = [sorted(record[0] for record, _, _ in output.updates()) for output in outputs]
    assert found == [
        [f"2024-03-{day:02} 12:00:00-0{5 if day < 10 else 4}" for day in range(9, 13)],
        [f"2024-11-{day:02} 12:00:00-0{4 if day < 3 else 5}" for day in range(2, 6)],
    ]
