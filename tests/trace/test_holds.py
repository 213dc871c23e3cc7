"""Holds: what a reader claims stays readable and apart, whatever is merged and advanced; and no longer when he lets go."""

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.times import Frontier
from ddcli.engine.trace import policy
from ddcli.engine.trace.trace_import import FilteredImport, ImportedTrace
from tests.draws import many
from tests.trace.support import at, before, domain, growing, rows, trace_of


@contextmanager
def slowly(fuel):
    """Merge a few rows an insertion."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "LEAST_FUEL", fuel)
        patch.setattr(policy, "FUEL", 1)
        yield


@pytest.mark.parametrize("nt", [1, 2])
@settings(max_examples=many(80))
@given(data=st.data(), fuel=st.sampled_from([1, 4, 1000]))
def test_holders_read_what_they_hold(nt, data, fuel):
    """Three holders who go forward each at his own pace."""
    with slowly(fuel):
        trace, whole, holds = trace_of(nt), [], []
        for upper in data.draw(growing(nt, 5)):
            if len(holds) < 3 and data.draw(st.booleans()):
                holds.append(trace.hold(trace.since, Frontier()))
            updates = rows(data.draw, nt, trace.upper, upper)
            trace.set_logical_compaction(upper)
            trace.insert(updates, upper)
            trace.upper = upper  # where nothing came, nothing was inserted
            whole.append(updates)
            for hold in holds:
                for time in domain(nt):
                    if hold.since.less_equal(time):
                        assert at(trace.matrices(), time) == at(whole, time)
                for matrix in trace.matrices():
                    assert kernels.is_consolidated(matrix)
                since, through = hold.since, hold.through
                if data.draw(st.booleans()):
                    since = since.join(Frontier([data.draw(st.sampled_from(domain(nt)))]))
                if data.draw(st.booleans()):
                    through = (through or upper).join(Frontier([data.draw(st.sampled_from(domain(nt)))]))
                hold.advance(since, through)
            apart = [batch for batch in trace.batches if not batch.upper.dominates(trace.through)]
            for hold in holds:
                if hold.through:
                    for batch in apart:
                        times = batch.matrix()[:, 2:-1]
                        if batch.lower.dominates(hold.through) and not batch.upper.dominates(hold.through):
                            assert not before(times, batch.lower).any(), "not merged with what is older, nor advanced"
        while holds:
            holds.pop().release()
        assert not trace.through
        assert trace.since == Frontier()


@pytest.mark.parametrize("nt", [1, 2])
@settings(max_examples=many(120))
@given(data=st.data(), fuel=st.sampled_from([1, 4, 1000]))
def test_an_import_sees_what_it_has_taken(nt, data, fuel):
    """And takes each update once, at its time or when it began, while the trace goes on, merges and advances."""
    with slowly(fuel):
        trace, whole = trace_of(nt), []
        keeper = trace.hold(trace.since, Frontier())  # of all history, until the import begins
        steps = data.draw(growing(nt, 6))
        begun = data.draw(st.integers(0, 5))
        importing = None
        taken = Frontier([(0,) * nt])
        given_over = [np.empty((0, 3 + nt), np.int64)]
        for number, upper in enumerate(steps):
            if number == begun:
                begin = trace.since.join(Frontier([data.draw(st.sampled_from(domain(nt)))]))
                importing = ImportedTrace(trace, begin, taken)
                keeper.release()
            updates = rows(data.draw, nt, trace.upper, upper)
            trace.set_logical_compaction(upper)
            trace.insert(updates, upper)
            trace.upper = upper
            whole.append(updates)
            if importing is None:
                continue
            meant = np.concatenate(whole)
            meant[:, 2:-1] = np.maximum(meant[:, 2:-1], np.array(begin.as_time()))
            for _ in range(data.draw(st.integers(0, 2))):
                last = number == len(steps) - 1
                further = [] if last and data.draw(st.booleans()) else [data.draw(st.sampled_from(domain(nt)))]
                # Not beyond what the source has closed.
                up_to = Frontier([*taken.join(Frontier(further)), *upper]) if further else Frontier()
                fresh = importing.next_before(up_to)
                assert kernels.is_consolidated(fresh)
                assert not before(fresh[:, 2:-1], taken).any()
                assert before(fresh[:, 2:-1], up_to).all()
                given_over.append(fresh)
                importing.take(up_to)
                taken = up_to
                wanted = meant[before(meant[:, 2:-1], taken)]
                for time in domain(nt):
                    assert at(given_over, time) == at([wanted], time)
                    if taken.less_equal(time):
                        assert at(importing.matrices(), time) == at([wanted], time)
                        keys = np.array([[0], [2]])
                        of_keys = [matrix[np.isin(matrix[:, 0], keys)] for matrix in importing.batches_for(keys)]
                        assert at(of_keys, time) == at([wanted[np.isin(wanted[:, 0], keys)]], time)
        importing.release()
        assert not trace.through


def test_a_merge_under_way_does_not_hide_what_was_taken():
    """It was begun before the import, and joins what the import has taken with what it has not."""
    with slowly(1):
        trace = trace_of(1)
        keeper = trace.hold(Frontier([(0,)]), Frontier())
        for first in (0, 10):
            times = np.arange(first, first + 10)
            trace.insert(np.column_stack([times, times, times, np.ones_like(times)]), Frontier([(first + 10,)]))
            trace.set_logical_compaction(trace.upper)
        (under_way,) = trace._merges
        importing = ImportedTrace(trace, Frontier([(0,)]), Frontier([(0,)]))
        keeper.release()
        assert len(importing.next_before(Frontier([(15,)]))) == 15
        importing.take(Frontier([(15,)]))
        for time in range(20, 60):
            trace.insert(np.array([[0, 0, time, 1]]), Frontier([(time + 1,)]))
        assert under_way not in trace._merges
        assert sum(map(len, importing.matrices())) == 15
        assert importing.next_before(Frontier([(20,)]))[:, 2].tolist() == [15, 16, 17, 18, 19]
        importing.release()


def test_a_filter_is_asked_of_what_is_read():
    trace = trace_of(1)
    trace.insert(np.array([[1, 0, 0, 1], [1, 1, 0, 1], [2, 1, 0, 1]]), Frontier([(1,)]))
    asked = []

    def ones(matrix):
        asked.append(len(matrix))
        return matrix[matrix[:, 1] == 1]

    filtered = FilteredImport(ImportedTrace(trace, Frontier([(0,)]), Frontier([(0,)])), ones)
    assert filtered.next_before(Frontier([(1,)])).tolist() == [[1, 1, 0, 1], [2, 1, 0, 1]]
    filtered.take(Frontier([(1,)]))
    (found,) = filtered.matching(np.array([[1, 0, 0, 1], [3, 0, 0, 1]]))
    assert found.tolist() == [[1, 1, 0, 1]]
    assert asked == [3, 2]
    filtered.release()


def test_what_was_held_apart_is_put_together_at_once():
    trace = trace_of(1)
    hold = trace.hold(Frontier([(0,)]), Frontier([(0,)]))
    for time in range(300):
        trace.set_logical_compaction(Frontier([(time + 1,)]))
        trace.insert(np.array([[time % 3, 0, time, 1]]), Frontier([(time + 1,)]))
    assert len(trace.batches) == 300
    hold.advance(Frontier([(150,)]), Frontier([(150,)]))
    assert len(trace.batches) == 151
    hold.release()
    assert len(trace.batches) == 2
    assert at(trace.matrices(), (300,)) == {(0, 0): 100, (1, 0): 100, (2, 0): 100}
