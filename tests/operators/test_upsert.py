"""Upserts against a dictionary."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.upsert import Upsert
from ddcli.engine.rounds import Interval
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace
from ddcli.errors import EngineError
from tests.kernels.support import interpreted

# (key, value or None, time): two key lanes, one value lane.
UPSERTS = st.lists(
    st.tuples(st.tuples(st.integers(0, 1), st.integers(0, 1)), st.sampled_from([None, 1, 2]), st.integers(0, 8)),
    max_size=25,
)


def rows(upserts):
    """Return numbered upserts (order, key, value, time) as a matrix."""
    found = [(*key, value or 0, value is not None, order, time, 1) for order, key, value, time in upserts]
    return np.array(found, np.int64).reshape(-1, 7)


def step(operator, matrix, lower, upper):
    """Run an interval."""
    interval = Interval(Frontier([(lower,)]), Frontier([(upper,)]))
    found = operator.step([Delta(matrix)], interval)
    assert found.distinct
    assert kernels.is_consolidated(found.updates)
    assert all(lower <= row[-2] < upper for row in found.updates.tolist())
    operator.close(interval)
    operator.seal(interval)
    return found.updates.tolist()


@given(UPSERTS, st.lists(st.integers(1, 8), max_size=4), st.randoms(use_true_random=False))
def test_the_last_one_of_a_key_wins_at_every_time(upserts, cuts, shuffle):
    """Cut into any steps, out of order within a step; repeats and deletions of nothing change nothing."""
    operator = Upsert(Trace(2, 1, 1, since=Frontier([(0,)])))
    numbered = [(order, *upsert) for order, upsert in enumerate(upserts)]
    given_out = []
    for lower, upper in itertools.pairwise(sorted({0, *cuts, 9})):
        due = [upsert for upsert in numbered if lower <= upsert[3] < upper]
        shuffle.shuffle(due)
        given_out += step(operator, rows(due), lower, upper)
    for now in range(9):
        in_order = sorted(numbered, key=lambda upsert: (upsert[3], upsert[0]))
        expected = {key: value for _, key, value, time in in_order if time <= now}
        seen = Counter()
        for *key, value, time, diff in given_out:
            if time <= now:
                seen[tuple(key), value] += diff
        counts = {record: count for record, count in seen.items() if count}
        assert counts == {(key, value): 1 for key, value in expected.items() if value is not None}
    # No more updates than changes: a value that stays is not taken back and given again.
    assert len({tuple(row[:-1]) for row in given_out}) == len(given_out)


def test_many_keys_in_large_steps():
    """Past what is sorted by insertion, over several batches."""
    draw = np.random.default_rng(4)
    operator = Upsert(Trace(1, 1, 1, since=Frontier([(0,)])))
    expected, seen = {}, Counter()
    for lower in range(0, 50, 10):
        n = 5000
        m = np.stack(
            [draw.integers(0, 900, n), draw.integers(0, 4, n), draw.integers(0, 2, n), draw.permutation(n),
             draw.integers(lower, lower + 10, n), np.ones(n, np.int64)], axis=1)  # fmt: skip
        for key, value, present, *_ in sorted(m.tolist(), key=lambda row: (row[4], row[3])):
            expected[key] = value if present else None
        for key, value, _, diff in step(operator, m, lower, lower + 10):
            seen[key, value] += diff
        counts = {record: count for record, count in seen.items() if count}
        assert counts == {(key, value): 1 for key, value in expected.items() if value is not None}


def test_what_is_no_upsert_is_refused():
    """A diff other than 1."""
    operator = Upsert(Trace(2, 1, 1, since=Frontier([(0,)])))
    m = rows([(0, (1, 1), 5, 0)])
    m[0, -1] = -1
    with pytest.raises(EngineError, match="diff -1"):
        step(operator, m, 0, 1)


def test_nothing_new_gives_nothing():
    operator = Upsert(Trace(2, 1, 1, since=Frontier([(0,)])))
    assert step(operator, rows([]), 0, 1) == []


def test_interpreted_kernels_give_the_same():
    """The same source as plain Python."""
    steps = [
        rows([(0, (1, 1), 5, 0), (1, (1, 1), 6, 0), (2, (0, 1), 5, 0)]),
        rows([(3, (1, 1), None, 1), (4, (0, 1), 5, 1)]),
    ]
    found = []
    for mode in (nullcontext, interpreted):
        operator = Upsert(Trace(2, 1, 1, since=Frontier([(0,)])))
        with mode():
            found.append([step(operator, m, time, time + 1) for time, m in enumerate(steps)])
    assert found[0] == found[1] == [[[0, 1, 5, 0, 1], [1, 1, 6, 0, 1]], [[1, 1, 6, 1, -1]]]
