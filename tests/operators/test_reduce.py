"""The reduction against its definition, over random updates of a tiny domain: every aggregate, in one to three coordinates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels import locate
from ddcli.engine.lanes import NULL
from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.operators.reduce_aggregates import (
    Count,
    CountDistinct,
    ExactSum,
    First,
    FloatMean,
    FloatSum,
    Gather,
    LaneRun,
    TopRows,
    maximum,
    minimum,
)
from ddcli.engine.operators.reduce_instances import Due
from tests.draws import many
from tests.operators.support import FakeTrace, lattice_join, matrix, run
from tests.reference.model import less_equal

# Each of many aggregates draws a share of the cases; `HYPOTHESIS_PROFILE=search` draws more.

# Values: x nullable in band (lane 0), y nullable with a flag (lanes 1, 2).
X = LaneRun(0, null="in_band")
Y = LaneRun(1, 2, null="flag")
XS = [-1, 0, 2, NULL]
YS = [(0, -3), (0, 5), (1, 0)]


def twos(gathered):
    """Evaluate `squares` by numpy, as a caller's function would."""
    rows = gathered.rows
    assert len(gathered.keys) == len(gathered.times)
    assert (rows[:, -1] != 0).all()
    order = np.lexsort(rows[:, -2::-1].T)
    assert (order == np.arange(len(rows))).all()
    at, where = np.unique(rows[:, 0], return_inverse=True)
    out = np.zeros((len(at), 3), np.int64)
    out[:, 0], out[:, 2] = at, 1
    np.add.at(out[:, 1], where, (rows[:, 1] % 7) * rows[:, -1] ** 2)
    return out


AGGREGATES = {
    "count": [Count()],
    "nothing": [],
    "sums": [Count(X), ExactSum(X), ExactSum(Y, total="wide"), Count(Y)],
    "min": [minimum(X)],
    "max": [maximum(X)],
    "min of the second": [minimum(Y)],
    "max of the second": [maximum(Y)],
    "min and max": [minimum(X), maximum(X)],
    "first": [First((0,), (1, 2))],
    "last": [First((1, 2), (0,), skip=Y, nothing=(NULL,), last=True)],
    "required min": [First((0,), (0,))],
    "top": [TopRows(2, (0,), (0, 1, 2))],
    "top, last, of the second": [TopRows(3, (1, 2), (0,), last=True)],
    "top, ties by ranks": [TopRows(2, (0,), (0, 1, 2), hashed=(2,), ranks=lambda lanes: ~lanes)],
    "top, last, ties by equal ranks": [
        TopRows(2, (1,), (0, 2), last=True, hashed=(0, 2), ranks=lambda lanes: lanes & 1)
    ],
    "top, ties of all": [TopRows(3, (), (0, 1, 2), hashed=(0,), ranks=lambda lanes: ~lanes)],
    "distinct": [CountDistinct(X), CountDistinct(Y)],
    "float": [FloatSum(X), Count(X), FloatMean(X)],
    "gather": [Gather(1, twos)],
    "mixed": [Count(), Gather(1, twos), maximum(Y), CountDistinct(Y), FloatSum(X), ExactSum(X), First((0,), (0,))],
}

values = st.tuples(st.sampled_from(XS), st.sampled_from(YS)).map(lambda v: (v[0], *v[1]))
diffs = st.sampled_from([-2, -1, 1, 2])


def batches_at(times, most=10):
    """Draw one batch of updates at some of these times."""
    update = st.tuples(st.tuples(st.sampled_from([-5, 3]), values), st.sampled_from(times), diffs)
    return st.lists(update.map(lambda u: ((u[0][0], *u[0][1]), u[1], u[2])), max_size=most)


line = st.tuples(*(batches_at([(3 * j,), (3 * j + 1,), (3 * j + 2,)]) for j in range(3)))


def reduction_of(name, nt, **options):
    return Reduce(1, 3, nt, AGGREGATES[name], **options)


@pytest.mark.parametrize("name", AGGREGATES)
@given(batches=line, cuts=st.randoms(use_true_random=False), chunk=st.sampled_from([1, 5, 20, 10**6]))
@settings(max_examples=many(12))
def test_total_order(name, batches, cuts, chunk):
    run(reduction_of(name, 1, chunk=chunk), batches, cut=lambda _: cuts.randrange(3))


def numbered(gathered):
    """Give each row its number in its group, rows of a positive count only."""
    rows = gathered.rows[gathered.rows[:, -1] > 0]
    first = np.searchsorted(rows[:, 0], rows[:, 0])
    return np.column_stack([rows[:, :-1], np.arange(len(rows)) - first, rows[:, -1]])


@given(batches=line, later=st.booleans())
@settings(max_examples=many(60))
def test_a_group_is_evaluated_some_instances_after_the_other(batches, later):
    """With the same updates as all at once, also where traces hold later times than the updates have."""
    if later:
        batches = batches[::-1]
    inputs, outputs = [np.empty((0, 6), np.int64)], [[np.empty((0, 7), np.int64)] for _ in range(3)]
    for batch in batches:
        rows = [(record[0], *record[1:], *time, diff) for record, time, diff in batch]
        delta = kernels.consolidate(np.array(rows, np.int64).reshape(-1, 6))
        found = []
        for chunk, output in zip((1, 7, 10**6), outputs, strict=True):
            reduce = Reduce(1, 3, 1, [Gather(4, numbered, single=False)], chunk=chunk)
            found.append(
                reduce.step(delta, output=Batches(output), inputs=Batches(inputs), due=Due(ahead=later)).updates
            )
            output.append(found[-1])
        assert found[0].tolist() == found[1].tolist() == found[2].tolist()
        inputs.append(delta)


class Batches:
    """A trace of these batches."""

    def __init__(self, batches):
        self.batches = list(batches)

    def batches_for(self, keys):
        return self.batches


@pytest.mark.parametrize("name", AGGREGATES)
@given(batches=line, data=st.data())
@settings(max_examples=many(12))
def test_times_after_the_batch(name, batches, data):
    """A working trace of a loop holds times after those of a later round's updates: they are interesting too."""
    shuffled = data.draw(st.permutations([update for batch in batches for update in batch]))
    third = len(shuffled) // 3 + 1
    run(reduction_of(name, 1), [shuffled[i : i + third] for i in range(0, len(shuffled), third)], ahead=True)


def downsets(nt, draw, steps):
    """Draw a growing chain of closed sets of times in {0, 1, 2}^nt, the last one everything, with their uppers."""
    grid = list(itertools.product(range(3), repeat=nt))
    chain, closed = [], set()
    for step in range(steps):
        corners = grid if step == steps - 1 else draw(st.lists(st.sampled_from(grid), min_size=1, max_size=2))
        closed = closed | {t for t in grid if any(less_equal(t, corner) for corner in corners)}
        beyond = [t for t in itertools.product(range(4), repeat=nt) if t not in closed]
        upper = [t for t in beyond if not any(s != t and less_equal(s, t) for s in beyond)]
        chain.append((closed, upper))
    return grid, chain


@pytest.mark.parametrize("nt", [2, 3])
@pytest.mark.parametrize("name", AGGREGATES)
@given(data=st.data(), compacting=st.booleans(), cuts=st.randoms(use_true_random=False))
@settings(max_examples=many(12))
def test_product_order(name, nt, data, compacting, cuts):
    """Times are a product, batches end at any frontier, history is compacted: pending times come back as seeds."""
    grid, chain = downsets(nt, data.draw, 3)
    batches, past = [], set()
    for closed, _ in chain:
        new = sorted(closed - past)
        batches.append(data.draw(batches_at(new, most=8)) if new else [])
        past = closed

    def advance(j, t):
        """Return the meet over the frontier of the joins with t: no reader at or after the frontier can tell."""
        _, upper = chain[j]
        joined = [lattice_join(t, f) for f in upper]
        return tuple(map(min, *joined)) if len(joined) > 1 else joined[0]

    run(
        reduction_of(name, nt, chunk=data.draw(st.sampled_from([1, 10**6]))),
        batches,
        frontiers=[((lambda t, closed=closed: t in closed), upper) for closed, upper in chain],
        cut=lambda _: cuts.randrange(3),
        compact=advance if compacting else None,
        probe=grid,
    )


def test_nothing_new_gives_nothing():
    for aggregates in AGGREGATES.values():
        reduction = Reduce(1, 3, 1, aggregates)
        result = reduction.step(matrix([], 6), FakeTrace(1), FakeTrace(1))
        assert result.updates.shape == (0, 1 + reduction.width + 2)


lanes = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), NULL]), st.integers(-(2**63), NULL))


@given(
    rows=st.lists(st.tuples(lanes, st.integers(0, 2)), max_size=200),
    skew=st.integers(0, 20),
    others=st.lists(st.tuples(lanes, st.integers(0, 2)), max_size=20),
)
def test_rows_of_keys_are_found_however_keys_are_spread(rows, skew, others):
    """Finding rows guesses that keys are spread evenly; they need not be."""
    rows = sorted((a >> skew, b) for a, b in rows)
    keys = sorted({*others, *rows[::7]})
    bounds, found = locate(
        np.array(keys, np.int64).reshape(-1, 2), [np.array([(*r, 1) for r in rows], np.int64).reshape(-1, 3)]
    )
    expected = [[sum(r < key for r in rows), sum(r <= key for r in rows)] for key in keys]
    assert bounds.tolist() == expected
    assert found == sum(stop - start for start, stop in expected)
