"""Upserts, snapshots and Debezium's events say at each time what plain Python over all rows so far says, over any cut into runs."""

from collections import Counter

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.errors import InputError, SpecError, SpecErrors
from tests.formats.support import FEW, TIMES, WRITERS, Place, chances, cuts

KEYS, VALUES = [0, 1, None], ["x", "y", None]
COLUMNS = {"k": "int64?", "v": "string?", "w": "int64?", "op": "string", "n": "int64"}
UPSERTS = pl.Schema({"k": pl.Int64, "v": pl.String, "w": pl.Int64, "op": pl.String, "n": pl.Int64, "time": pl.Int64})


def place_of(factory, **given):
    return Place(factory.mktemp("p"), **given)


# --- upsert ---------------------------------------------------------------------------------------------------


@st.composite
def upserts(draw):
    """Give rows (k, v, w, op, n, time), those of a key and time of different n."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(KEYS),
                st.sampled_from(VALUES),
                st.sampled_from([5, None]),
                st.sampled_from("UUD"),
                st.integers(-2, 2),
                st.sampled_from(TIMES),
            ),
            max_size=12,
            unique_by=lambda row: (row[0], row[4], row[5]),
        )
    )


def upserted(rows, deletes):
    """Return what the keys have at each time."""
    has, tables = {}, {}
    for time in TIMES:
        for k, v, w, op, _, _ in sorted((row for row in rows if row[5] == time), key=lambda row: row[4]):
            has[k] = None if deletes(v, w, op) else (k, v, w)
        tables[time] = Counter(row for row in has.values() if row)
    return tables


@settings(max_examples=FEW)
@given(rows=upserts(), runs=cuts(), chance=chances, kind=st.sampled_from(list(WRITERS)), said=st.booleans())
def test_upserts(tmp_path_factory, rows, runs, chance, kind, said):
    extra = {"delete_when": "op = 'D'"} if said else {"columns": {"k": "int64?", "v": "string?", "w": "int64?"}}
    columns = {"columns": COLUMNS} if said else {}
    order = {"order_by": "n"} if said else {}
    if not said:  # one row a key and time, as there is no order
        rows = list({(row[0], row[5]): row for row in rows}.values())
    place = place_of(tmp_path_factory, format="upsert", key="k", **(extra | columns | order))
    place.chance = chance
    for times in runs:
        frame = pl.DataFrame([row for row in rows if row[5] in times], UPSERTS, orient="row")
        place.write(str(times.start), frame, kind)
        place.run()
    want = upserted(rows, (lambda v, w, op: op == "D") if said else (lambda v, w, op: v is None and w is None))
    for time in TIMES:
        assert place.at(time, "k", "v", "w") == want[time], time


def test_the_order_may_be_any_expression(tmp_path):
    place = Place(tmp_path, format="upsert", key=["k"], order_by="-n")
    rows = [(1, "a", 0, "U", 1, 0), (1, "b", 0, "U", 2, 0)]
    place.write("a", pl.DataFrame(rows, UPSERTS, orient="row"))
    place.run()
    assert place.at(0, "v") == {("a",): 1}


def test_rows_without_an_order_are_refused_by_key_time_and_file(tmp_path):
    place = Place(tmp_path, format="upsert", key=["k", "w"])
    place.write("a", pl.DataFrame([(1, "a", 7, "U", 1, 0)] * 2, UPSERTS, orient="row"))
    place.run()  # twice the same is no harm
    path = place.write("b", pl.DataFrame([(1, "a", 7, "U", 1, 3), (1, "b", 7, "U", 1, 3)], UPSERTS, orient="row"))
    assert "order_by" in place.refuses(path, "the key k = 1, w = 7 has different rows of the same order at the time 3")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"delete_when": "n + 1"}, "`delete_when` is int64?, not a condition"),
        ({"order_by": "v"}, "`order_by` is string?, by which rows can't be put in order here"),
        ({"order_by": "m"}, "no column is named `m`"),
    ],
)
def test_conditions_and_orders_are_checked(tmp_path, given, problem):
    place = Place(tmp_path, format="upsert", key=["k"], **given)
    place.write("a", pl.DataFrame([(1, "a", 7, "U", 1, 0)], UPSERTS, orient="row"))
    with pytest.raises(SpecError) as caught:
        place.run()
    assert problem in caught.value.problem
    assert caught.value.span.line == 9


def test_an_order_that_is_null_is_refused_with_its_row(tmp_path):
    place = Place(tmp_path, format="upsert", key=["k"], order_by="n")
    path = place.write("a", pl.DataFrame([(1, "a", 7, "U", 1, 0), (2, "a", 7, "U", None, 0)], UPSERTS, orient="row"))
    with pytest.raises(InputError) as caught:
        place.run()
    assert caught.value.place == str(path)
    assert caught.value.problem == "row 1 (counted from 0): `order_by` is null"


def test_what_must_not_be_null_may_be_where_a_key_has_nothing(tmp_path):
    columns = {"k": "int64", "v": "string", "w": "date", "op": "string"}
    place = Place(tmp_path, format="upsert", key=["k"], columns=columns, delete_when="op = 'D'")
    rows = pl.DataFrame({"k": [1, 2], "v": ["a", "b"], "op": ["U", "U"], "time": [0, 0]})
    rows = rows.with_columns(w=pl.date(2024, 1, 1))
    place.write("a", rows)
    place.run()
    gone = rows.head(1).with_columns(op=pl.lit("D"), v=pl.lit(None, pl.String), w=pl.lit(None, pl.Date), time=1)
    place.write("b", gone)
    place.run()
    assert place.at(1, "k") == {(2,): 1}
    place.write("c", gone.with_columns(op=pl.lit("U"), time=pl.lit(2, pl.Int64)))
    with pytest.raises(InputError, match="column 'v' has a null, first in row 0"):
        place.run()


# --- snapshots ------------------------------------------------------------------------------------------------

records = st.tuples(st.sampled_from([0, 1, 2, None]), st.sampled_from("xy"))
SNAPSHOT = pl.Schema({"k": pl.Int64, "v": pl.String})


@st.composite
def tables(draw, *, keyed):
    """Give a table for some of the times."""
    unique = {"unique_by": lambda row: row[0]} if keyed else {}
    return draw(st.dictionaries(st.sampled_from(TIMES), st.lists(records, max_size=4, **unique), min_size=1))


def by_time(found):
    """Return what is there at each time."""
    return {time: Counter(found[max(at for at in found if at <= time)]) for time in TIMES if time >= min(found)}


@settings(max_examples=FEW)
@given(
    data=st.data(),
    runs=cuts(),
    chance=chances,
    keyed=st.booleans(),
    kind=st.sampled_from(list(WRITERS)),
    by=st.sampled_from("pfc"),
)
def test_snapshots(tmp_path_factory, data, runs, chance, keyed, kind, by):
    found = data.draw(tables(keyed=keyed))
    columns = {"k": "int64?", "v": "string"}
    where = {"p": {"time": "at"}, "f": {"time": "at", "file_name": f"s-{{at}}.{kind}"}, "c": {}}[by]
    place = place_of(tmp_path_factory, format="snapshots", columns=columns, **where, **({"key": "k"} if keyed else {}))
    place.chance = chance
    if by == "c":  # a column can't say the time of a table without rows
        found = {time: rows for time, rows in found.items() if rows}
    for times in runs:
        some = {time: rows for time, rows in found.items() if time in times}
        for time, rows in some.items():
            frame = pl.DataFrame(rows, SNAPSHOT, orient="row")
            if by == "c":
                place.write(f"{time}", frame.with_columns(time=pl.lit(time, pl.Int64)), kind)
            elif by == "f":
                place.write(f"s-{time}", frame, kind)
            else:
                for part in range(2):
                    place.write(f"at={time}/{part}", frame[part::2], kind)
        if some:
            place.run()
    if found:
        for time, want in by_time(found).items():
            assert place.at(time, "k", "v") == want, time


def test_a_key_that_is_in_a_snapshot_twice_is_refused(tmp_path):
    place = Place(tmp_path, format="snapshots", key=["k"], time="day")
    place.write("day=2024-01-01/a", pl.DataFrame({"k": [1, 2], "v": ["x", "y"]}))
    path = place.write("day=2024-01-01/b", pl.DataFrame({"k": [2], "v": ["y"]}))
    place.refuses(path, "the key k = 2 is twice in the snapshot of the time 2024-01-01")


@pytest.mark.parametrize(
    ("most", "gone", "refused"), [("50%", 2, False), ("50%", 3, True), (2, 2, False), (2, 3, True), ("0%", 1, True)]
)
@pytest.mark.parametrize("keyed", [True, False])
def test_a_snapshot_that_deletes_too_much_is_refused(tmp_path, most, gone, refused, keyed):
    place = Place(tmp_path, format="snapshots", time="at", max_delete=most, **({"key": "k"} if keyed else {}))
    place.write("at=1/a", pl.DataFrame({"k": [1, 2, 3, 4]}))
    place.run()
    place.write("at=2/a", pl.DataFrame({"k": [1, 2, 3, 4][gone:]}))
    if refused:
        with pytest.raises(InputError) as caught:
            place.run()
        assert (
            f"the snapshot of 2 deletes {gone} of 4 records, more than `max_delete: {most}` allows"
            in caught.value.problem
        )
        assert caught.value.exit_code == 3
        assert place.at(9, "k") == {(k,): 1 for k in (1, 2, 3, 4)}
    else:
        place.run()
        assert place.at(9, "k") == {(k,): 1 for k in (1, 2, 3, 4)[gone:]}


def test_an_empty_snapshot_deletes_everything(tmp_path):
    place = Place(tmp_path, format="snapshots", time="at")
    place.write("at=1/a", pl.DataFrame({"k": [1, 2]}))
    place.run()
    place.write("at=2/a", pl.DataFrame({"k": []}, {"k": pl.Int64}))
    place.run()
    assert place.at(1, "k") == {(1,): 1, (2,): 1}
    assert place.at(2, "k") == {}


def test_a_file_whose_name_says_no_time_is_refused(tmp_path):
    place = Place(tmp_path, format="snapshots", time="at", file_name="s-{at}.parquet")
    path = place.write("t-1", pl.DataFrame({"k": [1]}))
    with pytest.raises(InputError, match="the file's name is not like") as caught:
        place.run()
    assert caught.value.place == str(path)


def test_days_in_names_may_be_written_without_dashes(tmp_path):
    columns = {"k": "int64", "day": "date"}
    place = Place(tmp_path, format="snapshots", time="day", file_name="s_{day}.parquet", columns=columns)
    place.write("s_20240102", pl.DataFrame({"k": [1]}))
    assert place.run().upper == "2024-01-03"


def test_inputs_with_keys_are_rebuilt_when_the_pipeline_changes(tmp_path):
    place = Place(tmp_path, format="upsert", key="k", order_by="n", delete_when="op = 'D'")
    rows = [(1, "a", 0, "U", 1, 0), (1, "b", 0, "U", 2, 1), (2, "c", 0, "X", 1, 0)]
    place.write("a", pl.DataFrame(rows, UPSERTS, orient="row"))
    place.run()
    place.given["delete_when"] = "op = 'X'"
    place.say()
    place.run(apply=True)
    assert place.at(1, "k", "v") == {(1, "b"): 1, (2, "c"): 1}
    assert place.at(2, "k", "v") == {(1, "b"): 1}
    place.write("b", pl.DataFrame([(1, None, None, "X", 1, 4)], UPSERTS, orient="row"))
    place.run()
    assert place.at(4, "k", "v") == {}


@pytest.mark.parametrize("kind", ["upsert", "snapshots"])
def test_a_key_that_is_no_column_is_refused(tmp_path, kind):
    place = Place(tmp_path, format=kind, key=["kk"])
    place.write("a", pl.DataFrame([(1, "a", 7, "U", 1, 0)], UPSERTS, orient="row"))
    with pytest.raises(SpecErrors) as caught:
        place.run()
    assert caught.value.errors[0].problem == "inputs.a.key: there is no column 'kk'"
    assert caught.value.errors[0].hint == "did you mean `k`?"
    assert caught.value.errors[0].span.line == 8
