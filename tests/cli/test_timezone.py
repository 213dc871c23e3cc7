"""The zone of a pipeline: runs, `dd sql`, `dd test`, programs and tables have it, and none has the machine's."""

import datetime as dt
import json

import polars as pl
import pytest

from ddcli import Dataflow
from ddcli.errors import UsageError
from tests.harness import contents

PIPELINE = """\
dd: 1
name: days
timezone: Europe/Berlin
inputs:
  events: {path: events/, format: append, columns: {id: int64, at: timestamptz}}
collections:
  days: {sql: "select id, cast(at as date) as day, cast(at + interval '1 day' as text) as next from events"}
outputs: {days: out/}
tests:
  - name: the night of a change
    given: {events: [{id: 1, at: "2024-03-30 23:30:00Z"}, {id: 2, at: "2024-03-30 12:00:00"}]}
    expect:
      collection: days
      contents:
        - {id: 1, day: 2024-03-31, next: "2024-04-01 00:30:00+02"}
        - {id: 2, day: 2024-03-30, next: "2024-03-31 12:00:00+02"}
"""
ROWS = "id,at\n1,2024-03-30T23:30:00Z\n2,2024-03-30 12:00:00\n"
FOUND = {
    (1, dt.date(2024, 3, 31), "2024-04-01 00:30:00+02"): 1,
    (2, dt.date(2024, 3, 30), "2024-03-31 12:00:00+02"): 1,
}


@pytest.fixture
def days(shop):
    shop.write("days.yaml", PIPELINE)
    shop.write("events/1.csv", ROWS)
    return shop


def ran(shop, *arguments, code=0):
    result = shop(*arguments)
    assert result.code == code, result.err + result.out
    return result


def test_texts_without_an_offset_and_dates_are_those_of_the_zone(days, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    ran(days, "run", "days.yaml")
    assert contents(days.folder / "out") == FOUND
    ran(days, "test", "days.yaml")
    answer = ran(
        days, "sql", "select id from events where at < '2024-03-30 12:30:00'", "--from", "days.yaml", "-o", "jsonl"
    )
    assert [json.loads(line)["id"] for line in answer.out.splitlines()] == [2]


def test_timestamps_of_files_are_of_the_zone(days):
    """Parquet has instants of UTC: they are cast by the zone's clocks, declared or not."""
    at = [dt.datetime(2024, 3, 30, 23, 30, tzinfo=dt.UTC), dt.datetime(2024, 3, 30, 11, 0, tzinfo=dt.UTC)]
    (days.folder / "events/1.csv").unlink()
    pl.DataFrame({"id": [1, 2], "at": at}).write_parquet(days.folder / "events/1.parquet")
    for columns in ("{id: int64, at: timestamptz}", "{id: int64, at: 'datetime[us, UTC]'}", "infer"):
        days.write("days.yaml", PIPELINE.replace("{id: int64, at: timestamptz}", columns))
        ran(days, "run", "days.yaml")
        assert contents(days.folder / "out") == FOUND
        ran(days, "reset", "days.yaml", "--outputs", "--yes")


def test_another_zone_changes_what_depends_on_it(days):
    ran(days, "run", "days.yaml")
    days.write("days.yaml", PIPELINE.replace("Europe/Berlin", "America/New_York"))
    assert "has changed" in ran(days, "run", "days.yaml", code=4).err
    ran(days, "run", "days.yaml", "--apply")
    assert contents(days.folder / "out") == {
        (1, dt.date(2024, 3, 30), "2024-03-31 19:30:00-04"): 1,
        (2, dt.date(2024, 3, 30), "2024-03-31 12:00:00-04"): 1,
    }


def test_an_unknown_zone_is_refused(days):
    days.write("days.yaml", PIPELINE.replace("Europe/Berlin", "Europe/Atlantis"))
    result = days("check", "days.yaml")
    assert result.code
    assert "no time zone is named 'Europe/Atlantis'" in result.err


def test_a_table_of_instants_keeps_them(days):
    """A table of Delta Lake has no zones of its own: it has the instants."""
    days.write(
        "days.yaml",
        PIPELINE.replace("outputs: {days: out/}", "outputs: {days: out/, events: {as: table, delta: tables/events/}}"),
    )
    ran(days, "run", "days.yaml")
    found = pl.read_delta(str(days.folder / "tables/events")).sort("id")
    assert found["at"].dtype == pl.Datetime("us", "UTC")
    assert found["at"].to_list() == [
        dt.datetime(2024, 3, 30, 23, 30, tzinfo=dt.UTC),
        dt.datetime(2024, 3, 30, 11, 0, tzinfo=dt.UTC),
    ]


def test_a_program_has_a_zone():
    dataflow = Dataflow(timezone="Europe/Berlin")
    events = dataflow.input("events", {"id": "int64", "at": "timestamptz"})
    days = events.map({"id": "id", "day": "cast(at as date)"}).output()
    same = events.sql("select id, cast(at as date) as day from self where at >= '2024-03-31'").output()
    events.insert((1, dt.datetime(2024, 3, 30, 23, 30, tzinfo=dt.UTC)))
    events.close()
    dataflow.step()
    assert days.updates() == same.updates() == [((1, dt.date(2024, 3, 31)), 0, 1)]
    with pytest.raises(UsageError, match="no time zone"):
        Dataflow(timezone="Europe/Atlantis")
