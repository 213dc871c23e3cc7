"""Walking a few groups of a loop's traces, against the definition in plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels import Histories
from tests.kernels.support import canonical, interpreted, matrices, summed

LANES = st.integers(0, 2)
NT = 1


@st.composite
def traces(draw, depth):
    """Draw the sorted batches of a trace [key | value | time | rounds | diff], and how many of them are old."""
    sources = draw(st.lists(matrices(3 + depth + 1, consolidated=True, size=8, lanes=LANES), max_size=4))
    return Histories(sources, draw(st.integers(0, len(sources))))


def walked(keys, trace, since, rounds):
    """Return what the definition holds of each group, which groups have something new, and who is looked at when later."""
    held, live, later = [], set(), set()
    at = 2 + NT
    for key in keys:
        rows = [[row for row in m.tolist() if row[0] == key] for m in trace.sources]
        now = [
            [
                [*row[:2], max(row[2], since), row[-1]]
                for row in part
                if all(x <= y for x, y in zip(row[at:-1], rounds, strict=True))
            ]
            for part in rows
        ]
        held += canonical(*(np.array(part).reshape(-1, 4) for part in now))
        if summed(*(np.array(part).reshape(-1, 4) for part in now[trace.old :])):
            live.add(key)
        for part in rows:
            for row in part:
                join = tuple(map(max, row[at:-1], rounds))
                if join != rounds:
                    later.add((key, join))
    return held, live, later


def judge(keys, inputs, outputs, delta, since, rounds):
    live = np.zeros(len(keys), np.int64)
    found = kernels.walk(np.array(keys).reshape(-1, 1), inputs, outputs, delta, (since,), rounds, live, 4096)
    assert found is not None
    changed = {row[0] for row in delta.tolist()}
    every = set()
    for trace, rows in zip((inputs, outputs), found[:2], strict=True):
        held, new, later = walked(keys, trace, since, rounds)
        assert rows.tolist() == held
        changed |= new
        every |= later
    assert [key for key, mark in zip(keys, live.tolist(), strict=True) if mark] == [k for k in keys if k in changed]
    given = {(keys[row[-1]], tuple(row[:-1])) for row in found[2].tolist()}
    if len(rounds) > 1:
        assert given == every
    else:
        # The earliest of each group in either trace is enough.
        assert given <= every
        assert {(k, min(t for g, t in every if g == k)) for k, _ in every} <= given


@given(
    st.integers(1, 2).flatmap(lambda depth: st.tuples(traces(depth), traces(depth), st.tuples(*[LANES] * depth))),
    st.sets(LANES, min_size=1),
    matrices(4, consolidated=True, size=4, lanes=LANES),
    LANES,
)
def test_walk_is_its_definition(case, keys, delta, since):
    """Any sources of both traces, old and new, in one loop and in two."""
    judge(sorted(keys), *case[:2], delta[np.isin(delta[:, 0], sorted(keys))], since, case[2])


def test_interpreted_walk_is_its_definition():
    """The same source as plain Python."""
    draw = np.random.default_rng(3)
    with interpreted():
        for old in range(3):
            inputs, outputs = (
                Histories([kernels.consolidate(draw.integers(0, 3, (9, 5))) for _ in range(2)], old) for _ in range(2)
            )
            judge([0, 1, 2], inputs, outputs, kernels.consolidate(draw.integers(0, 3, (2, 4))), 1, (1,))


def test_many_rows_are_given_up():
    """More than there is to be room for."""
    history = np.array([[0, value, 0, 0, 1] for value in range(300)])
    live, none = np.zeros(1, np.int64), Histories([], 0)
    arguments = np.array([[0]]), none, Histories([history], 1), np.empty((0, 4), np.int64), (0,), (0,), live
    found = kernels.walk(*arguments, 400)
    assert found is not None
    assert len(found[1]) == 300
    assert kernels.walk(*arguments, 200) is None
