"""What a reduction means, from the definition, and a driver that compares an operator with it at every time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np

from ddcli.engine.lanes import NULL, float_lanes, float_values
from ddcli.engine.operators import reduce_aggregates as aggregates
from ddcli.engine.operators.reduce_instances import Due
from tests.reference.aggregates import as_float
from tests.reference.model import accumulate

# ---------------------------------------------------------------------------------------------------------------------
# The definition.


def lattice_join(s, t):
    return tuple(map(max, s, t))


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
    return as_float(total)


def large_mean(exact, count):
    """Return the mean of what has a sum beyond the floats: the sum is rounded 128 bits lower, as others are."""
    try:
        return math.ldexp(float(exact / 2**128) / count, 128)
    except OverflowError:
        return math.inf if (exact > 0) == (count > 0) else -math.inf


def in_order(aggregate, group):
    def rank(value):
        hashed = list(getattr(aggregate, "hashed", ()))
        ranked = np.array(value)
        if hashed:
            ranked[hashed] = aggregate.ranks(ranked[None, hashed])[0]
        rest = [int(lane) for at, lane in enumerate(ranked) if at not in aggregate.order]
        return [value[lane] for lane in aggregate.order] + rest + [value[lane] for lane in hashed]

    candidates = [value for value, count in group.items() if count > 0 and not is_null(aggregate.skip, value)]
    return sorted(candidates, key=rank, reverse=aggregate.last)


def squares(group):
    """Return a number that depends on all values and counts: the meaning of the `Gather` of these tests."""
    return sum((value[0] % 7) * count * count for value, count in group.items())


def lanes_for(aggregate, group):
    """Return one aggregate's lanes of a group, None for no row."""
    match aggregate:
        case aggregates.Count(column):
            return (sum(count for value, count in group.items() if not is_null(column, value)),)
        case aggregates.ExactSum(column, kind, total):
            width = 2 if kind == "wide" else 1
            rows = [(v[column.number : column.number + width], c) for v, c in group.items() if not is_null(column, v)]
            return lanes_of(sum(number(lanes, kind) * count for lanes, count in rows), total)
        case aggregates.FloatSum(column):
            pairs = [(lane_float(v[column.number]), c) for v, c in group.items() if not is_null(column, v)]
            return (float_lane(exact_float_sum(pairs)),)
        case aggregates.FloatMean(column):
            pairs = [(lane_float(v[column.number]), c) for v, c in group.items() if not is_null(column, v)]
            number_of = sum(c for _, c in pairs)
            total = exact_float_sum(pairs)
            if math.isinf(total) and number_of and all(math.isfinite(value) for value, _ in pairs):
                exact = sum(Fraction(value) * c for value, c in pairs)
                return (float_lane(large_mean(exact, number_of)), 1)
            return (float_lane(total), number_of)
        case aggregates.CountDistinct(column):
            counts = Counter()
            for value, count in group.items():
                if not is_null(column, value):
                    counts[tuple(value[lane] for lane in column.lanes)] += count
            return (sum(count != 0 for count in counts.values()),)
        case aggregates.First():
            best = in_order(aggregate, group)
            return tuple(best[0][lane] for lane in aggregate.take) if best else aggregate.nothing
        case aggregates.Gather():
            return (squares(group),)
    raise AssertionError


def want(reduction, group):
    """Return {output lanes: count} for the accumulated records {value: count} of one key."""
    if reduction.accumulable:
        lanes = [lanes_for(aggregate, group) for aggregate in (aggregates.Count(), *reduction.aggregates)]
        kinds = ["signed", *(a.total if isinstance(a, aggregates.ExactSum) else "signed" for a in reduction.aggregates)]
        if not any(number(part, kind) for part, kind in zip(lanes, kinds, strict=True)):
            return {}
        return {sum(lanes, ()): 1}
    if not group:
        return {}
    if isinstance(reduction.aggregates[0], aggregates.TopRows):
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
        result = reduction.step(delta, output, None if reduction.accumulable else inputs, Due(seeds, upper, ahead))
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


class Grouped:
    """A batch that is read by groups of a few rows, as one in a file is."""

    def __init__(self, batch, rows):
        self.updates, self.lower, self.upper, self.each = batch.matrix(), batch.lower, batch.upper, rows
        self.rows = len(self.updates)

    def matrix(self):
        return self.updates

    def for_keys(self, keys, spared=()):
        return self.updates

    def release(self):
        """Keep the rows."""

    def limits(self, first, last, nk):
        starts = self.updates[:: self.each, : first.shape[1]].tolist()
        low, high = first.copy(), last.copy()
        low[:, nk:], high[:, nk:] = -(2**63), 2**63 - 1
        for at, (one, other) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            before = [start for start in starts if start < one and start[:nk] == one[:nk]]
            after = [start for start in starts if start > other and start[:nk] == other[:nk]]
            if before:
                low[at] = before[-1]
                low[at, -1] += 1
            if after:
                high[at] = after[0]
                high[at, -1] -= 1
        return low, high

    def in_ranges(self, first, last, nk):
        places = self.updates[:, : first.shape[1]].tolist()
        ranges = list(zip(first.tolist(), last.tolist(), strict=True))
        return self.updates[[any(low <= place <= high for low, high in ranges) for place in places]]
