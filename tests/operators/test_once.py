"""A record that stays from the first time at which its input holds it, against the input's multiplicity at every time."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.linear import Once, SummedTimes
from ddcli.engine.rounds import Interval
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace

UPDATES = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-2, -1, 1, 2])), max_size=10)


@given(UPDATES, st.sets(st.integers(1, 5), max_size=3), st.booleans(), st.integers(1, 5))
def test_a_record_stays_from_the_first_time_at_which_there_is_one(updates, cuts, ordered, most):
    """Cut into any steps, each fed as it is and summed up in parts of `most` rows, in order or not; the input is never negative."""
    counts = list(itertools.accumulate(sum(diff for at, diff in updates if at == time) for time in range(6)))
    updates = [*updates, *((time, -count) for time, count in enumerate(counts) if count < 0)]
    counts = list(itertools.accumulate(sum(diff for at, diff in updates if at == time) for time in range(6)))
    updates = sorted(updates) if ordered else updates
    operators = [Once(Trace(1, 0, 1, since=Frontier([(0,)]))) for _ in range(2)]
    found: list[list[list[int]]] = [[], []]
    for lower, upper in itertools.pairwise(sorted({0, *cuts, 6})):
        rows = np.array([(7, at, diff) for at, diff in updates if lower <= at < upper], np.int64).reshape(-1, 3)
        interval = Interval(Frontier([(lower,)]), Frontier([(upper,)]))
        parts = [Delta(rows[at : at + most]) for at in range(0, len(rows), most)]
        summed = [SummedTimes().step([part], interval).updates for part in parts]
        for each, operator, given_rows in zip(
            found, operators, (rows, np.concatenate([rows[:0], *summed])), strict=True
        ):
            each += operator.step([Delta(given_rows)], interval).updates.tolist()
            operator.close(interval)
            operator.seal(interval)
    first = next((time for time, count in enumerate(counts) if count > 0), None)
    assert found == [[] if first is None else [[7, first, 1]]] * 2


def test_parts_in_order_are_a_row_for_each_time():
    interval = Interval(Frontier([(0,)]), Frontier([(3,)]))
    rows = [[7, 0, 1], [7, 0, 1], [7, 1, 2], [7, 2, 1], [7, 2, -1]]
    assert SummedTimes().step([Delta(np.array(rows))], interval).updates.tolist() == [[7, 0, 2], [7, 1, 2]]
