"""Random dataflows: what is emitted is what the operators mean, whatever the steps, the order of time and the workers."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.api import Dataflow, passes
from ddcli.engine import process
from tests.api.support import plans, run, sharing
from tests.draws import many


@settings(max_examples=many(35))
@given(plans(1))
def test_totally_ordered_time(plan):
    run(plan, Dataflow(), [len(plan.operators) + 1])


@pytest.mark.parametrize("nt", [2, 3])
@settings(max_examples=many(35))
@given(data=st.data())
def test_products_closed_by_boxes(nt, data):
    """A box holds the lattice join of any two of its times."""
    plan = data.draw(plans(nt, boxes=True))
    run(plan, Dataflow(time=nt), [len(plan.operators) + 1])


@pytest.mark.parametrize("nt", [2, 3])
@settings(max_examples=many(35))
@given(data=st.data())
def test_products_closed_by_any_antichain(nt, data):
    """The lattice join of two closed times may be open: what changes there has to wait."""
    plan = data.draw(plans(nt))
    run(plan, Dataflow(time=nt), [len(plan.operators) + 1])


@pytest.mark.parametrize("nt", [1, 2])
@settings(max_examples=many(20))
@given(data=st.data())
def test_workers_change_nothing(nt, data):
    """Shards step in threads however little there is to do, or one worker takes all: the updates are the very ones that one gives."""
    plan = data.draw(plans(nt, most=8))
    reads = [*range(2, len(plan.operators) + 2)]
    alone = run(plan, Dataflow(time=nt), reads)
    for count in (2, 3):
        with sharing(data), Dataflow(workers=count, time=nt) as dataflow:
            assert run(plan, dataflow, reads) == alone


def test_a_closed_dataflow_has_no_threads():
    before = threading.active_count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "FEW", 0)
        patch.setattr(passes, "FEW", 0)
        with Dataflow(workers=3) as dataflow:
            numbers = dataflow.input("numbers", {"n": "int64"})
            output = numbers.distinct().output()
            for number in range(20):
                numbers.insert((number,))
            numbers.close()
            dataflow.step()
            assert threading.active_count() > before
    assert threading.active_count() == before
    assert len(output.updates()) == 20
