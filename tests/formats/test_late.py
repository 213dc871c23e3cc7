"""Rows at times that were closed: refused, moved up to the first open time, or put aside, and counted."""

from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.errors import InputError, SpecErrors
from tests.formats.support import FEW, Place, chances

ROW = pl.Schema({"a": pl.Int64, "time": pl.Int64, "diff": pl.Int64})
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from([1, -1])), min_size=1, max_size=5)


@settings(max_examples=FEW)
@given(files=st.lists(rows, min_size=1, max_size=4), late=st.sampled_from(["advance", "quarantine"]), chance=chances)
def test_late_rows_count_once_at_the_first_open_time_or_in_the_side_log(tmp_path_factory, files, late, chance):
    place = Place(tmp_path_factory.mktemp("p"), late=late)
    place.chance = chance
    held, aside, waiting, upper = Counter(), Counter(), [], 0
    for number, new in enumerate(files):
        place.write(str(number), pl.DataFrame(new, ROW, orient="row"))
        before, upper = upper, max(upper, *(time + 1 for _, time, _ in new))
        summary = place.run()
        if upper == before:  # no time is closed, so nothing is taken
            waiting += new
            assert not summary.changed
            continue
        new, waiting = waiting + new, []
        behind = [row for row in new if row[1] < before]
        assert summary.inputs["a"].late == len(behind)
        for a, time, diff in new:
            if time >= before or late == "advance":
                held[a, max(time, before)] += diff
            else:
                aside[a, time] += diff
    for now in range(6):
        want = Counter()
        for (a, time), diff in held.items():
            want[a,] += diff if time <= now else 0
        assert place.at(now, "a") == {row: count for row, count in want.items() if count}
    found = Counter()
    for file in (place.root / ".dd/p/late/a").glob("*.parquet"):
        for a, time, diff in pl.read_parquet(file).select("a", "time", "diff").iter_rows():
            found[a, time] += diff
    assert found == Counter({row: count for row, count in aside.items() if count})


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
    assert pl.read_parquet(tmp_path / ".dd/p/late/a/*.parquet").select("a", "v", "time").rows() == [(1, "old", 4)]


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
            {"format": "upsert", "key": "a", "late": "advance"},
            "inputs.a.late: rows of the format 'upsert' can't be moved",
        ),
        ({"format": "snapshots", "late": "advance"}, "inputs.a.late: rows of the format 'snapshots' can't be moved"),
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
    assert aside(place) == {(2, 3): 1}
    place.write("c", pl.DataFrame([(4, 7, 1)], ROW, orient="row"))
    place.run()
    assert place.at(9, "a") == {(1,): 1, (3,): 1, (4,): 1}
    assert aside(place) == {(2, 3): 1}


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
    assert aside(place) == {(a, time): 1 for a, time, _ in rows if time < 5}


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


def aside(place):
    """Return what the log of late rows says now, by row and time."""
    found = Counter()
    for file in (place.root / ".dd/p/late/a").glob("*.parquet"):
        for a, time, diff in pl.read_parquet(file).select("a", "time", "diff").iter_rows():
            found[a, time] += diff
    return {row: count for row, count in found.items() if count}
