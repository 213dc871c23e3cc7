"""The reduction against its definition: recompute every group at every time from all updates so far."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine.columns import NULL, float_lanes, float_values
from ddcli.engine.kernels.errors import DiffOverflow
from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.operators.reduce_aggregates import (
    Column,
    Count,
    CountDistinct,
    First,
    FloatSum,
    Gather,
    Sum,
    TopK,
    maximum,
    minimum,
)
from ddcli.engine.operators.reduce_evaluate import SumOverflow

LEAST, GREATEST = -(2**63), 2**63 - 1
# Each of many aggregates draws a share of the cases; `HYPOTHESIS_PROFILE=search` draws more.
FEW = max(settings.default.max_examples // 8, 10)

# ---------------------------------------------------------------------------------------------------------------------
# The definition.


def less_equal(s, t):
    return all(a <= b for a, b in zip(s, t, strict=True))


def lattice_join(s, t):
    return tuple(map(max, s, t))


def accumulate(updates, t):
    """Return {record: count} at t, of updates (record, time, diff)."""
    counts = Counter()
    for record, s, diff in updates:
        if less_equal(s, t):
            counts[record] += diff
    return {record: count for record, count in counts.items() if count}


def is_null(column, value):
    if column is None or column.null == "none":
        return False
    return value[column.lane] == (1 if column.null == "flag" else NULL)


def number(lanes, kind):
    if kind == "signed":
        return lanes[0]
    if kind == "unsigned":
        return lanes[0] + 2**63
    return (lanes[0] << 64) + lanes[1] + 2**63


def lanes_of(value, kind):
    if kind == "signed":
        return (value,)
    if kind == "unsigned":
        return (value - 2**63,)
    return (value >> 64, (value & (2**64 - 1)) - 2**63)


def lane_float(lane):
    return float(float_values(np.array([lane], np.int64))[0])


def float_lane(value):
    return int(float_lanes(np.array([value], np.float64))[0])


def exact_float_sum(pairs):
    """Return the float nearest to the sum of value * count, from fractions."""
    special = Counter()
    total = Fraction(0)
    for value, count in pairs:
        if math.isnan(value):
            special["nan"] += count
        elif math.isinf(value):
            special[value] += count
        else:
            total += Fraction(value) * count
    up = special[math.inf] > 0 or special[-math.inf] < 0
    down = special[math.inf] < 0 or special[-math.inf] > 0
    if special["nan"] or (up and down):
        return math.nan
    if up or down:
        return math.inf if up else -math.inf
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def in_order(aggregate, group):
    def rank(value):
        rest = [lane for at, lane in enumerate(value) if at not in aggregate.order]
        return [value[lane] for lane in aggregate.order] + rest

    candidates = [value for value, count in group.items() if count > 0 and not is_null(aggregate.skip, value)]
    return sorted(candidates, key=rank, reverse=aggregate.last)


def squares(group):
    """Return a number that depends on all values and counts: the meaning of the `Gather` of these tests."""
    return sum((value[0] % 7) * count * count for value, count in group.items())


def lanes_for(aggregate, group):
    """Return one aggregate's lanes of a group, None for no row."""
    match aggregate:
        case Count(column):
            return (sum(count for value, count in group.items() if not is_null(column, value)),)
        case Sum(column, kind, total):
            width = 2 if kind == "wide" else 1
            rows = [(v[column.number : column.number + width], c) for v, c in group.items() if not is_null(column, v)]
            return lanes_of(sum(number(lanes, kind) * count for lanes, count in rows), total)
        case FloatSum(column):
            pairs = [(lane_float(v[column.number]), c) for v, c in group.items() if not is_null(column, v)]
            return (float_lane(exact_float_sum(pairs)),)
        case CountDistinct(column):
            counts = Counter()
            for value, count in group.items():
                if not is_null(column, value):
                    counts[tuple(value[lane] for lane in column.lanes)] += count
            return (sum(count != 0 for count in counts.values()),)
        case First():
            best = in_order(aggregate, group)
            return tuple(best[0][lane] for lane in aggregate.take) if best else aggregate.nothing
        case Gather():
            return (squares(group),)
    raise AssertionError


def want(reduction, group):
    """Return {output lanes: count} for the accumulated records {value: count} of one key."""
    if reduction.accumulable:
        lanes = [lanes_for(aggregate, group) for aggregate in (Count(), *reduction.aggregates)]
        kinds = ["signed", *(a.total if isinstance(a, Sum) else "signed" for a in reduction.aggregates)]
        if not any(number(part, kind) for part, kind in zip(lanes, kinds, strict=True)):
            return {}
        return {sum(lanes, ()): 1}
    if not group:
        return {}
    if isinstance(reduction.aggregates[0], TopK):
        aggregate, out = reduction.aggregates[0], Counter()
        room = aggregate.k
        for value in in_order(aggregate, group):
            count = min(room, group[value])
            out[tuple(value[lane] for lane in aggregate.take)] += count
            room -= count
        return {lanes: count for lanes, count in out.items() if count}
    lanes = [lanes_for(aggregate, group) for aggregate in reduction.aggregates]
    return {} if None in lanes else {sum(lanes, ()): 1}


# ---------------------------------------------------------------------------------------------------------------------
# Driving an operator.


def matrix(updates, width):
    """Return the sorted, consolidated matrix of updates (record, time, diff) with `width` lanes."""
    counts = Counter()
    for record, t, diff in updates:
        counts[(*record, *t)] += diff
    rows = sorted((*row, diff) for row, diff in counts.items() if diff)
    return np.array(rows, np.int64).reshape(len(rows), width)


class FakeTrace:
    """A trace that may be cut into any batches and compacted at any time."""

    def __init__(self, width):
        self.updates = []
        self.batches = []
        self.width = width

    def batches_for(self, keys):
        assert [tuple(key) for key in keys.tolist()] == sorted({tuple(key) for key in keys.tolist()})
        return list(self.batches)

    def insert(self, updates, cut=None):
        """Take updates (record, time, diff) in; `cut` draws how the whole is cut into batches, None keeps one a call."""
        self.updates += updates
        if cut is None:
            self.batches.append(matrix(updates, self.width))
            return
        parts = defaultdict(list)
        for update in self.updates:
            parts[cut(update)].append(update)
        self.batches = [matrix(part, self.width) for _, part in sorted(parts.items())]


def updates_of(rows, data, nt):
    return [(tuple(row[:data]), tuple(row[data : data + nt]), row[-1]) for row in rows.tolist()]


def check_form(rows):
    """Assert that a matrix is sorted, consolidated, without zero diffs."""
    assert rows.flags.c_contiguous
    assert rows.dtype == np.int64
    lanes = [tuple(row[:-1]) for row in rows.tolist()]
    assert lanes == sorted(set(lanes))
    assert (rows[:, -1] != 0).all()


def run(reduction, batches, frontiers=None, cut=None, compact=None, probe=None, ahead=False):
    """Push batches of updates ((key, value), time, diff) through a reduction and check all it says at all times.

    `frontiers[j]` is (is a time closed after batch j, its upper as an antichain). Returns the output's updates.
    """
    nk, nv, nt = reduction.nk, reduction.nv, reduction.nt
    inputs, output = FakeTrace(nk + nv + nt + 1), FakeTrace(nk + reduction.width + nt + 1)
    seen, said, waiting = [], [], []
    for j, batch in enumerate(batches):
        closed, upper = frontiers[j] if frontiers else (lambda _: True, None)
        due = sorted(pair for pair in waiting if closed(pair[nk:]))
        waiting = [pair for pair in waiting if not closed(pair[nk:])]
        delta = matrix(batch, nk + nv + nt + 1)
        seeds = np.array(due, np.int64).reshape(len(due), nk + nt)
        result = reduction.step(
            delta, output, None if reduction.accumulable else inputs, seeds=seeds, upper=upper, ahead=ahead
        )
        check_form(result.updates)
        fresh = updates_of(result.updates, nk + reduction.width, nt)
        for _, t, _ in fresh:
            assert closed(t)
            if frontiers and j:
                assert not frontiers[j - 1][0](t), "an update at a time that was closed before"
        waiting += map(tuple, result.pending.tolist())
        assert not any(closed(pair[nk:]) for pair in waiting)
        seen += batch
        said += fresh
        times = {t for _, t, _ in seen} | {t for _, t, _ in said} if probe is None else probe
        for t in [t for t in times if closed(t)]:
            groups = defaultdict(dict)
            for record, count in accumulate(seen, t).items():
                groups[record[:nk]][record[nk:]] = count
            expected = {
                (*key, *lanes): count
                for key, group in groups.items()
                for lanes, count in want(reduction, group).items()
            }
            assert accumulate(said, t) == expected, f"at {t}, after batch {j}"
        inputs.insert(batch, cut)
        output.insert(fresh, cut)
        if compact:
            for trace in (inputs, output):
                trace.updates = [(record, compact(j, t), diff) for record, t, diff in trace.updates]
                trace.batches = [matrix(trace.updates, trace.width)]
    assert not waiting
    return said


# Values: x nullable in band (lane 0), y nullable with a flag (lanes 1, 2).
X = Column(0, null="in_band")
Y = Column(1, 2, null="flag")
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
    "sums": [Count(X), Sum(X), Sum(Y, total="wide"), Count(Y)],
    "min": [minimum(X)],
    "max": [maximum(X)],
    "min of the second": [minimum(Y)],
    "max of the second": [maximum(Y)],
    "min and max": [minimum(X), maximum(X)],
    "first": [First((0,), (1, 2))],
    "last": [First((1, 2), (0,), skip=Y, nothing=(NULL,), last=True)],
    "required min": [First((0,), (0,))],
    "top": [TopK(2, (0,), (0, 1, 2))],
    "top, last, of the second": [TopK(3, (1, 2), (0,), last=True)],
    "distinct": [CountDistinct(X), CountDistinct(Y)],
    "float": [FloatSum(X), Count(X)],
    "gather": [Gather(1, twos)],
    "mixed": [Count(), Gather(1, twos), maximum(Y), CountDistinct(Y), FloatSum(X), Sum(X), First((0,), (0,))],
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
@given(batches=line, cuts=st.randoms(use_true_random=False), chunk=st.sampled_from([1, 5, 10**6]))
@settings(max_examples=FEW)
def test_total_order(name, batches, cuts, chunk):
    run(reduction_of(name, 1, chunk=chunk), batches, cut=lambda _: cuts.randrange(3))


@pytest.mark.parametrize("name", AGGREGATES)
@given(batches=line, data=st.data())
@settings(max_examples=FEW)
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
@settings(max_examples=FEW)
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


# ---------------------------------------------------------------------------------------------------------------------
# Known traps.


def test_three_incomparable_times_meet_in_a_triple_join():
    """From three coordinates on, the join of three times may be no join of two."""
    reduction = Reduce(0, 1, 3, [minimum(Column(0))])
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
    reduction = Reduce(1, 1, 2, [CountDistinct(Column(0))])
    common = [((1, 1), (1, 0), 1), ((1, 2), (0, 0), 1), ((1, 2), (0, 1), -1), ((1, 2), (1, 0), -1), ((2, 1), (0, 0), 1)]
    with_last = run(reduction, [[*first, (a, (1, 1), 1), (b, (1, 1), 2)]], probe=grid)
    assert sorted(with_last) == sorted([*common, ((1, 2), (1, 1), 1)])
    without = run(reduction, [first], probe=grid)
    assert sorted(without) == sorted([*common, ((1, 1), (1, 1), -1), ((1, 2), (1, 1), 2)])


def test_an_update_that_cancels_a_compacted_one_keeps_its_time():
    """History was moved onto the new update's time: together they vanish, but the time is interesting all the same."""
    reduction = Reduce(1, 1, 2, [minimum(Column(0))])
    inputs, output = FakeTrace(5), FakeTrace(5)
    inputs.insert([((1, 5), (2, 0), 1), ((1, 7), (0, 0), 1)])
    output.insert([((1, 7), (0, 0), 1), ((1, 7), (2, 0), -1), ((1, 5), (2, 0), 1)])
    result = reduction.step(matrix([((1, 5), (2, 0), -1)], 5), output, inputs)
    assert updates_of(result.updates, 2, 2) == [((1, 5), (2, 0), -1), ((1, 7), (2, 0), 1)]


def test_a_change_of_an_early_round_is_scheduled_for_the_later_rounds_of_history():
    """Epoch 0 has history at rounds 0, 4, 7 and 9; epoch 1's change at round 3 must be evaluated at 4, 7 and 9 as well."""
    reduction = Reduce(0, 1, 2, [minimum(Column(0))])
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
    reduction = Reduce(1, 1, 1, [minimum(Column(0))])
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
    run(Reduce(0, 1, 1, [Count(), Sum(Column(0))]), [[((5,), (0,), 1)], [((6,), (1,), 2), ((5,), (2,), -1)]])
    run(Reduce(0, 1, 1, [minimum(Column(0))]), [[((5,), (0,), 1)], [((4,), (1,), 2), ((4,), (2,), -2)]])


def test_nothing_new_gives_nothing():
    for aggregates in AGGREGATES.values():
        reduction = Reduce(1, 3, 1, aggregates)
        result = reduction.step(matrix([], 6), FakeTrace(1), FakeTrace(1))
        assert result.updates.shape == (0, 1 + reduction.width + 2)


def test_many_times_of_one_key_at_once():
    """A batch with thousands of times for one key is one walk over its values, not one for each time."""
    rng = np.random.default_rng(5)
    batch = [((1, int(x)), (int(t),), 1) for t, x in enumerate(rng.integers(0, 10**6, 3000))]
    batch += [(record, (t[0] + 3000,), -1) for record, t, _ in batch]
    reduction = Reduce(1, 1, 1, [minimum(Column(0))])
    inputs, output = FakeTrace(4), FakeTrace(4)
    began = time.perf_counter()
    result = reduction.step(matrix(batch, 4), output, inputs)
    assert time.perf_counter() - began < 10
    best, now = [], {}
    for record, _, diff in batch:
        now[record[1]] = now.get(record[1], 0) + diff
        least = min((x for x, count in now.items() if count > 0), default=None)
        if not best or best[-1] != least:
            best.append(least)
    expected = [x for x in best if x is not None]
    assert [row[1] for row in sorted(result.updates.tolist(), key=lambda row: row[2]) if row[3] > 0] == expected


# ---------------------------------------------------------------------------------------------------------------------
# Sums.


@given(
    kinds=st.sampled_from(
        [("signed", "signed"), ("unsigned", "unsigned"), ("wide", "wide"), ("signed", "wide"), ("unsigned", "wide")]
    ),
    data=st.data(),
)
def test_sums_at_the_ends_of_their_range(kinds, data):
    """Sums are exact or an error: judged at each time, whatever happens between."""
    kind, total = kinds
    least, greatest = {"signed": (LEAST, GREATEST), "unsigned": (0, 2**64 - 1), "wide": (1 - 10**38, 10**38 - 1)}[kind]
    low, high = {"signed": (LEAST, GREATEST), "unsigned": (0, 2**64 - 1), "wide": (1 - 10**38, 10**38 - 1)}[total]
    interesting = st.sampled_from([least, least + 1, 0, 1, greatest - 1, greatest, greatest // 2 + 1])
    numbers = st.lists(st.one_of(interesting, st.integers(least, greatest)), min_size=1, max_size=4)
    counts = st.sampled_from([-3, -1, 1, 2, 2**31, -(2**31), 2**31 - 1, 2**40 + 7, 2**62, -(2**63), 2**63 - 1])
    width = 2 if kind == "wide" else 1
    batch, totals, records, now, size = [], [], [], 0, 0
    for t, value in enumerate(data.draw(numbers)):
        count = data.draw(counts)
        batch.append(((7, *lanes_of(value, kind)), (t,), count))
        now, size = now + value * count, size + count
        totals.append(now)
        records.append(size)
    reduction = Reduce(1, width, 1, [Sum(Column(0, width), kind, total)])
    if all(low <= s <= high for s in totals) and all(LEAST <= s <= GREATEST for s in records):
        run(reduction, [batch])
        run(reduction, [[update] for update in batch])
    else:
        with pytest.raises(SumOverflow) as caught:
            run(reduction, [batch])
        assert caught.value.key == (7,)


def test_sum_overflow_between_is_no_error():
    """Large values and their retraction at one time: no time sees the overflow."""
    batch = [((1, GREATEST), (0,), 2), ((1, GREATEST - 1), (0,), -1), ((1, 7), (0,), -1)]
    said = run(Reduce(1, 1, 1, [Sum(Column(0))]), [[*batch, ((1, 3), (0,), -1)]])
    assert said == [((1, -1, GREATEST - 9), (0,), 1)]


floats = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.1, -0.1, 1e16, 1.0, -1e16, 1e308, 1.7976931348623157e308, 5e-324, 2.0**-1022, 2.0**53, 1.5]),
)


@given(rows=st.lists(st.tuples(floats, diffs, st.integers(0, 3)), max_size=12), cut=st.integers(0, 4))
def test_float_sums_are_rounded_once(rows, cut):
    batch = [((1, float_lane(x)), (t,), diff) for x, diff, t in rows]
    early, late = [u for u in batch if u[1][0] < cut], [u for u in batch if u[1][0] >= cut]
    run(Reduce(1, 1, 1, [FloatSum(Column(0))]), [early, late])


@given(rows=st.lists(st.floats(-1e300, 1e300), max_size=40))
def test_float_sums_equal_fsum(rows):
    batch = matrix([((1, float_lane(x)), (0,), 1) for x in rows], 4)
    result = Reduce(1, 1, 1, [FloatSum(Column(0))]).step(batch, FakeTrace(4), FakeTrace(4))
    if len(batch):
        assert lane_float(result.updates[0, 1]) == math.fsum(rows)


@given(value=floats, diff=st.sampled_from([2**31, -(2**31), 2**40 + 3, 2**63 - 1, -(2**63)]))
def test_float_sums_take_large_diffs(value, diff):
    run(Reduce(1, 1, 1, [FloatSum(Column(0))]), [[((1, float_lane(value)), (0,), diff)]])


def test_accumulated_multiplicity_overflow():
    batch = [((1, 5), (0,), 2**62), ((1, 5), (1,), 2**62)]
    for aggregate in (minimum(Column(0)), TopK(3, (0,), (0,)), CountDistinct(Column(0))):
        with pytest.raises(DiffOverflow):
            run(
                Reduce(1, 1, 1, [aggregate]),
                [batch] if not isinstance(aggregate, First) else [[((1, 5), (0,), -(2**63))], [((1, 5), (1,), -1)]],
            )
    with pytest.raises(SumOverflow):
        run(Reduce(1, 1, 1, [Count()]), [batch])


# ---------------------------------------------------------------------------------------------------------------------
# Size.


@pytest.mark.parametrize("aggregate", [minimum(Column(0)), maximum(Column(0, null="in_band")), TopK(3, (0,), (0,))])
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
        began = time.perf_counter()
        result = reduction.step(delta, output, inputs)
        took.append(time.perf_counter() - began)
    assert len(result.updates) == 2
    assert min(took) < 0.002
