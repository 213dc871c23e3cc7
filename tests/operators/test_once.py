"""A record that stays from the first time at which its input holds it, against the input's multiplicity at every time."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.once import Once
from ddcli.engine.rounds import Interval
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace

UPDATES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-2, -1, 1, 2])), max_size=10)


@given(UPDATES, st.sets(st.integers(1, 5), max_size=3))
def test_a_record_stays_from_the_first_time_at_which_there_is_one(updates, cuts):
    """Cut into any steps, unordered and unconsolidated within a step; the input is never negative."""
    counts = list(itertools.accumulate(sum(diff for at, diff in updates if at == time) for time in range(6)))
    updates = [*updates, *((time, -count) for time, count in enumerate(counts) if count < 0)]
    counts = list(itertools.accumulate(sum(diff for at, diff in updates if at == time) for time in range(6)))
    operator = Once(Trace(1, 0, 1, since=Frontier([(0,)])))
    found = []
    for lower, upper in itertools.pairwise(sorted({0, *cuts, 6})):
        rows = [(7, at, diff) for at, diff in updates if lower <= at < upper]
        interval = Interval(Frontier([(lower,)]), Frontier([(upper,)]))
        found += operator.step([Delta(np.array(rows, np.int64).reshape(-1, 3))], interval).updates.tolist()
        operator.close(interval)
        operator.seal(interval)
    first = next((time for time, count in enumerate(counts) if count > 0), None)
    assert found == ([] if first is None else [[7, first, 1]])
