"""Distinct and threshold against their definition: f of every record's accumulated count at every time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.jit.registry import DiffOverflow
from ddcli.engine.operators.groups import Threshold, positive
from ddcli.engine.operators.reduce_instances import Due
from ddcli.errors import EngineError
from tests.operators.support import FakeTrace, matrix
from tests.reference.model import accumulate, less_equal


def odd_steps(counts):
    return np.sign(counts) * (np.abs(counts) // 2)


FUNCTIONS = {"distinct": positive, "halves": odd_steps, "negative": lambda counts: np.minimum(counts, 0)}


def run(operator, batches, closed_sets=None, uppers=None, cut=None, probe=None, ahead=False, kept=False, compact=None):
    """Push batches through the operator, and compare its accumulations at all times with the definition."""
    nk, nt = operator.nk, operator.nt
    width = nk + nt + 1
    trace, output, seen, said, waiting = FakeTrace(width), FakeTrace(width), [], [], []
    for j, batch in enumerate(batches):
        closed = closed_sets[j] if closed_sets else None
        due = sorted(pair for pair in waiting if closed is not None and pair[nk:] in closed)
        waiting = [pair for pair in waiting if pair not in due]
        result = operator.step(
            matrix(batch, width),
            trace,
            output if kept else None,
            Due(np.array(due, np.int64).reshape(len(due), nk + nt), uppers[j] if uppers else None, ahead),
        )
        rows = [tuple(row) for row in result.updates.tolist()]
        assert [row[:-1] for row in rows] == sorted({row[:-1] for row in rows})
        assert all(row[-1] for row in rows)
        waiting += map(tuple, result.pending.tolist())
        seen += batch
        said += [(row[:nk], row[nk:-1], row[-1]) for row in rows]
        if closed is not None:
            assert all(row[nk:-1] in closed for row in rows)
            assert j == 0 or not any(row[nk:-1] in closed_sets[j - 1] for row in rows)
        for t in probe or {t for _, t, _ in seen + said}:
            if closed is None or t in closed:
                counts = accumulate(seen, t)
                values = operator.function(np.array(list(counts.values()), np.int64)).tolist()
                expected = {record: value for record, value in zip(counts, values, strict=True) if value}
                assert accumulate(said, t) == expected, f"at {t} after batch {j}"
        for kept_trace, updates in ((trace, seen), (output, said)):
            parts = [[] for _ in range(3)]
            for record, t, diff in updates:
                parts[cut(record) if cut else 0].append((record, compact(j, t) if compact else t, diff))
            kept_trace.batches = [matrix(part, width) for part in parts]
    assert not waiting


records = st.tuples(st.sampled_from([-1, 4]), st.sampled_from([0, 2**63 - 1]))
diffs = st.sampled_from([-3, -2, -1, 1, 2, 3])


def batches_at(times, most=12):
    return st.lists(st.tuples(records, st.sampled_from(times), diffs), max_size=most)


line = st.tuples(*(batches_at([(3 * j,), (3 * j + 1,), (3 * j + 2,)]) for j in range(3)))


@pytest.mark.parametrize("name", FUNCTIONS)
@given(batches=line, cuts=st.randoms(use_true_random=False), kept=st.booleans())
def test_total_order(name, batches, cuts, kept):
    run(Threshold(2, 1, FUNCTIONS[name]), batches, cut=lambda _: cuts.randrange(3), kept=kept)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(batches=line, data=st.data())
def test_times_after_the_batch(name, batches, data):
    shuffled = data.draw(st.permutations([update for batch in batches for update in batch]))
    third = len(shuffled) // 3 + 1
    parts = [shuffled[i : i + third] for i in range(0, len(shuffled), third)]
    run(Threshold(2, 1, FUNCTIONS[name]), parts, ahead=True, kept=True)


@pytest.mark.parametrize("nt", [2, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data(), cuts=st.randoms(use_true_random=False), compacting=st.booleans())
def test_product_order(name, nt, data, cuts, compacting):
    grid = list(itertools.product(range(3), repeat=nt))
    batches, closed_sets, uppers, closed = [], [], [], set()
    for step in range(3):
        past = closed
        corners = grid if step == 2 else data.draw(st.lists(st.sampled_from(grid), min_size=1, max_size=2))
        closed = past | {t for t in grid if any(less_equal(t, corner) for corner in corners)}
        beyond = [t for t in itertools.product(range(4), repeat=nt) if t not in closed]
        closed_sets.append(closed)
        uppers.append([t for t in beyond if not any(s != t and less_equal(s, t) for s in beyond)])
        batches.append(data.draw(batches_at(sorted(closed - past), most=8)) if closed - past else [])

    def advance(j, t):
        """Return the meet over the frontier of the joins with t: no reader at or after the frontier can tell."""
        return tuple(map(min, *([tuple(map(max, t, f)) for f in uppers[j]] * 2)))

    run(
        Threshold(2, nt, FUNCTIONS[name]),
        batches,
        closed_sets,
        uppers,
        cut=lambda _: cuts.randrange(3),
        probe=grid,
        kept=True,
        compact=advance if compacting else None,
    )


def test_the_triple_join_of_incomparable_times():
    """Three records of a third each: only where all three times have come is the count positive."""
    grid = list(itertools.product(range(2), repeat=3))
    batch = [((7,), (0, 0, 0), -2), *(((7,), t, 1) for t in [(1, 0, 0), (0, 1, 0), (0, 0, 1)])]
    operator = Threshold(1, 3)
    run(operator, [batch], probe=grid, kept=True)
    assert operator.step(matrix(batch, 5), FakeTrace(0), FakeTrace(0)).updates.tolist() == [[7, 1, 1, 1, 1]]


def test_a_record_leaves_and_comes_back_in_one_batch():
    batch = [((1,), (0,), 1), ((1,), (1,), -1), ((1,), (2,), -1), ((1,), (3,), 3), ((1,), (4,), 5)]
    assert Threshold(1, 1).step(matrix(batch, 3), FakeTrace(0)).updates.tolist() == [[1, 0, 1], [1, 1, -1], [1, 3, 1]]


def test_without_lanes():
    """A record of no columns has a multiplicity all the same."""
    run(Threshold(0, 1), [[((), (0,), 2)], [((), (1,), -2), ((), (2,), 1)]])


def test_nothing_new_gives_nothing():
    assert Threshold(2, 1).step(matrix([], 4), FakeTrace(0)).updates.shape == (0, 4)


def test_a_function_that_makes_something_of_nothing():
    with pytest.raises(EngineError, match="makes 1 of 0"):
        Threshold(1, 1, lambda counts: counts + 1)


def test_a_function_of_wrong_shape():
    with pytest.raises(EngineError, match="float64"):
        Threshold(1, 1, lambda counts: counts * 1.0)


def test_a_count_that_leaves_64_bits():
    with pytest.raises(DiffOverflow):
        run(Threshold(1, 1), [[((1,), (0,), 2**62), ((1,), (1,), 2**62)]])
