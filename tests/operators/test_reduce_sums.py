"""Sums: exact, judged at each time, floats rounded once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.jit.registry import DiffOverflow
from ddcli.engine.kernels.reduce_rows import number_groups
from ddcli.engine.kernels.reduce_sums import BLOCK
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.engine.operators import reduce
from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.operators.reduce_aggregates import (
    Count,
    CountDistinct,
    ExactSum,
    FloatMean,
    FloatSum,
    LaneRun,
    SumOverflow,
    TopRows,
    minimum,
)
from ddcli.engine.operators.reduce_instances import Due
from tests.draws import chance, many
from tests.operators.support import FakeTrace, float_lane, lane_float, lanes_of, matrix, run

LEAST, GREATEST = -(2**63), 2**63 - 1
diffs = st.sampled_from([-2, -1, 1, 2])


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
    reduction = Reduce(1, width, 1, [ExactSum(LaneRun(0, width), kind, total)])
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
    said = run(Reduce(1, 1, 1, [ExactSum(LaneRun(0))]), [[*batch, ((1, 3), (0,), -1)]])
    assert said == [((1, -1, GREATEST - 9), (0,), 1)]


floats = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.1, -0.1, 1e16, 1.0, -1e16, 1e308, 1.7976931348623157e308, 5e-324, 2.0**-1022, 2.0**53, 1.5]),
)


@given(rows=st.lists(st.tuples(floats, diffs, st.integers(0, 3)), max_size=12), cut=st.integers(0, 4))
def test_float_sums_are_rounded_once(rows, cut):
    batch = [((1, float_lane(x)), (t,), diff) for x, diff, t in rows]
    early, late = [u for u in batch if u[1][0] < cut], [u for u in batch if u[1][0] >= cut]
    run(Reduce(1, 1, 1, [FloatSum(LaneRun(0)), FloatMean(LaneRun(0))]), [early, late])


@given(rows=st.lists(st.floats(-1e300, 1e300), max_size=40))
def test_float_sums_equal_fsum(rows):
    batch = matrix([((1, float_lane(x)), (0,), 1) for x in rows], 4)
    result = Reduce(1, 1, 1, [FloatSum(LaneRun(0))]).step(batch, FakeTrace(4), FakeTrace(4))
    if len(batch):
        assert lane_float(result.updates[0, 1]) == math.fsum(rows)


@given(value=floats, diff=st.sampled_from([2**31, -(2**31), 2**40 + 3, 2**63 - 1, -(2**63)]))
def test_float_sums_take_large_diffs(value, diff):
    run(Reduce(1, 1, 1, [FloatSum(LaneRun(0))]), [[((1, float_lane(value)), (0,), diff)]])


def test_accumulated_multiplicity_overflow():
    """A record counted more often than 64 bits hold is an error wherever the count matters."""
    more = [((1, 5), (0,), 2**62), ((1, 5), (1,), 2**62)]
    for aggregate in (TopRows(2**62 + 1, (0,), (0,)), CountDistinct(LaneRun(0)), FloatSum(LaneRun(0))):
        with pytest.raises(DiffOverflow):
            run(Reduce(1, 1, 1, [aggregate]), [more])
    less = [((1, 5), (0,), -(2**63)), ((1, 5), (1,), -1)]
    with pytest.raises(DiffOverflow):
        run(Reduce(1, 1, 1, [minimum(LaneRun(0))]), [less])
    with pytest.raises(SumOverflow):
        run(Reduce(1, 1, 1, [Count()]), [more])


VALUES = st.sampled_from([LEAST, LEAST + 1, -1, 0, 5, GREATEST, None])
ROWS = st.lists(
    st.tuples(st.integers(0, 2), VALUES, st.integers(0, 3), st.sampled_from([-(2**33), -1, 1, 2, 2**33])), max_size=6
)
COLUMN = LaneRun(0, 2, "flag")


class Before:
    """The output of a reduction before a step."""

    def __init__(self, updates):
        self.updates = updates

    def batches_for(self, _keys):
        return [self.updates]


def matrix_of(rows, later=0):
    """Return rows (key, value, time, diff) as a matrix, sorted by key."""
    found = [(key, int(value is None), value or 0, time + later, diff) for key, value, time, diff in rows]
    return kernels.sort_by(np.array(found, np.int64).reshape(-1, 5), [0])


def outcome(reduction, updates, output, sums=None):
    """Return the updates of a step as rows, or the group and the aggregate whose sum overflows."""
    seeds = None if sums is None else np.ascontiguousarray(sums[:, [0, -2]])
    try:
        found = reduction.step(updates, Before(output), due=Due(seeds), combined=sums).updates
    except SumOverflow as error:
        return error.key, error.aggregate
    return found.tolist()


@given(
    parts=st.lists(st.tuples(st.booleans(), ROWS), min_size=1, max_size=4),
    earlier=ROWS,
    chunk=st.sampled_from([1, 9, 36]),
)
def test_parts_that_were_combined_sum_to_the_same(parts, earlier, chunk):
    """Also where a part's sum leaves the range that the whole sum keeps; some parts are combined, others are as they came."""
    aggregates = [Count(COLUMN), ExactSum(COLUMN), ExactSum(COLUMN, total="wide")]
    reduction = Reduce(1, 2, 1, aggregates, chunk=chunk)
    none = np.empty((0, 1 + reduction.width + 2), np.int64)
    before = outcome(reduction, matrix_of((k, 3, t, 1) for k, _, t, _ in earlier), none)
    output = np.array(before, np.int64).reshape(-1, none.shape[1])
    whole = matrix_of((row for _, rows in parts for row in rows), 4)
    plain = matrix_of((row for combined, rows in parts if not combined for row in rows), 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce, "LEAST", 1)
        patch.setattr(reduce, "FEWER", 0)
        found = [reduction.combine(matrix_of(rows, 4)) for combined, rows in parts if combined and rows]
    sums = kernels.sort_by(np.concatenate(found), [0]) if found else None
    assert outcome(reduction, plain, output, sums) == outcome(reduction, whole, output)


@pytest.mark.parametrize("seed", range(many(4)))
def test_many_rows_in_any_order_are_combined_to_their_sums(seed):
    """Of keys of several lanes; in blocks with diffs of 1 and others, with nulls and without, of each kind of number, some asked for twice."""
    draw = chance("combine", seed)
    nk, n = draw.choice([0, 1, 2]), draw.randrange(2 * BLOCK, 5 * BLOCK)
    numbers = {"signed": (LEAST, GREATEST), "unsigned": (0, 2**64 - 1), "wide": (1 - 10**38, 10**38 - 1)}
    kinds = [draw.choice([*numbers]) for _ in range(draw.randrange(1, 4))]
    flags, first, pairs, rows, meant = [draw.random() < 0.5 for _ in kinds], 0, [], [], {}
    for kind, flag in zip(kinds, flags, strict=True):
        null = ("in_band" if kind == "wide" else "flag") if flag else "none"
        column = LaneRun(first, len(lanes_of(0, kind)) + (null == "flag"), null)
        pairs.append([Count(column), ExactSum(column, kind, kind)])
        first += column.width
    asked = [*range(len(kinds)), *draw.choices(range(len(kinds)), k=draw.randrange(3))]
    draw.shuffle(asked)
    keys = [tuple(draw.randrange(3) - 1 for _ in range(nk)) for _ in range(4)]
    for at in range(n):
        key, time = draw.choice(keys), draw.randrange(2)
        diff = 1 if at < BLOCK or draw.random() < 0.5 else draw.choice([-(2**63), -1, 2, 2**31, 2**40 + 1, 2**63 - 1])
        lanes, added = [], [diff]
        for kind, flag in zip(kinds, flags, strict=True):
            null = flag and draw.random() < 0.3
            value = 0 if null else draw.choice([*numbers[kind], 0 if draw.random() < 0.5 else 1, 2**32 - 1])
            if kind == "wide":
                lanes += [GREATEST, 0] if null else lanes_of(value, kind)
            else:
                lanes += [int(null)] * flag + [*lanes_of(value, kind)]
            added += [0 if null else diff, 0 if null else value * diff]
        rows.append([*key, *lanes, time, diff])
        meant[key, time] = [a + b for a, b in zip(meant.get((key, time), [0] * len(added)), added, strict=True)]
    reduction = Reduce(nk, first, 1, [aggregate for at in asked for aggregate in pairs[at]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce, "LEAST", 1)
        found = reduction.combine(np.array(rows, np.int64))
    assert len(found) == len(meant)
    for row in found.tolist():
        sums, at = [], nk
        for size in [4, *(size for each in asked for size in (4, 6 if kinds[each] == "wide" else 4))]:
            sums.append(sum(limb << 32 * place for place, limb in enumerate(row[at : at + size])))
            at += size
        all_records, *others = meant[tuple(row[:nk]), row[-2]]
        assert sums == [all_records, *(added for each in asked for added in others[2 * each : 2 * each + 2])]
        assert row[-1] == 1


@pytest.mark.parametrize("seed", range(many(10)))
def test_instances_are_numbered_as_they_first_come(seed):
    """In a table in which most of them meet."""
    draw = chance("instances", seed)
    nk, most = draw.choice([0, 1, 2]), draw.choice([3, 7, 15])
    rows = [[*(draw.randrange(3) for _ in range(nk)), 8, draw.randrange(3), 1] for _ in range(40)]
    numbers: dict[tuple[int, ...], int] = {}
    meant = [numbers.setdefault((*row[:nk], row[-2]), len(numbers)) for row in rows]
    heads, instances = np.empty(most, np.int64), np.empty(len(rows), np.int64)
    slots = np.zeros(most + 1, np.int64)
    found = number_groups(np.array(rows, np.int64), nk, nk + 1, slots, heads, instances)
    if len(numbers) > most:
        assert found == NO_ROOM
    else:
        assert found == len(numbers)
        assert instances.tolist() == meant
        assert heads[:found].tolist() == [meant.index(number) for number in range(found)]


def test_few_rows_and_rows_of_many_groups_are_not_combined():
    reduction = Reduce(1, 2, 1, [Count(COLUMN)])
    rows = [(at, 1, 0, 1) for at in range(reduce.LEAST)]
    assert reduction.combine(matrix_of(rows)) is None
    assert reduction.combine(matrix_of((0, *row[1:]) for row in rows[1:])) is None
    sums = reduction.combine(matrix_of((at % 3, *row) for at, (_, *row) in enumerate(rows)))
    assert sums[:, 0].tolist() == [0, 1, 2]
    turned = reduction.combine(
        np.ascontiguousarray(matrix_of((at % 3, *row) for at, (_, *row) in enumerate(rows))[::-1])
    )
    assert kernels.sort_by(turned, [0]).tolist() == sums.tolist()
    # A sample that misses most groups is found out.
    step = -(-(4 * reduce.SAMPLE) // reduce.SAMPLE)
    hidden = [(0 if at % step == 0 else at, 1, 0, 1) for at in range(4 * reduce.SAMPLE)]
    unsorted = np.array([(key, 0, value, time, diff) for key, value, time, diff in hidden], np.int64)
    assert reduction.combine(unsorted) is None
    assert sums[:, -2:].tolist() == [[0, 1]] * 3
