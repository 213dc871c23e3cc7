"""The spine: whatever is merged when, a trace accumulates to what was inserted, and keeps few batches.

Memory that was freed goes back to the system.
"""

import itertools
import math
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli import Dataflow
from ddcli.engine import kernels, memory_store
from ddcli.engine.times import Frontier
from ddcli.engine.trace import policy
from ddcli.engine.trace.spine import Trace

ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.sampled_from([-2, -1, 1, 2])), max_size=12)


def accumulated(matrices):
    """Sum diffs by key and value."""
    counts = defaultdict(int)
    for matrix in matrices:
        for key, value, _, diff in matrix.tolist():
            counts[key, value] += diff
    return {record: count for record, count in counts.items() if count}


@given(st.lists(ROWS, max_size=30), st.sampled_from([1, 7, 10_000]))
def test_a_trace_accumulates_to_what_was_inserted(batches, least_fuel):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "LEAST_FUEL", least_fuel)
        trace = Trace(1, 1, 1, since=Frontier([(0,)]))
        whole = []
        for time, rows in enumerate(batches):
            updates = np.array([(key, value, time, diff) for key, value, diff in rows], np.int64).reshape(-1, 4)
            trace.set_logical_compaction(Frontier([(time + 1,)]))
            trace.insert(kernels.consolidate(updates), Frontier([(time + 1,)]))
            whole.append(updates)
            assert accumulated(trace.matrices()) == accumulated(whole)
            assert trace.upper == Frontier([(time + 1,)])
            for matrix in trace.matrices():
                assert kernels.is_consolidated(matrix)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 1, 1, 2, 5, 40]), st.sampled_from([1, 1, 1, -1])), min_size=30, max_size=60
    ),
    st.sampled_from([1, 2, 7, 256]),
    st.sampled_from([1, 30]),
)
def test_no_two_batches_that_are_due_to_be_merged_are_left_alone(batches, least_fuel, several):
    """Though few of them are looked at each time; rows that cancel take batches away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "LEAST_FUEL", least_fuel)
        trace = Trace(1, 0, 1, since=Frontier([(0,)]))
        for time, (size, diff) in enumerate(batches):
            # Some come back to where others were, and take them away.
            first = 10_000 * (time if diff > 0 else time // 2)
            rows = [(key, time, diff) for key in range(first, first + size * several)]
            trace.set_logical_compaction(Frontier([(time + 1,)]))
            trace.insert(np.array(rows, np.int64).reshape(-1, 3), Frontier([(time + 1,)]))
            busy = {id(batch) for merging in trace._merges for batch in (merging.older, merging.younger)}
            last = max((at for at, batch in enumerate(trace.batches) if id(batch) in busy), default=-1)
            looked_at = trace.batches[last + 1 : len(trace.batches) - trace._waiting]
            assert policy.next_merge([batch.rows for batch in looked_at]) is None
            # Few of few rows wait.
            assert trace._waiting <= policy.WAITING
            waiting = trace.batches[len(trace.batches) - trace._waiting :]
            assert all(batch.rows * policy.FUEL <= least_fuel for batch in waiting)


def test_readers_keep_their_picture_while_batches_are_merged():
    trace = Trace(1, 1, 1, since=Frontier([(0,)]))
    for time in range(300):
        updates = np.array([[time % 7, time, time, 1]], np.int64)
        before = trace.matrices()
        picture = accumulated(before)
        trace.set_logical_compaction(Frontier([(time + 1,)]))
        trace.insert(updates, Frontier([(time + 1,)]))
        assert accumulated(before) == picture


@pytest.mark.parametrize("size", [1, 3, 100])
def test_batches_stay_few_and_old_rows_are_compacted(size):
    trace = Trace(1, 0, 1, since=Frontier([(0,)]))
    rng = np.random.default_rng(0)
    most = 0
    for time in range(1500):
        keys = rng.integers(0, 1000, size)
        updates = np.column_stack([keys, np.full(size, time), np.where(rng.random(size) < 0.5, -1, 1)]).astype(np.int64)
        trace.set_logical_compaction(Frontier([(time + 1,)]))
        trace.insert(kernels.consolidate(updates), Frontier([(time + 1,)]))
        most = max(most, len(trace.batches))
    assert most <= 2 * math.log2(1500 * size) + 4 + policy.WAITING
    # 1 000 keys of one row each, and what has not been merged since.
    assert trace.rows <= 4 * 1000 + 2 * size * policy.FUEL


@pytest.mark.parametrize("runs", [0, 1, 3], ids=["inserted", "one run of a loop", "runs of a loop"])
@pytest.mark.parametrize(("size", "large"), [(1, 0), (7, 0), (32, 0), (3, 5000)])
def test_batches_of_few_rows_are_merged_after_a_few_others(runs, size, large):
    """Not only in the end: none is there any more when `WAITING` and one have come after it, and beside those that wait the spine is as short as ever."""
    rng, trace, came = np.random.default_rng(1), Trace(1, 0, 1, since=Frontier([(0,)])), []
    for time in range(400):
        many = large if time == 100 else size
        updates = np.column_stack([rng.integers(0, 10**9, many), np.full(many, time), np.ones(many)]).astype(np.int64)
        trace.set_logical_compaction(Frontier([(time + 1,)]))
        upper, known = Frontier([(time + 1,)]), {id(batch) for batch in trace.batches}
        if runs:
            for part in range(runs):
                trace.append(kernels.consolidate(updates[part::runs].copy()))
            trace.advance_frontier(upper)
        else:
            trace.insert(kernels.consolidate(updates), upper)
        assert sum(batch.rows for batch in trace.batches) == trace.rows
        came.append([batch for batch in trace.batches if batch.rows <= size and id(batch) not in known])
        left = {id(batch) for batch in trace.batches}
        old = [batch for batches in came[: -policy.WAITING - 1] for batch in batches]
        assert not [batch for batch in old if id(batch) in left], "what waits is merged in time"
        assert len(trace.batches) - trace._waiting <= math.log2(trace.rows) + 2


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_the_policy_settles_into_a_geometric_spine(inserted):
    sizes = []
    for size in inserted:
        sizes.append(size)
        while (at := policy.next_merge(sizes)) is not None:
            sizes[at : at + 2] = [sizes[at] + sizes[at + 1]]
    assert all(older >= policy.RATIO * younger for older, younger in itertools.pairwise(sizes))
    assert sum(sizes) == sum(inserted)


def test_batches_in_files_are_left_to_the_store():
    class InFile:
        lower, upper, rows = Frontier([(0,)]), Frontier([(1,)]), 2

        def matrix(self):
            return np.array([[1, 0, 0, 1], [2, 0, 0, 1]], np.int64)

        def for_keys(self, keys, _spared=()):
            return kernels.gather(self.matrix(), 1, keys)

    stored = InFile()
    trace = Trace(1, 1, 1, since=Frontier([(1,)]), batches=[stored])
    for time in range(1, 50):
        trace.set_logical_compaction(Frontier([(time + 1,)]))
        trace.insert(np.array([[2, time, time, 1]], np.int64), Frontier([(time + 1,)]))
        assert trace.batches[0] is stored
    found = trace.matching(np.array([[2, 0, 0, 1]], np.int64))
    assert len(found[0]) == 1
    assert accumulated(found)[2, 49] == 1


@given(st.lists(ROWS, max_size=12), st.sampled_from([0, 1, 5, 1000]))
def test_runs_that_are_folded_hold_the_same(runs, keys):
    """And no more than a quarter of all rows are merged."""
    trace = Trace(1, 1, 1, since=Frontier([(0,)]))
    for number, rows in enumerate(runs):
        updates = np.array([(key, value, number, diff) for key, value, diff in rows], np.int64).reshape(-1, 4)
        trace.append(kernels.consolidate(updates))
    before = trace.runs
    trace.fold_runs(keys)
    assert (
        kernels.merge([np.empty((0, 4), np.int64), *trace.runs]).tolist()
        == kernels.merge([np.empty((0, 4), np.int64), *before]).tolist()
    )
    assert all(kernels.is_consolidated(run) for run in trace.runs)
    gone = [len(run) for run in before if not any(run is other for other in trace.runs)]
    assert sum(gone) <= min(sum(map(len, before)) // 4, policy.ROWS_A_KEY * keys)


SCRIPT = """
import sys
import numpy as np
from ddcli.engine import heap

heap.SLACK = 1 << 40 if "at once" in sys.argv else 1 << 20
looked = heap.Heap()
before = looked._resident()
matrices = [np.ones((1 << 10, 4), np.int64) for _ in range(2_000)]  # 64 MB, in pieces of 32 kB
full = looked._resident()
assert full > before + (48 << 20), (before, full)
del matrices[:-1]
heap.give_back() if "at once" in sys.argv else looked.give_back()
if looked._trim is not None:
    assert looked._resident() < full - (32 << 20), (full, looked._resident())
assert len(matrices) == 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux' own library")
@pytest.mark.parametrize("when", ["at once", "where much is resident"])
def test_small_matrices_between_others_are_given_back(when):
    """In a process of its own: in one that ran other tests, the matrices may lie where memory is free already."""
    subprocess.run([sys.executable, "-c", SCRIPT, when], check=True, timeout=300)


def test_a_loop_gives_back_what_its_large_rounds_were_in(monkeypatch):
    given = []
    monkeypatch.setattr(memory_store, "give_back", lambda: given.append(True))

    def times(many):
        """Return how often it does where so many updates count as many."""
        monkeypatch.setattr(memory_store, "MANY", many)
        given.clear()
        dataflow = Dataflow()
        numbers = dataflow.input("numbers", {"n": "int64"})
        output = numbers.iterate(lambda each: each.map(n="n + 1").concat(numbers).filter("n < 20").distinct()).output()
        for n in range(5):
            numbers.insert((n,))
        numbers.advance_to(1)
        dataflow.step()
        assert len(output.updates()) == 20
        return len(given)

    assert times(1) > times(8) > times(1 << 20) == 0
