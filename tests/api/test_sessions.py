"""Sessions, steps and probes: what is emitted when."""

import sys
from collections import Counter

import numpy as np
import pytest

import ddcli
from ddcli.api import Dataflow
from ddcli.errors import EngineError, InputError, UsageError
from tests.draws import some


def test_updates_of_an_output_are_changes_at_their_times(people):
    dataflow, manages, skip = people
    output = skip.output()
    manages.insert((1, 2))
    manages.insert((0, 1))
    manages.advance_to(1)
    manages.flush()
    dataflow.step()
    assert dataflow.time == 1
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
    dataflow.step()
    assert dataflow.time == 0
    assert output.updates() == []
    right.advance_to(3)
    dataflow.step()
    assert dataflow.time == 3
    assert output.updates() == []
    right.advance_to(4)
    dataflow.step()
    assert dataflow.time == 4
    assert output.updates() == [((1, "x", "y"), 3, 1)]
    left.update((1, "x"), 2)
    right.advance_to(20)
    dataflow.step()
    assert dataflow.time == 10
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
    dataflow.step()
    assert dataflow.time == 4


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
    assert dataflow.time == 1


def test_the_graph_is_fixed_by_its_first_step(people):
    dataflow, manages, skip = people
    skip.output()
    dataflow.step()
    with pytest.raises(UsageError, match="its graph is fixed"):
        dataflow.input("more", {"k": "int64"})
    with pytest.raises(UsageError, match="its graph is fixed"):
        manages.output()


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


def test_a_record_that_does_not_fit_costs_no_other_input_its_updates():
    dataflow = Dataflow()
    one, other = dataflow.input("one", {"n": "int64"}), dataflow.input("other", {"n": "int64"})
    output = one.concat(other).output()
    one.insert((1,))
    other.insert(("x",))
    one.advance_to(1)
    other.advance_to(1)
    with pytest.raises(InputError):
        dataflow.step()
    dataflow.step()
    assert output.updates() == [((1,), 0, 1)]


def test_a_failed_step_is_the_last():
    """Its updates were taken in and are in no collection: what came after would be wrong."""
    dataflow = Dataflow()
    numbers = dataflow.input("numbers", {"n": "int64"})
    output = numbers.map(x="1 / n").output()
    numbers.insert((2,))
    numbers.insert((0,))
    numbers.advance_to(1)
    with pytest.raises(InputError, match="division by zero"):
        dataflow.step()
    numbers.advance_to(2)
    with pytest.raises(EngineError, match=r"an earlier step failed.*division by zero"):
        dataflow.step()
    assert output.updates() == []


class Interrupt:
    """Raises KeyboardInterrupt before the line of this number that Python executes."""

    def __init__(self, at):
        self.left = at

    def __call__(self, frame, event, argument):
        if event == "line" and "ddcli" in frame.f_code.co_filename:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


def fed(upserts):
    """Return a dataflow that has made a step and waits for another, its input, its output, and its collection after that."""
    dataflow = Dataflow()
    if upserts:
        given = dataflow.upsert_input("given", {"k": "int64", "s": "string"}, key=["k"])
        insert = lambda k: given.upsert(k, f"text {k}")  # noqa: E731
    else:
        given = dataflow.input("given", {"k": "int64", "s": "string"})
        insert = lambda k: given.insert((k, f"text {k}"))  # noqa: E731
    output = given.output()
    for time in range(3):
        given.advance_to(time)
        insert(time)
        if time == 1:
            dataflow.step()
    given.advance_to(3)
    return dataflow, given, insert, output


@pytest.mark.parametrize("upserts", [False, True])
def test_an_interrupt_at_any_moment_of_a_step_loses_nothing_unnoticed(upserts):
    lines = 1
    for at in some(range(1, 3000)):
        dataflow, given, insert, output = fed(upserts)
        before = sys.gettrace()
        sys.settrace(Interrupt(at))
        try:
            dataflow.step()
        except KeyboardInterrupt:
            lines = at
        finally:
            sys.settrace(before)
        insert(3)
        given.advance_to(4)
        try:
            dataflow.step()
        except EngineError as error:
            assert "interrupted" in str(error)  # noqa: PT017 - it may succeed, too
            continue
        found = Counter()
        for record, _, diff in output.updates():
            found[record] += diff
        assert found == {(k, f"text {k}"): 1 for k in range(4)}, at
        if at > lines + 3:
            break
    assert lines > 30, "a step has more lines than that"


def test_a_wrong_option_of_a_run_is_reported_by_the_name_of_the_function_that_was_called(tmp_path):
    with pytest.raises(
        TypeError, match=r"^run\(\) got .* argument 'inputs'; `ddcli.spark.run` takes frames as inputs$"
    ):
        ddcli.run(tmp_path / "p.yaml", inputs={})
