"""Random dataflows: what is emitted is what the operators mean, whatever the steps, the order of time and the workers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.library import Dataflow
from tests.library.support import plans, run


@settings(max_examples=60)
@given(plans(1))
def test_totally_ordered_time(plan):
    run(plan, Dataflow(), [len(plan.operators) + 1])


@pytest.mark.parametrize("nt", [2, 3])
@settings(max_examples=60)
@given(data=st.data())
def test_products_closed_by_boxes(nt, data):
    """A box holds the lattice join of any two of its times."""
    plan = data.draw(plans(nt, boxes=True))
    run(plan, Dataflow(time=nt), [len(plan.operators) + 1])


@pytest.mark.parametrize("nt", [2, 3])
@settings(max_examples=60)
@given(data=st.data())
def test_products_closed_by_any_antichain(nt, data):
    """The lattice join of two closed times may be open: what changes there has to wait."""
    plan = data.draw(plans(nt))
    run(plan, Dataflow(time=nt), [len(plan.operators) + 1])
