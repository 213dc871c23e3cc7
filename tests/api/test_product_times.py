"""Times of several coordinates: sessions, frontiers that are antichains, probes, and the first test of partial order."""

import datetime as dt

import numpy as np
import polars as pl
import pytest

from ddcli.api import Dataflow
from ddcli.engine.times import Frontier
from ddcli.errors import UsageError

# Records by the length of a text, and how many distinct ones of each length there are (engine.md, section 8).
UPDATES = {
    (0, 0): {"a": 1, "b": 3, "cc": 2},
    (0, 1): {"a": -1, "b": -3},
    (1, 0): {"a": -1, "b": -1},
    (1, 1): {"a": 1, "b": 2},
}
CHANGES = {
    (0, 0): {(1, 2): 1, (2, 1): 1},
    (0, 1): {(1, 2): -1},
    (1, 0): {(1, 1): 1, (1, 2): -1},
    (1, 1): {(1, 2): 1},
}


def lengths(updates, steps):
    """Feed updates, close times by `steps` of frontiers, and return the changes of the number of texts by time."""
    dataflow = Dataflow(time=2)
    words = dataflow.input("words", {"s": "string"})
    counts = words.reduce({"len": "length(s)"}, n="count(distinct s)").output()
    for time, records in updates.items():
        for word, diff in records.items():
            words.update_at((word,), time, diff)
    found = {}
    for frontier in steps:
        words.advance_to(frontier)
        dataflow.step()
        for record, time, diff in counts.updates():
            found.setdefault(time, {})[record] = diff
    return found


STEPS = {
    "at once": [[]],
    "time by time": [[(0, 1), (1, 0)], [(0, 2), (1, 0)], [(0, 2), (1, 1), (2, 0)], [(2, 2)], []],
    "by boxes": [[(1, 0), (0, 1)], [(2, 0), (0, 1)], [(2, 0), (0, 2)], []],
}


@pytest.mark.parametrize("steps", STEPS)
def test_the_first_test_of_partial_order(steps):
    assert lengths(UPDATES, STEPS[steps]) == CHANGES


@pytest.mark.parametrize("steps", STEPS)
def test_without_its_last_line_something_changes_where_nothing_arrives(steps):
    """At (1, 1) the counts are a: -1 and b: -1, two texts that are not there zero times."""
    without = {time: records for time, records in UPDATES.items() if time != (1, 1)}
    assert lengths(without, STEPS[steps]) == {**CHANGES, (1, 1): {(1, 1): -1, (1, 2): 2}}


@pytest.fixture
def numbers():
    dataflow = Dataflow(time=2)
    numbers = dataflow.input("numbers", {"n": "int64"})
    return dataflow, numbers, numbers.output()


def test_a_time_closes_all_that_is_not_at_or_after_it(numbers):
    dataflow, numbers, output = numbers
    assert numbers.time == dataflow.time == (0, 0)
    numbers.insert((1,))
    numbers.update_at((2,), (0, 7), 1)
    numbers.update_at((3,), (2, 2), 1)
    numbers.advance_to((1, 2))
    assert numbers.time == (1, 2)
    dataflow.step()
    assert dataflow.time == (1, 2)
    assert output.updates() == [((1,), (0, 0), 1), ((2,), (0, 7), 1)]
    with pytest.raises(UsageError, match=r"advanced to \(1, 2\): time \(5, 1\) is closed"):
        numbers.update_at((4,), (5, 1), 1)
    numbers.insert((5,))
    numbers.close()
    dataflow.step()
    assert output.updates() == [((5,), (1, 2), 1), ((3,), (2, 2), 1)]


def test_a_list_of_times_is_a_frontier(numbers):
    dataflow, numbers, output = numbers
    numbers.update_at((1,), (0, 1), 1)
    numbers.update_at((2,), (0, 2), 1)
    numbers.advance_to([(0, 2), (1, 0), (1, 5)])
    assert numbers.frontier == Frontier([(0, 2), (1, 0)])
    assert numbers.time is None
    with pytest.raises(UsageError, match="not one time"):
        numbers.insert((3,))
    numbers.update_at((3,), (1, 0), 1)
    dataflow.step()
    assert dataflow.time is None
    assert output.updates() == [((1,), (0, 1), 1)]
    for back in [(0, 0), [(0, 1), (1, 0)], Frontier([(0, 1), (2, 0)])]:
        with pytest.raises(UsageError, match="can't go back"):
            numbers.advance_to(back)
    numbers.advance_to((0, 2))


def test_a_dataflow_is_where_the_meet_of_its_inputs_is():
    dataflow = Dataflow(time=2)
    one, other = (dataflow.input(name, {"n": "int64"}) for name in ("one", "other"))
    output = one.concat(other).output()
    one.update_at((1,), (0, 3), 1)
    other.update_at((2,), (3, 0), 1)
    one.advance_to((0, 2))
    other.advance_to((2, 0))
    dataflow.step()
    assert dataflow.frontier == Frontier([(0, 2), (2, 0)])
    assert output.updates() == []
    one.advance_to((1, 4))
    dataflow.step()
    assert dataflow.frontier == Frontier([(1, 4), (2, 0)])
    assert output.updates() == [((1,), (0, 3), 1)]


def test_probes_ask_for_times_before_and_for_the_time_itself(numbers):
    dataflow, numbers, _ = numbers
    probe = numbers.probe()
    numbers.advance_to([(0, 2), (1, 1)])
    dataflow.step()
    assert [bool(probe.less_than(time)) for time in [(0, 2), (0, 3), (1, 1), (1, 2), (5, 0)]] == [0, 1, 0, 1, 0]
    assert [bool(probe.less_equal(time)) for time in [(0, 1), (0, 2), (1, 1), (5, 0)]] == [0, 1, 1, 0]
    assert probe.less_than((1, 2))() is True
    numbers.close()
    dataflow.step_while(probe.less_than((9, 9)))
    assert not probe.less_equal((9, 9))


def test_matrices_have_times_of_as_many_coordinates(numbers):
    dataflow, numbers, output = numbers
    numbers.insert_many(np.array([[1], [2]]), time=np.array([[0, 1], [1, 0]]))
    numbers.insert_many(np.array([[3]]), time=(2, 2), diff=4)
    numbers.insert_many(np.array([[4]]))
    numbers.advance_to((0, 1))
    with pytest.raises(UsageError, match="earlier times are closed"):
        numbers.insert_many(np.array([[1], [2]]), time=np.array([[0, 1], [1, 0]]))
    numbers.close()
    dataflow.step()
    assert output.lanes().tolist() == [[1, 0, 1, 1], [2, 1, 0, 1], [3, 2, 2, 4], [4, 0, 0, 1]]


def test_frames_have_a_column_a_coordinate(numbers):
    dataflow, numbers, output = numbers
    numbers.update_at((7,), (1, 2), -1)
    numbers.close()
    dataflow.step()
    assert output.frame().to_dicts() == [{"n": 7, "time0": 1, "time1": 2, "diff": -1}]


@pytest.mark.parametrize("wrong", [3, (1,), (1, 2, 3), ("a", 1), (1.5, 2), (2**63, 0), None, "x"])
def test_a_time_that_is_none_is_refused(numbers, wrong):
    _, numbers, _ = numbers
    with pytest.raises(UsageError, match="is not a time"):
        numbers.update_at((1,), wrong, 1)


@pytest.mark.parametrize("wrong", [0, "int32", "int64?", ["date", "text"], []])
def test_times_have_types_that_are_ordered_totally(wrong):
    with pytest.raises(UsageError, match="time"):
        Dataflow(time=wrong)


def test_times_may_be_dates():
    dataflow = Dataflow(time="date")
    numbers = dataflow.input("numbers", {"n": "int64"})
    output, probe = numbers.output(), numbers.probe()
    with pytest.raises(UsageError, match="not one time"):
        numbers.insert((1,))
    first, second = dt.date(1969, 12, 31), dt.date(2013, 2, 1)
    numbers.update_at((2,), second, 1)
    numbers.advance_to(first)
    assert numbers.time == first
    numbers.insert((1,))
    numbers.advance_to(second)
    with pytest.raises(UsageError, match="advanced to 2013-02-01"):
        numbers.update_at((1,), first, 1)
    dataflow.step()
    assert probe.less_equal(second)
    assert not probe.less_than(second)
    assert output.updates() == [((1,), first, 1)]
    numbers.close()
    dataflow.step()
    assert output.frame().schema == {"n": pl.Int64, "time": pl.Date, "diff": pl.Int64}


def test_a_product_of_a_timestamp_and_a_number():
    dataflow = Dataflow(time=["datetime[us]", "int64"])
    numbers = dataflow.input("numbers", {"n": "int64"})
    output = numbers.output()
    when = dt.datetime(2013, 1, 31, 6, 30, 0, 7)  # noqa: DTZ001 - the coordinate has no zone
    numbers.update_at((1,), (when, 4), 1)
    numbers.close()
    dataflow.step()
    assert output.updates() == [((1,), (when, 4), 1)]
