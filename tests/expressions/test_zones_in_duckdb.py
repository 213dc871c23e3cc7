"""Expressions with time zones, in a pipeline with a zone: their values are those of DuckDB with `set timezone`."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pytest

from ddcli import Dataflow
from ddcli.expressions.types import in_zone
from tests.draws import chance, many, some
from tests.expressions.support import values

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "Australia/Lord_Howe", "America/Sao_Paulo"]  # fmt: skip
FORMS = [
    *(
        "cast(x as date)",
        "cast(x as timestamp)",
        "cast(x as varchar)",
        "cast(t as timestamptz)",
        "cast(d as timestamptz)",
    ),
    *(
        "cast(s as timestamptz)",
        "try_cast(s as timestamptz)",
        "t::timestamp with time zone",
        "x at time zone 'Asia/Tokyo'",
    ),
    *("t at time zone 'America/New_York'", "d at time zone 'Europe/Berlin'", "timezone('Europe/Berlin', t)"),
    *("timezone('Pacific/Auckland', x)", "cast(x at time zone 'America/Sao_Paulo' as date)"),
    *(
        "x + interval '1 day'",
        "x - interval 1 day",
        "x + 2 * interval '1' day",
        "x + n * interval '1' day",
        "interval 1 week + x",
    ),
    *(
        "x + n * interval '1' month",
        "d - interval '1' year * n",
        "x + interval '1' month",
        "x - interval '2' month",
        "x + interval '1' year",
        "x + interval '24' hour",
    ),
    *(
        "x + (interval '1' day + interval '90' minute)",
        "x - (interval '1' day - interval '90' minute)",
        "x + interval '1 day 2 hours'",
        "x - (-interval '0 days 01:30')",
        "x + (-interval '1 month 1 day 2 hours')",
        "x - interval '1 month 1 day 02:30'",
        "x + interval '-1 months 1.5 days'",
        "x + (interval '90 mins' + interval '1 quarter') + interval '2 days ago'",
        "x + (-interval '1' day)",
        "x + (-interval '1' month)",
        "d - (-(n * interval '1' year))",
    ),
    *(f"date_trunc('{unit}', x)" for unit in ("year", "quarter", "month", "week", "day")),
    *(
        f"extract({part} from x)"
        for part in ("year", "month", "day", "hour", "minute", "dow", "isodow", "week", "doy", "epoch")
    ),
    *("date_part('hour', x)", "last_day(x)", "dayname(x)", "strftime(x, '%Y-%m-%d %H:%M:%S')"),
    *("time_bucket(interval '1' day, x)", "time_bucket(interval '15' minute, x)", "time_bucket(interval '36' hour, x)"),
    *("time_bucket(interval '7' day, x, 'Europe/Berlin')", "time_bucket(interval '36' hour, x, 'America/New_York')"),
    *("x = t", "x < d", "x >= t", "x = x2", "x < timestamptz '2024-03-31 02:30:00'", "x < '2024-10-27 02:30:00'"),
    *(
        "x > timestamptz '2024-03-31T00:30:00Z'",
        "coalesce(x, t)",
        "greatest(x, t)",
        "case when x > t then x else d end",
    ),
    "strptime(strftime(t, '%Y-%m-%d %H:%M:%S') || '+0530', '%Y-%m-%d %H:%M:%S%z')",
]
KINDS = {"x": "datetime[us, {}]", "x2": "datetime[us, UTC]", "t": "datetime[us]", "d": "date", "s": "string", "n": "int64"}  # fmt: skip
TYPES = {"x": "timestamptz", "x2": "timestamptz", "t": "timestamp", "d": "date", "s": "varchar", "n": "bigint"}


def changes(zone: str) -> list[dt.datetime]:
    """Return the hours in which the clocks of a zone change, of some years, as times of UTC."""
    hours = [
        dt.datetime(year, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=n) for year in (2016, 2024) for n in range(8784)
    ]
    own = ZoneInfo(zone)
    shown = [each.astimezone(own).utcoffset() for each in hours]
    return [each for each, one, other in zip(hours[1:], shown, shown[1:], strict=False) if one != other]


@cache
def rows(zone: str) -> list[tuple[Any, ...]]:
    """Return rows near changes of the clocks, and others."""
    rng, near = chance("zones", zone), [*changes(zone), dt.datetime(2024, 3, 1, tzinfo=dt.UTC)]
    found: list[tuple[Any, ...]] = []
    for _ in range(many(300)):
        around = rng.choice(near) if rng.random() < 0.9 else dt.datetime(rng.randrange(1930, 2030), 5, 5, tzinfo=dt.UTC)
        step = dt.timedelta(minutes=30) if rng.random() < 0.7 else dt.timedelta(seconds=1.25)
        x, other = (around + rng.randrange(-110, 110) * step for _ in range(2))
        t = other.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        text = rng.choice(["{:%Y-%m-%d %H:%M:%S}", "{:%Y-%m-%dT%H:%M:%S.%f}", "{:%Y-%m-%d}"]).format(t)
        text += rng.choice(["", "", "Z", "+02", "+05:30", "-0330", "-03:30:15", "+00"]) if len(text) > 10 else ""
        found.append((x, other, t, t.date(), text, rng.randrange(-3, 4)))
    return found


@cache
def database(zone: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"set timezone='{zone}'")
    connection.execute(f"create table t ({', '.join(f'{name} {kind}' for name, kind in TYPES.items())}, place int)")
    connection.executemany(
        f"insert into t values ({'?, ' * len(TYPES)}?)", [(*row, at) for at, row in enumerate(rows(zone))]
    )
    return connection


def plain(value: object) -> object:
    """Return an instant as that of UTC: the same in another zone is the same value."""
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo else value


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("form", [*some(FORMS)])
def test_values_are_those_of_duckdb(form: str, zone: str) -> None:
    columns = {name: kind.format(zone) for name, kind in KINDS.items()}
    given = {
        name: pl.Series([row[at] for row in rows(zone)]).cast(_dtype(kind))
        for at, (name, kind) in enumerate(columns.items())
    }
    used = {name: kind for name, kind in columns.items() if name in form.replace("'", " ").split() or True}
    with in_zone(zone):
        found = values(form, used, **{name: given[name] for name in used})  # type: ignore[arg-type]
    wanted = [value for (value,) in database(zone).execute(f"select {form} from t order by place").fetchall()]
    wrong = [
        (row, one, other)
        for row, one, other in zip(rows(zone), found, wanted, strict=True)
        if plain(one) != plain(other) or type(one) is not type(other)
    ]
    assert not wrong, (len(wrong), wrong[:3])


def _dtype(text: str) -> pl.DataType:
    from ddcli.expressions.types import parse_type

    kind = parse_type(text)
    assert kind is not None
    return kind.to_polars()


DISTANCES = ["1 day", "24 hours", "1 day 30 minutes", "2 weeks", "1 month", "1 year", "0 days", "90 minutes"]
CALLS = ["count(*)", "min(n)", "max(n)", "sum(n)"]


@pytest.mark.parametrize("zone", [*some(ZONES)])
def test_frames_by_days_and_months_are_those_of_duckdb(zone: str) -> None:
    """Where the clocks are set back, a later time may be the earlier one a day before: its frame begins before that of the row before."""
    rng, asked = chance("frames", zone), []
    for _ in range(many(60)):
        near = sorted(rng.sample(range(4), 2))
        bound = ["interval '{}' preceding", "current row", "interval '{}' following", "unbounded following"]
        ends = [bound[at].format(rng.choice(DISTANCES)) for at in near]
        order = rng.choice(["x", "x desc", "t", "d desc nulls first"])
        exclude = rng.choice(["", "", " exclude current row", " exclude group"])
        frame = f"range between {ends[0]} and {ends[1]}{exclude}"
        asked.append(f"{rng.choice(CALLS)} over (order by {order} {frame})")
    dataflow = Dataflow(time="int64", timezone=zone)
    schema = {"x": f"datetime[us, {zone}]", "t": "datetime[us]", "d": "date", "n": "int64", "place": "int64"}
    given = dataflow.input("t", schema)
    outputs = [given.sql(f"select place, {call} as found from self").output() for call in asked]
    for part in (0, 1):
        for at, (x, _, t, d, _, n) in enumerate(rows(zone)):
            if at % 2 == part:
                given.insert((x, t, d, n, at))
        given.advance_to(part + 1)
        dataflow.step()
    for call, output in zip(asked, outputs, strict=True):
        found: Counter[tuple[Any, ...]] = Counter()
        for record, _, diff in output.updates():
            found[tuple(record)] += diff
        wanted = Counter(database(zone).execute(f"select place, {call} as found from t").fetchall())
        assert +found == wanted, call
