"""Random traces: updates in batches between growing frontiers, merged a row at a time so that merges are often under way."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.rounds import before
from ddcli.engine.times import Frontier, less_equal
from ddcli.engine.trace.spine import Trace

SIDE = 4


def domain(nt):
    """Return all times."""
    return list(itertools.product(range(SIDE), repeat=nt))


@st.composite
def growing(draw, nt, count):
    """Give frontiers that each are at or after the one before, the last one closed."""
    found = [Frontier([(0,) * nt])]
    for _ in range(count):
        times = draw(st.lists(st.tuples(*[st.integers(0, SIDE)] * nt), min_size=1, max_size=2))
        found.append(found[-1].join(Frontier(times)))
    return [*found[1:], Frontier()]


def rows(draw, nt, lower, upper, most=6):
    """Give updates [key, value, time, diff] at times between two frontiers, consolidated."""
    times = [time for time in domain(nt) if lower.less_equal(time) and not upper.less_equal(time)]
    if not times:
        return np.empty((0, 3 + nt), np.int64)
    row = st.tuples(st.integers(0, 3), st.integers(0, 1), st.sampled_from(times), st.sampled_from([-1, 1, 2]))
    drawn = draw(st.lists(row, max_size=most))
    return kernels.consolidate(
        np.array([(k, v, *time, diff) for k, v, time, diff in drawn], np.int64).reshape(-1, 3 + nt)
    )


def trace_of(nt):
    """Return an empty trace of one key and one value lane."""
    return Trace(1, 1, nt, since=Frontier([(0,) * nt]))


def at(matrices, time):
    """Return the records at a time."""
    counts = Counter()
    for matrix in matrices:
        for *record, diff in matrix.tolist():
            if less_equal(tuple(record[2:]), time):
                counts[tuple(record[:2])] += diff
    return {record: count for record, count in counts.items() if count}


__all__ = ["SIDE", "at", "before", "domain", "growing", "rows", "trace_of"]
