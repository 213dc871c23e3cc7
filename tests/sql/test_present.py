"""Conditions with the present time: at each time the records are those that DuckDB selects with that time in the place of now."""

import datetime as dt
from collections import Counter
from zoneinfo import ZoneInfo

import duckdb
import pytest

from ddcli import Dataflow
from ddcli.errors import SpecError
from tests.draws import chance, many, some
from tests.harness import contents

ZONES = ["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Asia/Kolkata"]
NOWS = [
    *("current_date", "today()", "current_date - 3", "current_date + 40", "current_date - interval 7 days"),
    *("current_date - interval '1' month", "current_date + interval '1' month", "current_date + interval '1' year"),
    *("date_trunc('month', current_date)", "date_trunc('week', current_date) - interval 1 week", "now()::date - 2"),
    *(
        "date_trunc('quarter', current_date) + interval '1' month",
        "date_trunc('day', now())",
        "date_trunc('month', now())",
    ),
    *(
        "cast(current_date - interval '1' month as date)",
        "current_date + interval '36' hour",
        "now()",
        "current_timestamp",
    ),
    *("now() - interval '36' hour", "now() + interval '15' minute", "cast(now() - interval '12' hour as date)"),
    *("cast(now() as date) - interval '2' month", "cast(date_trunc('month', current_date) as date)"),
    *("current_date - interval '1 month -1 day'", "date_trunc('month', current_date) + interval '1 month 2 days'"),
    "current_date - interval '1 month 90 mins'",
]
OF_UTC = ["now() - interval '7' day", "cast(now() as timestamp)", "interval '1' day + now()"]
SIGNS = ["<", "<=", ">", ">=", "="]
BETWEEN = [
    *("current_date between d and e", "d between current_date - 7 and current_date", "now() between x and t"),
    *("d >= current_date - 7 and e < current_date + 30", "not_null and (d = current_date)"),
]
COLUMNS = {"d": "date?", "t": "datetime[us]?", "x": "datetime[us, UTC]?", "e": "date?", "not_null": "bool"}


def conditions(zone):
    rng = chance("present", zone)
    forms = NOWS + (OF_UTC if zone == "UTC" else [])
    every = [f"{column} {sign} {now}" for now in forms for column in ("d", "t", "x") for sign in SIGNS]
    every = rng.sample(every, min(many(100), len(every)))
    return [*every, *(f"{now} {rng.choice(SIGNS)} {rng.choice('dtx')}" for now in forms), *BETWEEN]


def rows_near(rng, zone):
    """Return rows near the changes of clocks, the ends of months, and of the calendar."""
    found = []
    for _ in range(40):
        near = dt.datetime(2024, *rng.choice([(2, 29), (3, 10), (3, 31), (1, 31), (11, 3), (2, 1), (10, 27)]))  # noqa: DTZ001
        t = near + dt.timedelta(hours=rng.randrange(-60, 60), minutes=rng.choice([0, 0, 30]))
        x = t.replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)
        e = dt.date(9999, 12, 31) if rng.random() < 0.2 else (t + dt.timedelta(days=rng.randrange(40))).date()
        row = [t.date(), t, x, e, rng.random() < 0.7]
        if rng.random() < 0.2:
            row[rng.randrange(4)] = None
        found.append(tuple(row))
    return found


def times_near(rng):
    starts = [dt.datetime(2024, *day, tzinfo=dt.UTC) for day in ((1, 30), (2, 28), (3, 9), (3, 30), (10, 26), (11, 2))]
    steps = [dt.timedelta(minutes=30 * n) for n in range(120)]
    times = {
        start + rng.choice(steps) + rng.choice([-1, 0, 0, 1]) * dt.timedelta(microseconds=1)
        for start in starts
        for _ in range(6)
    }
    return sorted(times)


@pytest.mark.in_turn
@pytest.mark.parametrize("zone", [*some(ZONES)])
def test_records_are_those_of_duckdb_at_each_time(zone):
    rng = chance("present times", zone)
    rows, times, asked = rows_near(rng, zone), times_near(rng), conditions(zone)
    dataflow = Dataflow(time="datetime[us, UTC]", timezone=zone)
    given = dataflow.input("t", {"id": "int64", **COLUMNS})
    outputs = [given.sql(f"select id from self where {condition}").output() for condition in asked]
    given.advance_to(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    for at, row in enumerate(rows):
        given.insert((at, *row))
    given.close()
    dataflow.step()
    database = duckdb.connect()
    database.execute(f"set timezone='{zone}'")
    database.execute("create table t (id bigint, d date, t timestamp, x timestamptz, e date, not_null bool)")
    database.executemany("insert into t values (?, ?, ?, ?, ?, ?)", [(at, *row) for at, row in enumerate(rows)])
    database.execute("create table moments (number bigint, now timestamptz, today date)")
    database.executemany(
        "insert into moments values (?, ?, ?)",
        [(at, time, time.astimezone(ZoneInfo(zone)).date()) for at, time in enumerate(times)],
    )
    names = {
        "current_timestamp": "now()",
        "now()": "moments.now",
        "current_date": "today()",
        "today()": "moments.today",
    }
    for condition, output in zip(asked, outputs, strict=True):
        updates = output.updates()
        then = condition
        for name, column in names.items():
            then = then.replace(name, column)
        wanted = {at: Counter() for at in range(len(times))}
        for at, number in database.execute(f"select moments.number, t.id from t, moments where {then}").fetchall():
            wanted[at][number] += 1
        for at, time in enumerate(times):
            found = Counter()
            for (number,), since, diff in updates:
                if since <= time:
                    found[number] += diff
            assert +found == wanted[at], (condition, time)


@pytest.mark.parametrize(
    "condition",
    [
        "d > current_date or id = 1",
        "d <> current_date",
        "extract(year from current_date) = 2024",
        "d in (current_date)",
        "now() < current_timestamp",
        "x > now() - interval '1' month",
        "x > now() - interval '1' day",
        "x > now() - interval '1 day 2 hours'",
        "d > current_date - interval (3) day",
    ],
)
def test_other_conditions_name_the_way(condition):
    given = Dataflow(time="datetime[us]", timezone="Europe/Berlin").input("t", {"id": "int64", **COLUMNS})
    with pytest.raises(SpecError, match="changes by itself") as found:
        given.sql(f"select id from self where {condition}")
    assert "day >= current_date - 7" in found.value.hint


def test_numbers_are_no_present_time():
    given = Dataflow().input("t", {"id": "int64", **COLUMNS})
    with pytest.raises(SpecError, match="times are numbers"):
        given.sql("select id from self where d > current_date")


def test_the_last_days_of_a_run(shop):
    """Records leave by themselves, at the midnights of the zone."""
    shop.write("in/1.csv", "id,day\n1,2024-03-29\n2,2024-03-31\n3,9999-12-31\n")
    inputs = "inputs: {t: {path: in/, format: append, columns: {id: int64, day: date}}}\n"
    sql = "collections: {week: {sql: 'select id from t where current_date <= day'}}\noutputs: {week: out/}\n"
    shop.write("p.yaml", f"timezone: Europe/Berlin\n{inputs}{sql}")
    for now, left in (
        ("2024-03-29 22:59:59", {1, 2, 3}),
        ("2024-03-29 23:00:00", {2, 3}),
        ("2024-03-31 21:59:59", {2, 3}),
        ("2024-03-31 22:00:00", {3}),
    ):
        assert shop("run", "p.yaml", "--now", now).code == 0
        assert contents(shop.folder / "out") == {(number,): 1 for number in left}


def test_a_query_may_name_the_time_column(shop):
    """As operators may: then it is a data column, too."""
    shop.write("in/1.csv", "id,day,amount\n1,2024-01-01,5\n2,2024-01-02,7\n3,2024-01-02,1\n")
    inputs = "inputs: {o: {path: in/, format: append, time: day, columns: {id: int64, day: date, amount: int64}}}\n"
    sql = "collections: {d: {sql: 'select o.day as on_day, sum(amount) as amount from o group by o.day'}}\noutputs: {d: out/}\n"
    shop.write("p.yaml", inputs + sql)
    assert shop("run", "p.yaml").code == 0
    assert contents(shop.folder / "out") == {(dt.date(2024, 1, 1), 5): 1, (dt.date(2024, 1, 2), 8): 1}
