"""Windows that go on from row to row: evaluated from marks, block by block, they lead to the same updates as whole groups do."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.operators import running_windows
from ddcli.engine.operators.reduce_aggregates import GatheredGroups
from ddcli.engine.operators.running_windows import Carry, Running
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace
from tests.draws import many
from tests.operators.support import Grouped

NK, ORDER, NV = 1, 1, 2
SINCE = Frontier([(-9,)])


class Sums:
    """A window that gives each row its number, its peers' number, and what the second lanes of all up to its peers come to, and at most."""

    width, carried = NV + 4, 4

    def __init__(self) -> None:
        self.seen = 0

    def over(self, given: GatheredGroups, before: Carry) -> tuple[np.ndarray, np.ndarray]:
        rows, places = [], []
        self.seen += int(np.maximum(given.rows[:, -1], 0).sum())
        for instance in range(len(given.times)):
            number, group, total, most = before.lanes[instance].tolist()
            most = most if before.known[instance] else -9
            mine = [row for row in given.rows[given.rows[:, 0] == instance].tolist() if row[-1] > 0]
            for place in sorted({row[1] for row in mine}):
                peers = [row[2] for row in mine if row[1] == place for _ in range(row[-1])]
                group, total, most = group + 1, total + sum(peers), max(most, *peers)
                for value in sorted(peers):
                    number += 1
                    rows.append((instance, place, value, number, group, total, most, 1))
                places.append((instance, place, number, group, total, most))
        return (
            np.array(rows, np.int64).reshape(-1, self.width + 2),
            np.array(places, np.int64).reshape(-1, 2 + self.carried),
        )


SIZES = [(1, 1, 62, 3, 2), (4, 3, 63, 40, 3), (1024, 64, 63, 500_000, 4096)]


@contextmanager
def sized(block, times, one_in, together, few):
    """Have blocks of few rows, and marks at every fourth or second place."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("BLOCK", block),
            ("MOST_TIMES", times),
            ("ONE_IN", one_in),
            ("TOGETHER", together),
            ("FEW", few),
            ("PROBED", 1),
        ):
            patch.setattr(running_windows, name, value)
        yield


updates = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1]),
        st.integers(0, 30),
        st.integers(-1, 2),
        st.integers(0, 3),
        st.sampled_from([1, 1, 1, 2, -1, -2]),
    ),
    max_size=40,
)


def at_time(rows, time):
    """Return what the window makes of whole groups at a time, as counts."""
    there = rows[rows[:, -2] <= time].copy()
    there[:, -2] = 0
    there = kernels.consolidate(there)
    found = Counter()
    for key in np.unique(there[:, 0]).tolist():
        mine = there[there[:, 0] == key]
        seen = np.column_stack([np.zeros(len(mine), np.int64), mine[:, 1:-2], mine[:, -1]])
        calls = Sums()
        given = GatheredGroups(np.array([[key]]), np.zeros((1, 1), np.int64), seen)
        nothing = Carry(np.zeros((1, 4), np.int64), np.zeros(1, np.int64))
        found.update((key, *row[1:-1]) for row in calls.over(given, nothing)[0].tolist())
    return found


@settings(max_examples=many(60))
@given(st.lists(updates, min_size=2, max_size=5), st.booleans(), st.sampled_from(SIZES), st.sampled_from([0, 1, 2, 5]))
def test_blocks_from_marks_are_enough(steps, ordered, sizes, grouped):
    """Whatever is in the traces, with several times in one step, rows that come and go, and counts below zero.

    Where batches are read by groups of a few rows, what is behind a change is read only as far as it reaches.
    """
    with sized(*sizes):
        check(steps, ordered=ordered, grouped=grouped)


def check(steps, *, ordered, grouped):
    """Step over new updates; after each step and time the updates so far are what the window makes of whole groups."""
    calls = Sums()
    window = Running(NK, NV, ORDER, calls)
    inputs = Trace(NK, NV, 1, since=SINCE)
    marks = Trace(NK, ORDER + calls.carried, 1, since=SINCE)
    rows, said = np.empty((0, NK + NV + 2), np.int64), np.empty((0, NK + calls.width + 2), np.int64)
    for number, drawn in enumerate(steps):
        delta = np.array(drawn[:3] if grouped and number else drawn, np.int64).reshape(-1, NK + NV + 2)
        if ordered:  # what comes later has a later place, as it mostly is
            delta[:, 1] += 40 * (4 * number + delta[:, -2])
        delta[:, -2] = 4 * number + (delta[:, -2] if not grouped or not number else 3)
        delta = kernels.consolidate(delta)
        found, made = window.step(delta, inputs, marks)
        assert kernels.is_consolidated(found)
        assert kernels.is_consolidated(made)
        assert {*found[:, -2].tolist()} <= {*delta[:, -2].tolist()}
        rows, said = np.concatenate([rows, delta]), np.concatenate([said, found])
        upper = Frontier([(4 * number + 4,)])
        for trace, batch in ((inputs, delta), (marks, made)):
            trace.insert(batch, upper)
            trace.set_logical_compaction(upper)  # times before are advanced to the next step's first
        if grouped:
            inputs.batches = [Grouped(batch, grouped) for batch in inputs.batches]
            inputs = Trace(NK, NV, 1, since=upper, batches=inputs.batches)
        for time in range(4 * number, 4 * number + 4):
            counts = Counter()
            for *row, when, diff in said.tolist():
                counts[tuple(row)] += diff if when <= time else 0
            assert {row: count for row, count in counts.items() if count} == at_time(rows, time), time


def test_a_change_reads_what_is_near_and_what_it_shifts():
    """The mark before it and a block, where nothing behind it changes; all behind it where it shifts them."""
    calls = Sums()
    window = Running(NK, NV, ORDER, calls)
    inputs, marks = Trace(NK, NV, 1, since=SINCE), Trace(NK, ORDER + calls.carried, 1, since=SINCE)
    count, little = 4_000, 400
    rows = [(0, 2 * at, at % 3, 0, 1) for at in range(count)]

    def step(delta, time):
        delta = kernels.consolidate(np.array(delta, np.int64))
        calls.seen = 0
        found, made = window.step(delta, inputs, marks)
        inputs.insert(delta, Frontier([(time + 1,)]))
        marks.insert(made, Frontier([(time + 1,)]))
        return len(found), calls.seen

    with sized(32, 64, 60, 500_000, 4096):
        assert step(rows, 0) == (count, count)
        assert 100 < marks.rows < 500
        inputs = Trace(NK, NV, 1, since=SINCE, batches=[Grouped(batch, 50) for batch in inputs.batches])
        middle, after = (0, count, count // 2 % 3), (0, count + 2, (count // 2 + 1) % 3)
        # A value in the middle that is another now: all sums behind it are.
        out, seen = step([(*middle, 1, -1), (*middle[:2], 7, 1, 1)], 1)
        assert out == count
        assert count <= seen < count + little
        # Two values that change places: no sum behind them is another.
        out, seen = step(
            [(*middle[:2], 7, 2, -1), (*middle[:2], after[2], 2, 1), (*after, 2, -1), (*after[:2], 7, 2, 1)], 2
        )
        assert out == 4
        assert seen < little
        # So two of the first, with a row at the end: nothing between is looked at.
        out, seen = step(
            [(0, 0, 0, 3, -1), (0, 2, 1, 3, -1), (0, 0, 1, 3, 1), (0, 2, 0, 3, 1), (0, 2 * count - 1, 0, 3, 1)], 3
        )
        assert out == 5
        assert seen < little
        out, seen = step([(0, 2 * count, 0, 4, 1)], 4)
        assert out == 1
        assert seen < little
