"""Records: what goes in comes out, as Python values, lanes and frames."""

import datetime as dt
import operator
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from ddcli.api import Dataflow
from ddcli.errors import InputError, UsageError
from ddcli.expressions.nanoseconds import finer


def test_matrices_of_integers_go_in_at_once(people):
    dataflow, manages, skip = people
    output = skip.output()
    manages.insert_many(np.array([[p // 2, p] for p in range(1, 1000)]))
    manages.advance_to(1)
    dataflow.step()
    lanes = output.lanes()
    assert lanes.shape == (998, 4)  # of 1 the manager's manager is 0, who has none
    assert set(map(tuple, lanes.tolist())) == {(p, p // 4, 0, 1) for p in range(2, 1000)}
    manages.insert_many(np.array([[1, 3], [0, 3]]), time=np.array([4, 5]), diff=np.array([-1, 1]))
    manages.advance_to(6)
    dataflow.step()
    assert sorted(output.updates()) == sorted(
        [((3, 0), 4, -1), ((6, 1), 4, -1), ((7, 1), 4, -1), ((6, 0), 5, 1), ((7, 0), 5, 1)]
    )


def test_a_matrix_fits_integer_columns_only():
    dataflow = Dataflow()
    names = dataflow.input("names", {"k": "int64", "name": "string"})
    with pytest.raises(UsageError, match="every column is an integer"):
        names.insert_many(np.array([[1, 2]]))
    nullable = dataflow.input("nullable", {"k": "int64?"})
    with pytest.raises(UsageError, match="every column is an integer"):
        nullable.insert_many(np.array([[1, 2]]))


@pytest.mark.parametrize(("kinds", "record"), [({"a": "int64"}, 3), ({"a": "string", "b": "string"}, "ab")])
def test_a_value_in_the_place_of_a_record_is_refused(kinds, record):
    dataflow = Dataflow()
    rows = dataflow.input("rows", kinds)
    rows.output()
    rows.insert(record)
    rows.close()
    with pytest.raises(InputError, match=f"the record {record!r} is not a tuple of values, one for each of: a"):
        dataflow.step()


@pytest.mark.parametrize("text", ["select 1 as a", "values (1), (2)", "select x from generate_series(1, 3) t(x)"])
def test_a_query_of_no_table_needs_an_input(text):
    with pytest.raises(UsageError, match="a query that reads no table also needs an input"):
        Dataflow().sql(text)
    dataflow = Dataflow()
    rows = dataflow.input("rows", {"a": "int64"})
    output = dataflow.sql(text).output()
    rows.insert((3,))
    rows.close()
    dataflow.step()
    assert sum(diff for *_, diff in output.updates()) == {"select": 1, "values": 2}[text.split()[0]] + 2 * ("x" in text)


VALUES = {
    "string": ["", "a", "ä" * 40, None],
    "int64": [-(2**63), 0, 2**63 - 1, None],
    "uint64": [0, 2**64 - 1, None],
    "int8": [-128, 127, None],
    "datetime[ns]": [*(finer(dt.datetime.fromisoformat("1969-12-31 23:59"), at) for at in (0, 1, 999)), None],
    "time": [*(finer(dt.time(1, 2, 3, 4), at) for at in (0, 1, 999)), None],
    "duration[ns]": [*(finer(dt.timedelta(microseconds=-1), at) for at in (0, 1, 999)), None],
    "float64": [-1.5, 0.0, float("inf"), None],
    "bool": [True, False, None],
    "date": [dt.date(1, 1, 1), dt.date(2013, 1, 31), None],
    "datetime[us]": [dt.datetime(2013, 1, 31, 6, 30), None],  # noqa: DTZ001 - the column has no zone
    "duration[us]": [dt.timedelta(minutes=-5), None],
    "decimal(30, 2)": [Decimal("123456789012345678901234567.89"), Decimal("-0.01"), None],
    "binary": [b"", b"\x00\xff", None],
    "list[int64]": [[], [1, 2], None],
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_and_nulls_come_out_as_they_went_in(kind):
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "int64", "x": f"{kind}?"})
    output, counted = given.distinct().output(), given.count(by=["x"]).output()
    for at, value in enumerate(VALUES[kind]):
        given.insert((at, value))
        given.insert((at, value))
    given.advance_to(1)
    dataflow.step()
    assert sorted(output.updates()) == [((at, value), 0, 1) for at, value in enumerate(VALUES[kind])]
    assert [count for (_, count), _, _ in counted.updates()] == [2] * len(VALUES[kind])


@pytest.mark.parametrize("plain", [dt.datetime.fromisoformat("1969-12-31 23:59"), dt.time(1, 2), dt.timedelta(-1)])
def test_nanoseconds_count_in_each_comparison(plain):
    values = [finer(plain, at) for at in (0, 1, 999)]
    for one, value in enumerate(values):
        for other, beside in enumerate(values):
            for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
                assert compare(value, beside) == compare(one, other), compare


def test_null_equals_nothing_in_a_join_and_itself_in_a_group():
    dataflow = Dataflow()
    left = dataflow.input("left", {"k": "string?", "v": "int64"})
    joined = left.join(left, on=["k"], name="other").output()
    counted = left.count(by=["k"]).output()
    alone = left.antijoin(left, on=["k"]).output()
    for record in [(None, 1), (None, 2), ("a", 3)]:
        left.insert(record)
    left.advance_to(1)
    dataflow.step()
    assert joined.updates() == [(("a", 3, 3), 0, 1)]
    assert sorted(counted.updates(), key=str) == [(("a", 1), 0, 1), ((None, 2), 0, 1)]
    assert sorted(alone.updates()) == [((None, 1), 0, 1), ((None, 2), 0, 1)]


def test_a_frame_has_real_types():
    dataflow = Dataflow()
    given = dataflow.input("given", {"day": "date", "name": "string?"})
    output = given.output()
    given.insert((dt.date(2013, 1, 31), None))
    given.update_at((dt.date(2013, 2, 1), "x"), 2, -3)
    given.advance_to(3)
    dataflow.step()
    frame = output.frame()
    assert frame.schema == {"day": pl.Date, "name": pl.String, "time": pl.Int64, "diff": pl.Int64}
    assert sorted(frame.rows(), key=str) == [
        (dt.date(2013, 1, 31), None, 0, 1),
        (dt.date(2013, 2, 1), "x", 2, -3),
    ]
    assert output.frame().is_empty()


def test_a_record_that_does_not_fit_is_refused():
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "int64", "s": "string"})
    output = given.output()
    for record in [(1,), ("one", "x"), (None, "x"), (2**63, "x")]:
        given.insert(record)
        with pytest.raises(InputError):
            given.flush()
    given.insert((1, "x"))
    given.advance_to(1)
    dataflow.step()
    assert output.updates() == [((1, "x"), 0, 1)]


def test_records_without_columns_are_counted():
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "int64"})
    output = given.project().output()
    given.insert((1,))
    given.insert((2,))
    given.advance_to(1)
    dataflow.step()
    assert output.updates() == [((), 0, 2)]


def test_a_column_called_time_is_no_hindrance_but_to_a_frame():
    dataflow = Dataflow()
    given = dataflow.input("given", {"time": "int64"})
    output = given.output()
    given.insert((7,))
    given.advance_to(1)
    dataflow.step()
    with pytest.raises(UsageError, match="column 'time'"):
        output.frame()
    assert output.updates() == [((7,), 0, 1)]
