"""Records that are there less than no times are told or refused, at every time and over any cut into runs."""

from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.errors import SpecErrors
from tests.formats.support import FEW, TIMES, Place, chances, cuts

ROW = pl.Schema({"a": pl.Int64, "b": pl.String, "time": pl.Int64, "diff": pl.Int64})
rows = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["x", None]), st.sampled_from(TIMES), st.sampled_from([1, 2, -1])),
    max_size=8,
)


@settings(max_examples=FEW)
@given(rows=rows, runs=cuts(), chance=chances)
def test_what_is_there_less_than_no_times_is_counted(tmp_path_factory, rows, runs, chance):
    place = Place(tmp_path_factory.mktemp("p"), negative="warn")
    place.chance = chance
    held = Counter()
    for times in runs:
        new = [row for row in rows if row[2] in times]
        wrong = 0
        for time in times:
            changes = Counter()
            for a, b, at, diff in new:
                changes[a, b] += diff if at == time else 0
            for record, change in changes.items():
                held[record] += change
                wrong += change != 0 and held[record] < 0
        place.write(str(times.start), pl.DataFrame(new, ROW, orient="row"))
        summary = place.run()
        if summary.changed:
            assert summary.inputs["a"].negative == wrong
    assert place.at(9, "a", "b") == {record: count for record, count in held.items() if count}


def test_such_a_record_is_refused(tmp_path):
    place = Place(tmp_path, negative="error")
    place.write("a", pl.DataFrame([(1, "x", 0, 1)], ROW, orient="row"))
    place.run()
    path = place.write("b", pl.DataFrame([(1, "x", 2, -1), (1, "x", 3, -1), (1, "x", 4, 1)], ROW, orient="row"))
    place.refuses(path, "the record a = 1, b = 'x' has the multiplicity -1 at the time 3")


def test_such_a_record_is_told(tmp_path):
    place = Place(tmp_path, negative="warn")
    place.write("a", pl.DataFrame([(1, "x", 0, -1)], ROW, orient="row"))
    want = "  warn   a: 1 update to negative multiplicities; the record a = 1, b = 'x' has the multiplicity -1 at the time 0"
    assert want in place.run().lines()


@pytest.mark.parametrize("more", [{"time": ["e", "v"]}, {"format": "debezium", "key": "a"}])
def test_what_can_not_be_watched_is_refused(tmp_path, more):
    place = Place(tmp_path, negative="warn", **more)
    with pytest.raises(SpecErrors, match=r"inputs\.a\.negative: this input can't be watched"):
        place.run()
