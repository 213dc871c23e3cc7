"""The change logs in fixtures/ are what they say they are, and the scripts still make them."""

import importlib.util
import random
import sys
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

FLIGHT = ["carrier", "flight", "origin", "sched_dep"]
LEG = ["carrier", "origin", "dest", "miles"]
LOGS = ["flights/flights", "manages", "legs/legs", "legs/starts", "dealings/dealings", "dealings/accusations"]
LOGS += ["dealings/vetted"]
STANDING = {"airlines": ["carrier"], "airports": ["faa"], "planes": ["tailnum"]}


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "fixtures" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def files(log):
    """Return a log's files: a folder's, or the one of that name."""
    return sorted(log.glob("*.parquet")) if log.is_dir() else [log.with_suffix(".parquet")]


def read(log):
    """Read a log as it stands: file after file, row after row."""
    return pl.concat([pl.read_parquet(path) for path in files(log)])


@pytest.fixture(scope="module")
def flights(fixtures):
    return read(fixtures / "flights" / "flights")


@pytest.fixture(scope="module")
def manages(fixtures):
    return read(fixtures / "manages")


@pytest.fixture(scope="module")
def legs(fixtures):
    return read(fixtures / "legs" / "legs")


@pytest.fixture(scope="module")
def attendance(fixtures):
    return read(fixtures / "circles" / "attendance")


@pytest.mark.parametrize("log", LOGS)
def test_a_log_is_sorted_by_time_and_consolidated(fixtures, log):
    for path in files(fixtures / log):
        rows = pl.read_parquet(path)
        assert rows["time"].is_sorted()
        assert not rows.select(pl.exclude("diff")).is_duplicated().any()
        assert 0 not in rows["diff"]


@pytest.mark.parametrize("log", [log for log in LOGS if log != "legs/legs"])
def test_a_record_is_there_once_or_not_at_all_at_any_time(fixtures, log):
    rows = read(fixtures / log)
    data = [name for name in rows.columns if name not in {"time", "diff"}]
    count = rows.sort("time").with_columns(pl.col("diff").cum_sum().over(data))["diff"]
    assert set(count.unique()) <= {0, 1}
    assert set(rows["diff"].unique()) <= {-1, 1}


def test_files_follow_each_other_in_time(fixtures):
    """So the log can be taken in file by file, as it would have been written."""
    paths = sorted((fixtures / "flights" / "flights").glob("*.parquet"))
    times = pl.concat([pl.read_parquet(path, columns=["time"]) for path in paths])["time"]
    assert len(paths) == 4
    assert times.is_sorted()


def test_only_columns_that_may_be_null_are_declared_so(fixtures):
    """A pipeline that declares `int64` is refused a column with nulls; the files promise which have none."""
    nullable = {"tailnum", "dep_delay", "arr_delay"}
    for path in (fixtures / "flights" / "flights").glob("*.parquet"):
        assert {field.name for field in pq.read_schema(path) if field.nullable} == nullable
        rows = pl.read_parquet(path)
        assert {name for name in rows.columns if rows[name].null_count()} == nullable


def test_a_flight_has_one_status_at_a_time(flights):
    count = flights.group_by(*FLIGHT, "time").agg(pl.col("diff").sum()).sort("time")
    assert set(count.select(pl.col("diff").cum_sum().over(FLIGHT))["diff"].unique()) <= {0, 1}


def test_a_flight_passes_its_statuses_in_order(flights):
    order = pl.col("status").replace_strict({"scheduled": 0, "departed": 1, "landed": 2}, return_dtype=pl.Int64)
    entered = flights.filter(pl.col("diff") == 1).sort(*FLIGHT, "time")
    steps = entered.select(order.diff().over(FLIGHT).alias("step"))["step"].drop_nulls()
    assert set(steps.unique()) == {1}
    assert entered.group_by(FLIGHT).agg(order.first().alias("first"))["first"].unique().to_list() == [0]


def test_delays_are_differences_of_times(flights):
    departed = flights.filter(status="departed", diff=1)
    assert departed.filter(pl.col("time") != pl.col("sched_dep") + pl.col("dep_delay")).is_empty()
    known = {status: flights.filter(status=status)["dep_delay"].null_count() for status in ("scheduled", "departed")}
    assert known["departed"] == 0
    assert known["scheduled"] == flights.filter(status="scheduled").height


def test_the_month_in_numbers(flights):
    """27 004 flights were scheduled in January 2013; 521 did not depart, 26 398 have an arrival delay."""
    entered = flights.filter(diff=1)
    by_status = dict(entered.group_by("status").len().iter_rows())
    assert by_status["scheduled"] == 27004
    assert by_status["departed"] == 27004 - 521
    assert entered.filter(status="landed")["arr_delay"].count() == 26398
    still_there = flights.group_by("status").agg(pl.col("diff").sum())
    assert dict(still_there.iter_rows()) == {"scheduled": 0, "departed": 0, "landed": by_status["landed"]}


def test_standing_logs_have_a_key_and_begin_at_zero(fixtures):
    for name, key in STANDING.items():
        rows = pl.read_parquet(fixtures / "flights" / f"{name}.parquet")
        assert not rows.select(key).is_duplicated().any()
        assert rows["time"].unique().to_list() == [0]
        assert "diff" not in rows.columns


def test_flights_refer_to_airlines_and_airports(fixtures, flights):
    airlines = pl.read_parquet(fixtures / "flights" / "airlines.parquet")["carrier"]
    airports = pl.read_parquet(fixtures / "flights" / "airports.parquet")["faa"]
    assert set(flights["carrier"]) <= set(airlines)
    assert set(flights["origin"]) == {"EWR", "JFK", "LGA"}
    assert set(flights["dest"]) - set(airports) == {"BQN", "PSE", "SJU", "STT"}


def test_everybody_but_one_has_one_manager_and_none_manages_themself_in_a_circle(manages):
    for time in range(manages["time"].max() + 1):
        there = manages.filter(pl.col("time") <= time).group_by("manager", "employee").agg(pl.col("diff").sum())
        there = there.filter(pl.col("diff") == 1)
        assert there["employee"].is_unique().all()
        assert (there["manager"] < there["employee"]).all()
        assert set(there["manager"]) - set(there["employee"]) == {0}


@pytest.mark.in_turn
@pytest.mark.slow
def test_the_script_makes_the_flights_that_are_checked_in(tmp_path, fixtures):
    load_script("make_flights").write_logs(tmp_path, months=1)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.parquet"))
    assert made == sorted(p.relative_to(fixtures / "flights") for p in (fixtures / "flights").rglob("*.parquet"))
    for path in made:
        assert_frame_equal(pl.read_parquet(tmp_path / path), pl.read_parquet(fixtures / "flights" / path))


def test_the_script_makes_the_company_that_is_checked_in(manages):
    made = load_script("make_manages").make_updates(1000, 12, 20, 3, random.Random(1))
    assert manages.rows() == [tuple(update) for update in made]


def test_a_leg_is_there_as_often_as_it_was_flown(legs, fixtures):
    count = legs.select(pl.col("diff").cum_sum().over(LEG, order_by="time"))["diff"]
    assert count.min() == 0
    miles = legs.select("origin", "dest", "miles").unique()
    assert not miles.select("origin", "dest").is_duplicated().any()
    back = miles.rename({"origin": "dest", "dest": "origin"})
    assert miles.join(back, on=["origin", "dest"]).filter(pl.col("miles") != pl.col("miles_right")).is_empty()
    airlines = pl.read_parquet(fixtures / "flights" / "airlines.parquet")["carrier"]
    assert set(legs["carrier"]) <= set(airlines)


def test_the_blizzard_of_february_2013(legs):
    """So one sees in the results why they change: on the 9th hardly anything flew."""
    flown = legs.group_by("time").agg(pl.col("diff").sum()).sort("time").select("time", pl.col("diff").cum_sum())
    by_day = {day.day: count for day, count in flown.iter_rows()}
    assert (len(by_day), by_day[7], by_day[9], by_day[10]) == (28, 1174, 308, 975)


def test_every_leg_begins_or_ends_in_new_york(legs):
    new_york = pl.col("origin", "dest").is_in(["EWR", "JFK", "LGA"])
    assert legs.filter(~pl.any_horizontal(new_york)).is_empty()
    assert legs.filter(~pl.col("origin").is_in(["EWR", "JFK", "LGA"])).height > 1000


def test_an_attendance_is_known_on_its_day(attendance):
    assert attendance.columns == ["woman", "event", "day", "time"]
    assert attendance["time"].is_sorted()
    assert attendance["day"].equals(attendance["time"])
    assert not attendance.select("woman", "event").is_duplicated().any()
    assert dict(attendance.select("event", "day").unique().iter_rows())["E13"] == 325
    assert (attendance.height, attendance["woman"].n_unique(), attendance["day"].n_unique()) == (89, 18, 14)


def test_accusations_are_of_people_who_have_dealings(fixtures):
    dealings = read(fixtures / "dealings" / "dealings")
    people = set(dealings["one"]) | set(dealings["other"])
    accusations, vetted = (read(fixtures / "dealings" / name) for name in ("accusations", "vetted"))
    assert (dealings["one"] < dealings["other"]).all()
    assert len(people) == 77
    assert people >= {*accusations["accuser"], *accusations["accused"], *vetted["person"]}
    assert (accusations["diff"].sum(), vetted["diff"].sum()) == (1, 4)


@pytest.mark.in_turn
@pytest.mark.slow
@pytest.mark.parametrize(("script", "folders"), [("make_legs", ["legs"]), ("make_people", ["circles", "dealings"])])
def test_the_script_makes_the_logs_that_are_checked_in(tmp_path, fixtures, script, folders):
    load_script("make_flights")  # which the other imports
    root = tmp_path if len(folders) > 1 else tmp_path / folders[0]
    load_script(script).write_logs(root)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.parquet"))
    assert made == sorted(p.relative_to(fixtures) for name in folders for p in (fixtures / name).rglob("*.parquet"))
    for path in made:
        assert pq.read_schema(tmp_path / path).equals(pq.read_schema(fixtures / path))
        assert_frame_equal(pl.read_parquet(tmp_path / path), pl.read_parquet(fixtures / path))


def test_the_fixtures_are_small(fixtures):
    assert sum(path.stat().st_size for path in fixtures.rglob("*") if path.is_file()) < 3_000_000
