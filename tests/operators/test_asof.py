"""As-of joins: what follows from changes are the same updates as those of whole groups."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.operators.asof import AsofJoin
from ddcli.engine.operators.reduce_aggregates import GatheredGroups
from tests.draws import many

NK, NV = 1, 4
"""Values have the side, one lane of the order, a left and a right column."""


class Rows:
    """A trace of some batches."""

    def __init__(self, batches):
        self.batches = batches

    def batches_for(self, keys):
        return self.batches


def row(key, is_right, at, value, time, diff):
    return (key, is_right, at, *((9, value) if is_right else (value, 9)), time, diff)


updates = st.lists(
    st.builds(
        row,
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(0, 5),
        st.integers(0, 2),
        st.integers(0, 3),
        st.sampled_from([1, 1, 2, -1, -2]),
    ),
    max_size=16,
).map(lambda rows: kernels.consolidate(np.array(rows, np.int64).reshape(-1, NK + NV + 2)))


def at_time(join, rows, time):
    """Return what the join of whole groups gives of the rows at a time, as counts."""
    there = rows[rows[:, -2] <= time].copy()
    there[:, -2] = 0
    there = kernels.consolidate(there)
    given = np.column_stack([there[:, 0], there[:, 1:-2], there[:, -1]])
    return total(join.gathered(GatheredGroups(np.arange(2)[:, None], None, given)).tolist())


def total(rows):
    """Return the sum of the counts of equal rows; two left ones may become the same."""
    counts = {}
    for *record, count in rows:
        counts[tuple(record)] = counts.get(tuple(record), 0) + count
    return {record: count for record, count in counts.items() if count}


@settings(max_examples=many(200))
@given(updates, updates, updates, st.booleans(), st.booleans(), st.booleans())
def test_what_is_near_a_change_is_enough(old, older, delta, inner, strict, turned):
    """Whatever is in the traces, with several times in one step, retractions before insertions, and ties that lanes don't break."""
    old[:, -2] -= 3  # what was before may have been advanced to the first time that comes
    older[:, -2] -= 3
    old, older = kernels.consolidate(old), kernels.consolidate(older)
    ranked = (lambda rows: -rows[:, 1:]) if turned else None
    join = AsofJoin(NK, NV, 1, 3, ranked, inner=inner, strict=strict)
    found = join.step(delta, Rows([old, older]))
    assert kernels.is_consolidated(found)
    before = np.concatenate([old, older])
    before[:, -2] = -1
    contents = at_time(join, before, -1)
    for time in range(4):
        new = found[found[:, -2] == time][:, [0, 1, 2, 4]].tolist()
        contents = total([*((*record, count) for record, count in contents.items()), *new])
        wanted = at_time(join, np.concatenate([before, delta]), time)
        assert contents == wanted, time
