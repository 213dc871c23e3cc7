"""Moving updates to later times and keeping them until then, cut into any intervals, against plain Python."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels import DiffOverflow
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.shift import Delay, EnterAt, PythonShift, Shift
from ddcli.engine.pool import Pool
from ddcli.engine.rounds import Interval
from ddcli.engine.times import LEAST, Frontier
from ddcli.engine.trace.spine import MemoryBatch, Trace
from ddcli.expressions.types import Type
from tests.secret import SECRET

ALL = Frontier()


def rows_of(updates, width):
    """Return updates as a matrix."""
    return np.array(updates, np.int64).reshape(len(updates), width)


def totals(updates):
    """Return the non-zero sums of diffs by data and time."""
    counts = Counter()
    for *lanes, diff in updates:
        counts[tuple(lanes)] += diff
    return {lanes: count for lanes, count in counts.items() if count}


@st.composite
def cuts(draw, ni):
    """Draw a chain of frontiers over `ni` coordinates, from the first times to the end of all."""
    chain = [Frontier([draw(st.sampled_from([(0,) * ni, (LEAST,) * ni]))])]
    for _ in range(draw(st.integers(0, 4))):
        corners = draw(st.lists(st.tuples(*[st.integers(0, 4)] * ni), min_size=1, max_size=2))
        chain.append(chain[-1].join(Frontier(corners)))
    return [lower for lower, upper in itertools.pairwise([*chain, ALL]) if lower != upper] + [ALL]


class Driver:
    """Steps a `Delay` as a scope does: what is due and what is new, by rounds, in order."""

    def __init__(self, width, ni, depth, since):
        self.width, self.ni, self.depth = width, ni, depth
        self.operator = Delay(Trace(ni + depth, width, ni + depth, since=since), depth)

    def close(self, updates, interval):
        """Run an interval with new updates [data, times.., diff]; return what is given, by the rounds it is given in."""
        at = self.width + self.ni
        new = defaultdict(list)
        for update in updates:
            new[tuple(update[at : at + self.depth])].append(update)
        given = {}
        for rounds in sorted({*self.operator.begin(interval), *new}):
            here = interval.at(rounds)
            delta = Delta(rows_of(new[rounds], at + self.depth + 1))
            found = self.operator.step([delta], here)
            assert not found.distinct or len(found.updates) == len(totals(found.updates.tolist()))
            given[rounds] = found.updates.tolist()
            assert kernels.is_consolidated(self.operator.batch)
            if self.depth:
                self.operator.seal(here)
        self.operator.close(interval)
        if not self.depth:
            self.operator.seal(interval)
        return given

    def restart(self, since):
        """Write all that is kept to one batch, compacted, and go on from it."""
        old = self.operator.trace
        whole = kernels.merge(old.matrices()) if old.batches else np.empty((0, 0), np.int64)
        batches = []
        if len(whole):
            batches = [MemoryBatch(kernels.advance(whole, since.as_time(), old.nt), since, since)]
        self.operator = Delay(Trace(old.nk, old.nv, old.nt, since=since, batches=batches), self.depth)


@pytest.mark.parametrize(("ni", "depth"), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)])
@given(data=st.data())
def test_updates_leave_in_the_interval_of_their_time(ni, depth, data):
    """Not before, not after, none lost, in the rounds that they have; across restarts, too."""
    chain = data.draw(cuts(ni))
    times = [time for time in itertools.product(range(5), repeat=ni) if chain[0].less_equal(time)]
    driver = Driver(2, ni, depth, chain[0])
    fed = []
    left = []
    for lower, upper in itertools.pairwise(chain):
        possible = [time for time in times if lower.less_equal(time)]
        update = st.tuples(
            st.integers(0, 1), st.just(5), st.sampled_from(possible or [(9,) * ni]),
            st.tuples(*[st.integers(0, 2)] * depth), st.sampled_from([-1, 1, 2]),
        ).map(lambda u: [u[0], u[1], *u[2], *u[3], u[4]])  # fmt: skip
        new = data.draw(st.lists(update, max_size=6))
        fed += new
        given = driver.close(new, Interval(lower, upper))
        for rounds, found in given.items():
            assert all(tuple(row[2 + ni : -1]) == rounds for row in found)
            left += found
        closed = [row for row in fed if not upper.less_equal(tuple(row[2 : 2 + ni]))]
        assert totals(left) == totals(closed)
        if upper and data.draw(st.booleans()):
            driver.restart(upper)
    waiting = [row for matrix in driver.operator.trace.matrices() for row in matrix.tolist()]
    assert totals([*row[: ni + depth + 2], row[-1]] for row in waiting) == {}


def test_what_has_left_is_forgotten():
    """A trickle through the operator does not pile up in its trace."""
    driver = Driver(1, 1, 0, Frontier([(0,)]))
    for time in range(500):
        interval = Interval(Frontier([(time,)]), Frontier([(time + 1,)]))
        given = driver.close([[7, time + 3, 1], [8, time, 1]], interval)
        assert sorted(given[()]) == ([[7, time, 1]] if time > 2 else []) + [[8, time, 1]]
        assert driver.operator.trace.rows < 40


def test_nothing_to_do_costs_nothing():
    """What comes in time passes through as it is."""
    operator = Delay(Trace(1, 1, 1, since=Frontier([(0,)])))
    interval = Interval(Frontier([(0,)]), Frontier([(3,)]))
    assert not operator.begin(interval)
    delta = Delta(np.array([[7, 1, 1]]), distinct=True)
    found = operator.step([delta], interval)
    assert found.updates is delta.updates
    assert found.distinct
    operator.seal(interval)
    assert not operator.trace.batches


def test_a_round_that_was_not_stepped_is_noticed():
    """Updates would be lost."""
    driver = Driver(1, 1, 1, Frontier([(0,)]))
    driver.close([[7, 5, 2, 1]], Interval(Frontier([(0,)]), Frontier([(1,)])))
    interval = Interval(Frontier([(1,)]), Frontier([(6,)]))
    assert list(driver.operator.begin(interval)) == [(2,)]
    with pytest.raises(AssertionError, match="not been stepped"):
        driver.operator.close(interval)


@pytest.mark.parametrize(("lower", "upper"), [(True, True), (True, False), (False, True)])
@given(chain=cuts(1), data=st.data())
def test_a_temporal_filter_is_what_it_says(lower, upper, chain, data):
    """At every time a record counts as often as it came at times up to then, if its bounds hold then."""
    operator = Shift(1, lower=lower, upper=upper)
    driver = Driver(1, 1, 0, chain[0])
    fed = []
    left = []
    for start, end in itertools.pairwise(chain):
        low = max(start.elements[0][0], 0)
        high = end.elements[0][0] if end else 6
        drawn = st.tuples(*[st.integers(-1, 6)] * (lower + upper))
        update = st.tuples(st.integers(0, 1), drawn, st.integers(low, max(high - 1, low)), st.sampled_from([-1, 1, 2]))
        new = data.draw(st.lists(update, max_size=6)) if high > low else []
        fed += new
        interval = Interval(start, end)
        delta = rows_of([(record, *bounds, time, diff) for record, bounds, time, diff in new], 3 + lower + upper)
        shifted = operator.step([Delta(delta)], interval).updates
        left += driver.close(shifted.tolist(), interval).get((), [])
        assert not any(end.less_equal((row[1],)) for row in left)
        for now in range(-1, 9):
            if end.less_equal((now,)):
                break
            expected = Counter()
            for record, bounds, time, diff in fed:
                if time <= now and (not lower or bounds[0] <= now) and (not upper or now < bounds[-1]):
                    expected[record] += diff
            seen = Counter()
            for record, time, diff in left:
                if time <= now:
                    seen[record] += diff
            assert {k: v for k, v in seen.items() if v} == {k: v for k, v in expected.items() if v}


def test_records_enter_a_loop_at_their_round():
    """At the later one of its own and the one they have."""
    delta = Delta(np.array([[7, 3, 9, 0, 1], [8, -2, 9, 0, 1], [9, 1, 9, 4, -1]]))
    found = EnterAt(2).step([delta], Interval(ALL, ALL)).updates
    assert found.tolist() == [[7, 9, 3, 1], [8, 9, 0, 1], [9, 9, 4, -1]]


SOURCE = Layout({"x": Type("int64"), "s": Type("string")})
RESULT = Layout({"y": Type("int64")})


def python_shift(logic, nt):
    """Return the operator and the input: three records at different times and diffs."""
    pool = Pool(SECRET)
    names = pool.intern_bytes([b"a", b"b", b"c"], Type("string"))
    rows = [
        [x, name, *([t] * nt), d]
        for x, name, t, d in zip((1, 2, 3), names.tolist(), (5, 0, 2), (1, -1, 3), strict=True)
    ]
    return PythonShift(logic, SOURCE, RESULT, pool, nt), Delta(np.array(rows))


def test_a_function_of_records_gives_records_times_and_diffs():
    """Several for a record, none for another; times of a product; rounds stay."""

    def logic(frame):
        assert frame.rows() == [(1, "a"), (2, "b"), (3, "c")]
        times = np.array([[LEAST, LEAST], [1, 9], [3, 1]])
        return pl.DataFrame({"y": [10, 30, 31]}), np.array([0, 2, 2]), np.array([1, -2, 1]), times

    operator, delta = python_shift(logic, 3)
    found = operator.step([delta], Interval(ALL, ALL)).updates
    assert found.tolist() == [[10, 5, 5, 5, 1], [30, 2, 9, 2, -6], [31, 3, 2, 2, 3]]


def test_a_function_of_records_may_leave_times_and_diffs_alone():
    """Then it is a map."""
    operator, delta = python_shift(lambda frame: (frame.select(y=pl.col("x") * 2), None, None, None), 1)
    assert operator.step([delta], Interval(ALL, ALL)).updates.tolist() == [[2, 5, 1], [4, 0, -1], [6, 2, 3]]
    nothing = operator.step([Delta(delta.updates[:0])], Interval(ALL, ALL))
    assert nothing.updates.shape == (0, 3)


def test_a_diff_out_of_range_is_refused():
    """The message says whose diff it was."""
    operator, delta = python_shift(lambda frame: (frame.select(y="x"), None, np.full(3, 2**62), None), 1)
    with pytest.raises(DiffOverflow, match="join_function"):
        operator.step([delta], Interval(ALL, ALL))
    weights = np.array([2**63 - 1, 0, 1])
    operator, delta = python_shift(lambda frame: (frame.select(y="x"), None, weights, None), 1)
    assert operator.step([delta], Interval(ALL, ALL)).updates.tolist() == [[1, 5, 2**63 - 1], [3, 2, 3]]
