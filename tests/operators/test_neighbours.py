"""Windows that look at few rows: the rows around changes lead to the same updates as whole groups do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.operators.asof import Neighbours
from ddcli.engine.operators.reduce_aggregates import Gather
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import MemoryBatch, Trace
from tests.draws import many
from tests.operators.support import Grouped

NK, NV = 1, 2


def window(before: int, after: int, deciding: int) -> Gather:
    """Return a window that gives each row the second lanes of its neighbours; rows equal in the deciding lanes descend by the others."""

    def function(given):
        found = []
        for instance in np.unique(given.rows[:, 0]):
            rows: list[tuple[int, ...]] = []
            for row in given.rows[given.rows[:, 0] == instance].tolist():
                rows += [tuple(row[1:-1])] * row[-1]
            rows.sort(key=lambda row: (*row[:deciding], *(-lane for lane in row[deciding:])))
            for at, row in enumerate(rows):
                seen = rows[max(0, at - before) : at + after + 1]
                code = 0
                for each in seen:
                    code = code * 7 + each[1] + 1
                found.append((instance, *row, code, 1))
        return np.array(found, np.int64).reshape(-1, NV + 3)

    return Gather(NV + 1, function, single=False)


class Rows:
    """A trace of some batches."""

    def __init__(self, batches):
        self.batches = batches

    def batches_for(self, keys):
        return self.batches


updates = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 5), st.integers(0, 2), st.integers(0, 3), st.sampled_from([1, 1, 2, -1, -2])
    ),
    max_size=14,
).map(lambda rows: kernels.consolidate(np.array(rows, np.int64).reshape(-1, NK + NV + 2)))


def at_every_time(rows, calls, deciding):
    """Return what a window gives of the rows at each time, as counts."""
    found = {}
    for time in range(-3, 4):
        there = rows[rows[:, -2] <= time].copy()
        there[:, -2] = 0
        there = kernels.consolidate(there)
        there = there[there[:, -1] > 0]
        for key in (0, 1):
            mine = there[there[:, 0] == key]
            given = type(
                "Given", (), {"rows": np.column_stack([np.zeros(len(mine), np.int64), mine[:, 1:-2], mine[:, -1]])}
            )
            for row in calls.function(given).tolist():
                at = (time, key, *row[1:-1])
                found[at] = found.get(at, 0) + row[-1]
    return found


@settings(max_examples=many(200))
@given(
    updates, updates, updates, st.integers(0, 2), st.integers(0, 2), st.sampled_from([1, 2]), st.sampled_from([0, 1, 2])
)
def test_rows_around_changes_are_enough(old, older, delta, before, after, deciding, grouped):
    """Whatever is in the traces, with several times in one step, retractions before insertions, and ties that lanes don't break.

    Where batches are read by groups of a few rows, and where that is not enough, whole.
    """
    old[:, -2] -= 3  # what was before may have been advanced to the first time that comes
    older[:, -2] -= 3
    old, older = kernels.consolidate(old), kernels.consolidate(older)
    calls = window(before, after, deciding)
    near = Neighbours(NK, NV, calls, before + after, deciding)
    trace = Rows([old, older])
    if grouped:
        start, middle, upper = (Frontier([(time,)]) for time in (-9, -1, 0))
        batches = [MemoryBatch(old, start, middle), MemoryBatch(older, middle, upper)]
        trace = Trace(NK, NV, 1, since=start, batches=[Grouped(batch, grouped) for batch in batches if batch.rows])
    found = near.step(delta, trace)
    for rows in (old, older):
        rows[:, -2] = -1
    earlier = at_every_time(np.concatenate([old, older]), calls, deciding)
    wanted = at_every_time(np.concatenate([old, older, delta]), calls, deciding)
    for time in range(4):
        got = {key[1:]: count for key, count in earlier.items() if key[0] == time}
        for *row, when, diff in found.tolist():
            if when <= time:
                got[tuple(row)] = got.get(tuple(row), 0) + diff
        assert {row: count for row, count in got.items() if count} == {
            key[1:]: count for key, count in wanted.items() if key[0] == time
        }, time
