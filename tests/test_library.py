"""The library: sessions, times, steps, and what a program reads of a dataflow."""

import datetime as dt
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from ddcli.errors import InputError, SpecError, UsageError
from ddcli.library import Dataflow


@pytest.fixture
def people():
    """Return a dataflow, its input of (manager, employee), and the managers' managers."""
    dataflow = Dataflow()
    manages = dataflow.input("manages", {"manager": "int64", "employee": "int64"})
    skip = manages.join(manages, on={"manager": "employee"}, name="up").map(employee="employee", skip="up.manager")
    return dataflow, manages, skip


def test_updates_of_an_output_are_changes_at_their_times(people):
    dataflow, manages, skip = people
    output = skip.output()
    manages.insert((1, 2))
    manages.insert((0, 1))
    manages.advance_to(1)
    manages.flush()
    assert dataflow.step() == 1
    assert output.updates() == [((2, 0), 0, 1)]
    assert output.updates() == []
    manages.remove((0, 1))
    manages.insert((7, 1))
    manages.advance_to(5)
    dataflow.step()  # hands over what was not flushed, too
    assert sorted(output.updates()) == [((2, 0), 1, -1), ((2, 7), 1, 1)]


def test_several_times_of_one_step_are_kept_apart(people):
    dataflow, manages, skip = people
    output = skip.output()
    for time, manager in enumerate([0, 5, 6]):
        manages.update_at((manager, 1), time, 1)
        if time:
            manages.update_at((manager - 1 if time > 1 else 0, 1), time, -1)
    manages.insert((1, 2))
    manages.advance_to(3)
    dataflow.step()
    found = output.updates()
    assert [time for _, time, _ in found] == sorted(time for _, time, _ in found)
    assert sorted(found) == [((2, 0), 0, 1), ((2, 0), 1, -1), ((2, 5), 1, 1), ((2, 5), 2, -1), ((2, 6), 2, 1)]


def test_nothing_is_emitted_for_a_time_before_every_input_has_passed_it():
    dataflow = Dataflow()
    left = dataflow.input("left", {"k": "int64", "a": "string"})
    right = dataflow.input("right", {"k": "int64", "b": "string"})
    output = left.join(right, on=["k"]).output()
    left.insert((1, "x"))
    left.advance_to(10)
    right.update_at((1, "y"), 3, 1)
    assert dataflow.step() == 0
    assert output.updates() == []
    right.advance_to(3)
    assert dataflow.step() == 3
    assert output.updates() == []
    right.advance_to(4)
    assert dataflow.step() == 4
    assert output.updates() == [((1, "x", "y"), 3, 1)]
    left.update((1, "x"), 2)
    right.advance_to(20)
    assert dataflow.step() == 10
    assert output.updates() == []
    left.advance_to(11)
    dataflow.step()
    assert output.updates() == [((1, "x", "y"), 10, 2)]


def test_a_session_takes_no_update_before_its_time(people):
    dataflow, manages, skip = people
    skip.output()
    manages.advance_to(4)
    for refused in (lambda: manages.update_at((1, 2), 3, 1), lambda: manages.advance_to(3)):
        with pytest.raises(UsageError, match="advanced to 4"):
            refused()
    with pytest.raises(UsageError, match="advanced to 4"):
        manages.insert_many(np.array([[1, 2]]), time=np.array([3]))
    manages.update_at((1, 2), 4, 1)
    assert dataflow.step() == 4


def test_stepping_while_a_probe_is_behind(people):
    dataflow, manages, skip = people
    output, probe = skip.output(), skip.probe()
    manages.insert((0, 1))
    manages.insert((1, 2))
    manages.advance_to(1)
    assert probe.less_than(1)()
    dataflow.step_while(probe.less_than(1))
    assert not probe.less_than(1)()
    assert output.updates() == [((2, 0), 0, 1)]
    dataflow.step_while(probe.less_than(2))  # no input gets there: it ends all the same
    assert dataflow.frontier == 1


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


VALUES = {
    "string": ["", "a", "ä" * 40, None],
    "int64": [-(2**63), 0, 2**63 - 1, None],
    "uint64": [0, 2**64 - 1, None],
    "int8": [-128, 127, None],
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


def test_an_output_is_consolidated_over_steps():
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "int64"})
    output = given.map(parity="k % 2").output()
    given.insert((1,))
    given.insert((3,))
    given.advance_to(1)
    dataflow.step()
    given.remove((5,))
    given.insert((7,))
    given.advance_to(2)
    dataflow.step()
    assert output.updates() == [((1,), 0, 2)]


def test_operators_in_a_program():
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "string", "v": "int64", "unread": "string"})
    outputs = {
        "filter": given.filter("v > 1").project("k").output(),
        "extend": given.extend(w="v * 2").rename(k="key").project("key", "w").output(),
        "explode": given.explode("v").project("k").output(),
        "concat": given.project("k").concat(given.project("k").negate()).consolidate().output(),
        "semijoin": given.project("v").semijoin(given.filter("k = 'b'"), on=["v"]).output(),
        "reduce": given.reduce(by=["k"], total="sum(v)", most="max(v)").output(),
        "reduce all": given.reduce(by={}, n="count(*)").output(),
        "count": given.project("k").count(name="n").output(),
        "threshold": given.project("k").threshold("count * 10").output(),
        "top_k": given.project("k", "v").top_k(1, order_by=["v desc"], by=["k"]).output(),
        "left": given.project("k").join(given.filter("v > 2").project("k", "v"), on=["k"], how="left").output(),
    }
    for record in [("a", 1, "-"), ("a", 2, "-"), ("b", 3, "-")]:
        given.insert(record)
    given.advance_to(1)
    dataflow.step()
    assert {
        name: sorted((record, diff) for record, _, diff in output.updates()) for name, output in outputs.items()
    } == {
        "filter": [(("a",), 1), (("b",), 1)],
        "extend": [(("a", 2), 1), (("a", 4), 1), (("b", 6), 1)],
        "explode": [(("a",), 3), (("b",), 3)],
        "concat": [],
        "semijoin": [((3,), 1)],
        "reduce": [(("a", 3, 2), 1), (("b", 3, 3), 1)],
        "reduce all": [((3,), 1)],
        "count": [(("a", 2), 1), (("b", 1), 1)],
        "threshold": [(("a",), 20), (("b",), 10)],
        "top_k": [(("a", 2), 1), (("b", 3), 1)],
        "left": [(("a", None), 2), (("b", 3), 1)],
    }


def test_what_is_wrong_is_told_where_it_is_made():
    dataflow = Dataflow()
    given = dataflow.input("given", {"k": "int64"})
    with pytest.raises(SpecError, match="no column is named `kk`"):
        given.filter("kk > 1")
    with pytest.raises(SpecError, match="there is no column 'kk'"):
        given.project("kk")
    with pytest.raises(UsageError, match="there is an input 'given' already"):
        dataflow.input("given", {"k": "int64"})
    with pytest.raises(UsageError, match="column 'x' has an unknown type 'int65'"):
        dataflow.input("other", {"x": "int65"})
    with pytest.raises(UsageError, match="one worker"):
        Dataflow(workers=0)


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


def test_the_graph_is_fixed_by_its_first_step(people):
    dataflow, manages, skip = people
    skip.output()
    dataflow.step()
    with pytest.raises(UsageError, match="its graph is fixed"):
        dataflow.input("more", {"k": "int64"})
    with pytest.raises(UsageError, match="its graph is fixed"):
        manages.output()


def test_collections_of_another_dataflow_are_refused():
    one, other = Dataflow(), Dataflow()
    left, right = one.input("left", {"k": "int64"}), other.input("right", {"k": "int64"})
    with pytest.raises(UsageError, match="another dataflow"):
        left.concat(right)


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
