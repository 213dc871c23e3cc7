"""Rows at times that were closed: refused, moved up to the first open time, or put aside, and counted."""

import datetime as dt
from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.errors import InputError, SpecError, SpecErrors
from tests.formats.support import FEW, Place, chances

ROW = pl.Schema({"a": pl.Int64, "time": pl.Int64, "diff": pl.Int64})
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from([1, -1])), min_size=1, max_size=5)


@settings(max_examples=FEW)
@given(
    files=st.lists(rows, min_size=1, max_size=4),
    late=st.sampled_from(["arrive", "advance", "quarantine"]),
    chance=chances,
)
def test_late_rows_count_once_at_the_first_open_time_or_in_the_side_log(tmp_path_factory, files, late, chance):
    place = Place(tmp_path_factory.mktemp("p"), late=late)
    place.chance = chance
    held, aside, upper = Counter(), Counter(), 0
    for number, new in enumerate(files):
        place.write(str(number), pl.DataFrame(new, ROW, orient="row"))
        before, upper = upper, max(upper, *(time + 1 for _, time, _ in new))
        if upper == before and late != "quarantine":  # late rows alone close the time to which they are moved
            upper += 1
        summary = place.run()
        behind = [row for row in new if row[1] < before]
        assert summary.inputs["a"].late == len(behind)
        assert not place.run().changed
        for a, time, diff in new:
            if time >= before or late != "quarantine":
                held[a, max(time, before)] += diff
            else:
                aside[a, time] += diff
    for now in range(10):
        want = Counter()
        for (a, time), diff in held.items():
            want[a,] += diff if time <= now else 0
        assert place.at(now, "a") == {row: count for row, count in want.items() if count}
    assert late_rows(place) == {row: count for row, count in aside.items() if count}


def test_late_rows_are_put_where_the_file_says(tmp_path):
    place = Place(tmp_path, late="quarantine", quarantine="late/")
    place.write("a", pl.DataFrame([(1, 5, 1)], ROW, orient="row"))
    place.run()
    place.write("b", pl.DataFrame([(2, 3, 1), (3, 6, 1), (4, 9, 1)], ROW, orient="row"))
    lines = place.run(until="7").lines()
    assert any("late   a: 1 row put aside -> " in line for line in lines), lines
    assert pl.read_parquet(tmp_path / "late/*.parquet").rows() == [(2, 3, 1)]
    place.run()  # what waited is taken, what was put aside is not
    assert place.at(9, "a") == {(1,): 1, (3,): 1, (4,): 1}
    assert len(list((tmp_path / "late").glob("*.parquet"))) == 1


def test_late_upserts_and_snapshots_may_be_put_aside(tmp_path):
    place = Place(tmp_path, format="upsert", key="a", late="quarantine", columns={"a": "int64", "v": "string?"})
    place.write("a", pl.DataFrame({"a": [1], "v": ["new"], "time": [5]}))
    place.run()
    place.write("b", pl.DataFrame({"a": [1, 2], "v": ["old", "x"], "time": [4, 6]}))
    assert place.run().inputs["a"].late == 1
    assert place.at(9, "a", "v") == {(1, "new"): 1, (2, "x"): 1}
    found = pl.read_parquet(tmp_path / ".dd/p/late/a/*.parquet")
    assert found.columns == ["a", "v", "time", "diff"]  # the input's own columns
    assert found.rows() == [(1, "old", 4, 1)]


UPSERTS = pl.Schema({"k": pl.Int64, "v": pl.String, "n": pl.Int64, "time": pl.Int64})
upserts = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["x", "y", None]), st.integers(0, 3), st.integers(0, 4)), max_size=4
)


@settings(max_examples=FEW)
@given(files=st.lists(upserts, min_size=1, max_size=5), chance=chances, change=st.integers(0, 5))
def test_of_late_upserts_the_order_decides_which_is_newer(tmp_path_factory, files, chance, change):
    """They count from the first open time on, unless their key has a row of a greater order; also when all is read again."""
    seen = set[tuple[int, int, int]]()
    files = [[r for r in rows if not ((r[0], r[2], r[3]) in seen or seen.add((r[0], r[2], r[3])))] for rows in files]
    place = Place(tmp_path_factory.mktemp("p"), format="upsert", key="k", order_by="n", late="arrive", time="time")
    place.chance, upper, came = chance, 0, []
    for number, new in enumerate(files):
        place.write(str(number), pl.DataFrame(new, UPSERTS, orient="row"))
        before, upper = upper, max([upper, *(time + 1 for *_, time in new)])
        if new and upper == before:
            upper += 1
        came += [(max(time, before), row) for row in new for time in [row[3]]]
        place.run()
        if number == change:
            text = place.spec.read_text()
            place.spec.write_text(text.replace("a: out/", "a: out/\n  more: {path: more/, from: a}"))
            place.run(apply=True)
    for now in range(12):
        has: dict[int, tuple] = {}
        for _, (k, v, n, own) in [each for each in came if each[0] <= now]:
            has[k] = max(has.get(k, (n, own, v)), (n, own, v), key=lambda row: row[:2])
        assert place.at(now, "k", "v", "n") == Counter((k, v, n) for k, (n, _, v) in has.items())


def test_by_default_late_rows_are_refused(tmp_path):
    place = Place(tmp_path)
    place.write("a", pl.DataFrame([(1, 5, 1)], ROW, orient="row"))
    place.run()
    place.write("b", pl.DataFrame([(2, 3, 1), (3, 6, 1)], ROW, orient="row"))
    with pytest.raises(InputError, match="late rows: row 0") as caught:
        place.run()
    assert "late: quarantine" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"format": "upsert", "key": "a", "late": "arrive"},
            "inputs.a.late: a late row that is moved to a later time needs an order",
        ),
        ({"format": "snapshots", "late": "arrive"}, "inputs.a.late: a late table can't be moved to a later time"),
        ({"quarantine": "late/"}, "inputs.a.quarantine: late rows are not put aside"),
        ({"late": "ignore"}, "inputs.a.late: unknown policy 'ignore'"),
        (
            {"late": "quarantine", "quarantine": "in/"},
            "inputs.a.quarantine: writes into 'in/', where the input 'a' reads",
        ),
    ],
)
def test_policies_that_make_no_sense_are_refused(tmp_path, given, problem):
    place = Place(tmp_path, **given)
    with pytest.raises(SpecErrors) as caught:
        place.run()
    assert caught.value.errors[0].problem.startswith(problem)


@pytest.mark.parametrize(("late", "want"), [("quarantine", {1: 1, 3: 1}), ("advance", {1: 1, 2: 1, 3: 1})])
def test_what_was_put_aside_stays_there_when_the_pipeline_changes(tmp_path, late, want):
    place = Place(tmp_path, late=late)
    place.write("a", pl.DataFrame([(1, 5, 1)], ROW, orient="row"))
    place.run()
    place.write("b", pl.DataFrame([(2, 3, 1), (3, 6, 1)], ROW, orient="row"))
    place.run()
    text = place.spec.read_text()
    place.spec.write_text(text + "  more: {path: more/, from: a}\n")
    place.run(apply=True)
    for output in ("out", "more"):
        found = pl.read_parquet(tmp_path / output / "*.parquet")
        assert dict(found.select("a", "diff").iter_rows()) == want, output


@pytest.mark.parametrize("refresh", [frozenset(), frozenset(["a"])], ids=["all", "one output"])
def test_what_was_put_aside_stays_there_when_all_is_computed_anew(tmp_path, refresh):
    place = Place(tmp_path, late="quarantine")
    place.write("a", pl.DataFrame([(1, 5, 1)], ROW, orient="row"))
    place.run()
    place.write("b", pl.DataFrame([(2, 3, 1), (3, 6, 1)], ROW, orient="row"))
    place.run()
    place.run(refresh=refresh)
    assert place.at(9, "a") == {(1,): 1, (3,): 1}
    assert late_rows(place) == {(2, 3): 1}
    place.write("c", pl.DataFrame([(4, 7, 1)], ROW, orient="row"))
    place.run()
    assert place.at(9, "a") == {(1,): 1, (3,): 1, (4,): 1}
    assert late_rows(place) == {(2, 3): 1}


@pytest.mark.parametrize("now", [[(2, 6, 1), (4, 2, 1), (3, 6, 1)], [(3, 6, 1)], None])
def test_the_log_of_late_rows_follows_a_file_that_was_replaced(tmp_path, now):
    """Each row of the files as they are is in the output or in the log, and what is in neither file any more is in none."""
    place = Place(tmp_path, late="quarantine")
    place.write("a", pl.DataFrame([(1, 5, 1)], ROW, orient="row"))
    place.run()
    late = place.write("b", pl.DataFrame([(2, 3, 1), (3, 6, 1)], ROW, orient="row"))
    place.run()
    late.unlink() if now is None else place.write("b", pl.DataFrame(now, ROW, orient="row"))
    place.run(refresh=frozenset())
    rows = [(1, 5, 1), *(now or [])]
    in_time = [a for a, time, _ in rows if time >= 5]
    assert place.at(9, "a") == {(a,): 1 for a in in_time}
    assert late_rows(place) == {(a, time): 1 for a, time, _ in rows if time < 5}


def test_a_late_snapshot_that_was_put_aside_is_no_table_when_all_is_read_again(tmp_path):
    place = Place(tmp_path, format="snapshots", late="quarantine")
    place.write("a", pl.DataFrame({"a": [1, 2], "time": [1, 1]}))
    place.run(until="10")
    place.write("b", pl.DataFrame({"a": [3, 4], "time": [7, 12]}))
    place.run(until="11")
    text = place.spec.read_text()
    place.spec.write_text(text + "  more: {path: more/, from: a}\n")
    place.run(until="11")
    place.run(until="11", refresh=frozenset())
    for output in ("out", "more"):
        log = pl.concat([pl.read_parquet(file) for file in (tmp_path / output).glob("*.parquet")])
        held = log.group_by("a").agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
        assert dict(held.iter_rows()) == {1: 1, 2: 1}, output


def late_rows(place):
    """Return what the log of late rows says now, by row and time."""
    found = Counter()
    for file in (place.root / ".dd/p/late/a").glob("*.parquet"):
        for a, time, diff in pl.read_parquet(file).select("a", "time", "diff").iter_rows():
            found[a, time] += diff
    return {row: count for row, count in found.items() if count}


def test_a_row_far_ahead_of_the_clock_closes_nothing(tmp_path):
    """It is refused before any time is closed; the next run of the corrected file goes on."""
    place = Place(tmp_path, format="append", time="day", columns={"a": "int64", "day": "date"})
    place.write("a", pl.DataFrame({"a": [1], "day": [dt.date(2024, 1, 1)]}))
    place.run()
    wrong = place.write("b", pl.DataFrame({"a": [2, 3], "day": [dt.date(2024, 1, 2), dt.date(2204, 1, 2)]}))
    with pytest.raises(
        InputError, match=r"row 1 .* has the time 2204-01-02, which is far ahead of the clock"
    ) as caught:
        place.run()
    assert caught.value.place == str(wrong)
    place.write("b", pl.DataFrame({"a": [2, 3], "day": [dt.date(2024, 1, 2), dt.date(2024, 1, 2)]}))
    place.run()
    assert place.run(now="2024-01-03").changed is False
    day = dt.datetime.now(dt.UTC).date()
    place.write("c", pl.DataFrame({"a": [4], "day": [day + dt.timedelta(days=5)]}))
    with pytest.raises(InputError, match="far ahead"):
        place.run()
    place.say(max_ahead="6 days")
    assert place.run().changed
    place.write("d", pl.DataFrame({"a": [5], "day": [dt.date(2204, 1, 2)]}))
    place.say(max_ahead="none")
    assert place.run().changed


def test_how_far_rows_may_be_ahead_is_of_dates(tmp_path):
    place = Place(tmp_path, max_ahead="2 days")
    place.write("a", pl.DataFrame([(1, 5, 1)], ROW, orient="row"))
    with pytest.raises(SpecError, match="`max_ahead` is of dates"):
        place.run()


@pytest.mark.parametrize("until", [(7, 6), (6, 7), (7, 7)])
def test_of_a_product_late_rows_are_moved_to_times_that_the_run_closes(tmp_path, until):
    """Whichever side of the box moves: an update at a time that stays open would be one too early."""
    place = Place(tmp_path, format="append", time=["x", "y"], late="arrive")
    place.write("a", pl.DataFrame({"a": [1], "x": [5], "y": [5]}))
    place.run()
    place.write("b", pl.DataFrame({"a": [2], "x": [1], "y": [3]}))
    place.run(until=f"{until[0]},{until[1]}")
    found = pl.concat([pl.read_parquet(file) for file in (tmp_path / "out").glob("*.parquet")]).filter(pl.col("a") == 2)
    ((x, y, diff),) = found.select("x", "y", "diff").iter_rows()
    assert (x < until[0], y < until[1], x >= 6 or y >= 6, diff) == (True, True, True, 1)
