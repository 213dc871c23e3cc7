"""Reductions where published implementations went wrong, and large groups."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.operators.reduce_aggregates import Count, CountDistinct, ExactSum, LaneRun, TopRows, maximum, minimum
from tests.operators.support import FakeTrace, matrix, run, updates_of


def test_three_incomparable_times_meet_in_a_triple_join():
    """From three coordinates on, the join of three times may be no join of two."""
    reduction = Reduce(0, 1, 3, [minimum(LaneRun(0))])
    grid = list(itertools.product(range(2), repeat=3))
    axes = [(1, 0, 0), (0, 1, 0), (0, 0, 1)]
    # The records of the three axes outweigh a -2 only where all three times have come.
    batch = [((0,), (0, 0, 0), -2), ((9,), (0, 0, 0), 1), *(((0,), t, 1) for t in axes)]
    said = run(reduction, [batch], probe=grid)
    assert ((0,), (1, 1, 1), 1) in said


def test_published_example_of_partial_order():
    """Records by length, the number of distinct strings per length: McSherry's two variants of the last input line."""
    a, b, c = (1, 10), (1, 20), (2, 30)
    first = [
        (a, (0, 0), 1),
        (b, (0, 0), 3),
        (c, (0, 0), 2),
        (a, (0, 1), -1),
        (b, (0, 1), -3),
        (a, (1, 0), -1),
        (b, (1, 0), -1),
    ]
    grid = list(itertools.product(range(2), repeat=2))
    reduction = Reduce(1, 1, 2, [CountDistinct(LaneRun(0))])
    common = [((1, 1), (1, 0), 1), ((1, 2), (0, 0), 1), ((1, 2), (0, 1), -1), ((1, 2), (1, 0), -1), ((2, 1), (0, 0), 1)]
    with_last = run(reduction, [[*first, (a, (1, 1), 1), (b, (1, 1), 2)]], probe=grid)
    assert sorted(with_last) == sorted([*common, ((1, 2), (1, 1), 1)])
    without = run(reduction, [first], probe=grid)
    assert sorted(without) == sorted([*common, ((1, 1), (1, 1), -1), ((1, 2), (1, 1), 2)])


def test_an_update_that_cancels_a_compacted_one_keeps_its_time():
    """History was moved onto the new update's time: together they vanish, but the time is interesting all the same."""
    reduction = Reduce(1, 1, 2, [minimum(LaneRun(0))])
    inputs, output = FakeTrace(5), FakeTrace(5)
    inputs.insert([((1, 5), (2, 0), 1), ((1, 7), (0, 0), 1)])
    output.insert([((1, 7), (0, 0), 1), ((1, 7), (2, 0), -1), ((1, 5), (2, 0), 1)])
    result = reduction.step(matrix([((1, 5), (2, 0), -1)], 5), output, inputs)
    assert updates_of(result.updates, 2, 2) == [((1, 5), (2, 0), -1), ((1, 7), (2, 0), 1)]


def test_a_change_of_an_early_round_is_scheduled_for_the_later_rounds_of_history():
    """Epoch 0 has history at rounds 0, 4, 7 and 9; epoch 1's change at round 3 must be evaluated at 4, 7 and 9 as well."""
    reduction = Reduce(0, 1, 2, [minimum(LaneRun(0))])
    history = [((9,), (0, 0), 1), ((8,), (0, 4), 1), ((6,), (0, 7), 1), ((5,), (0, 9), 1)]
    rounds = [(lambda t, r=r: t[0] == 0 or t[1] <= r, [(1, r + 1)]) for r in range(11)]
    waiting = [history] + [[] if r != 3 else [((7,), (1, 3), 1)] for r in range(11)]
    everything = [(lambda t: t[0] == 0, [(1, 0)]), *rounds]
    said = run(reduction, waiting, frontiers=everything, probe=list(itertools.product(range(2), range(11))))
    # From round 3 on the least is 7, at 7 it is 6 and at 9 it is 5 as before: epoch 1 takes back the 8 that epoch 0
    # gave at round 4, once at 4, and no longer at 7, where epoch 0 itself retracts it.
    assert sorted(u for u in said if u[1][0] == 1) == [
        ((7,), (1, 3), 1),
        ((7,), (1, 7), -1),
        ((8,), (1, 4), -1),
        ((8,), (1, 7), 1),
        ((9,), (1, 3), -1),
        ((9,), (1, 4), 1),
    ]


def test_groups_vanish_and_return():
    reduction = Reduce(1, 1, 1, [minimum(LaneRun(0))])
    batches = [[((1, 4), (0,), 1)], [((1, 4), (1,), -1)], [((1, 4), (2,), 1)], [((1, 4), (3,), -2), ((1, 3), (4,), 1)]]
    said = run(reduction, batches)
    assert said == [
        ((1, 4), (0,), 1),
        ((1, 4), (1,), -1),
        ((1, 4), (2,), 1),
        ((1, 3), (4,), 1),
        ((1, 4), (3,), -1),
    ]


def test_without_key_lanes():
    run(Reduce(0, 1, 1, [Count(), ExactSum(LaneRun(0))]), [[((5,), (0,), 1)], [((6,), (1,), 2), ((5,), (2,), -1)]])
    run(Reduce(0, 1, 1, [minimum(LaneRun(0))]), [[((5,), (0,), 1)], [((4,), (1,), 2), ((4,), (2,), -2)]])


def test_many_times_of_one_key_at_once():
    """A batch with thousands of times for one key is one walk over its values, not one for each time."""
    rng = np.random.default_rng(5)
    batch = [((1, int(x)), (int(t),), 1) for t, x in enumerate(rng.integers(0, 10**6, 3000))]
    batch += [(record, (t[0] + 3000,), -1) for record, t, _ in batch]
    reduction = Reduce(1, 1, 1, [minimum(LaneRun(0))])
    inputs, output = FakeTrace(4), FakeTrace(4)
    began = time.process_time()
    result = reduction.step(matrix(batch, 4), output, inputs)
    assert time.process_time() - began < 30
    best, now = [], {}
    for record, _, diff in batch:
        now[record[1]] = now.get(record[1], 0) + diff
        least = min((x for x, count in now.items() if count > 0), default=None)
        if not best or best[-1] != least:
            best.append(least)
    expected = [x for x in best if x is not None]
    assert [row[1] for row in sorted(result.updates.tolist(), key=lambda row: row[2]) if row[3] > 0] == expected


def test_many_changes_of_one_group():
    """More than are put in order together with their group: the result is sorted as a whole then."""
    n = 3000
    batch = np.stack([np.ones(n, np.int64), np.arange(n), np.arange(n), np.ones(n, np.int64)], axis=1)
    updates = Reduce(1, 1, 1, [Count()]).step(batch, FakeTrace(4)).updates
    comes = [[1, i + 1, i + 1, i, 1] for i in range(n)]
    goes = [[1, i, i, i, -1] for i in range(1, n)]
    assert updates.tolist() == sorted(comes + goes)


@pytest.mark.parametrize(
    "aggregate", [minimum(LaneRun(0)), maximum(LaneRun(0, null="in_band")), TopRows(3, (0,), (0,))]
)
def test_a_change_in_a_large_group_reads_little_of_it(aggregate):
    """300 000 rows in a group: replacing its first costs microseconds, where reading all of it would cost milliseconds."""
    n = 300_000
    rows = np.ones((n, 4), np.int64)
    rows[:, 1], rows[:, 2] = np.arange(n), 0
    inputs, output = FakeTrace(4), FakeTrace(4)
    inputs.batches = [rows]
    reduction = Reduce(1, 1, 1, [aggregate])
    output.batches = [reduction.step(rows, FakeTrace(4), FakeTrace(4)).updates]
    gone = 0 if not aggregate.last else n - 1
    delta = np.array([[1, gone, 1, -1]], np.int64)
    took = []
    for _ in range(20):
        began = time.thread_time()
        result = reduction.step(delta, output, inputs)
        took.append(time.thread_time() - began)
    assert len(result.updates) == 2
    assert min(took) < 0.002
