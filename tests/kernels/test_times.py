"""Advancing times, and looking at rounds: against plain Python."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.times import Frontier, join, meet
from tests.kernels.support import EXTREME, LANES, canonical, interpreted, matrices, matrix

SHAPES = st.integers(1, 3).flatmap(lambda nt: st.tuples(st.just(nt), st.integers(1, nt)))


def advanced(m, since, nt):
    """Return what advancing means: the lattice join of each time's first coordinates with `since`."""
    at = m.shape[1] - 1 - nt
    joined = m.copy()
    np.maximum(joined[:, at : at + len(since)], since, out=joined[:, at : at + len(since)])
    return canonical(joined)


def judge(m, since, nt):
    """Compare with the meaning, in memory of its own and in place."""
    before, expected = m.copy(), advanced(m, since, nt)
    assert kernels.advance(m, since, nt).tolist() == expected
    assert (m == before).all()
    assert kernels.advance(before, since, nt, owned=True).tolist() == expected


@given(SHAPES, st.data())
def test_advance_joins_times_with_since(shape, data):
    """And consolidates, for any number of coordinates, of which the last ones may be left as they are."""
    nt, coordinates = shape
    m = data.draw(matrices(nt + 2, consolidated=True))
    judge(m, tuple(data.draw(LANES) for _ in range(coordinates)), nt)


@pytest.mark.parametrize("nt", [1, 2, 3])
def test_advance_long_runs(nt):
    """Of equal data with many times, which are sorted by heap, and cancel."""
    draw = np.random.default_rng(nt)
    for low, high in ((0, 9), (-40, 40)):
        m = draw.integers(low, high, (3000, nt + 2))
        m[:, 0] %= 3
        m[:, -1] = draw.integers(-1, 2, 3000)
        m = matrix(canonical(m), nt + 2)
        for since in range(low - 1, high + 1, 7):
            judge(m, (since,), nt)
            judge(m, (since,) * nt, nt)


@given(st.lists(st.tuples(LANES, LANES), min_size=1, max_size=4), st.tuples(LANES, LANES))
def test_advancing_to_a_frontier_is_advancing_to_its_meet(elements, time):
    """So the kernel takes one time."""
    frontier = Frontier(elements)
    m = np.array([[*time, 1]])
    expected = reduce(meet, (join(time, element) for element in frontier))
    assert kernels.advance(m, frontier.as_time(), 2).tolist() == [[*expected, 1]]


@pytest.mark.parametrize("rows", [[[4, 1, EXTREME[1]], [4, 2, 1]], [[3, 1, 1], [4, 1, EXTREME[0]], [4, 2, -1]]])
def test_advance_refuses_an_overflow(rows):
    """Where times become equal."""
    with pytest.raises(kernels.DiffOverflow, match=r"-?922\d+ \+ -?1, at lanes \(4, 9\)"):
        kernels.advance(np.array(rows), (9,), 1)


def test_advance_refuses_an_overflow_in_a_run_that_is_sorted():
    """The two rows were not next to each other."""
    m = np.array([[3, 0, 0, 1], [4, 1, 5, EXTREME[1]], [4, 2, 3, 1], [4, 3, 5, 1]])
    with pytest.raises(kernels.DiffOverflow, match=r"\+ 1, at lanes \(4, 9, 5\)"):
        kernels.advance(m, (9,), 2)


def test_advance_gives_its_input_where_no_time_changes():
    """Compaction often has nothing to do."""
    m = np.array([[4, 10, 1]])
    assert kernels.advance(m, (9,), 1) is m
    assert kernels.advance(m, (), 1) is m


@given(matrices(4, lanes=st.integers(0, 1)), st.integers(0, 3), st.lists(st.integers(0, 1), max_size=3).map(tuple))
def test_rounds_equal(m, at, rounds):
    """In all rows, which may be none."""
    rounds = rounds[: 4 - at]
    expected = all(tuple(row[at : at + len(rounds)]) == rounds for row in m.tolist())
    assert kernels.rounds_equal(m, at, rounds) is expected


def test_wrong_shapes_are_refused():
    """Before a kernel would read beyond a row."""
    m = np.ones((2, 3), np.int64)
    with pytest.raises(ValueError, match="coordinates"):
        kernels.advance(m, (1, 2), 1)
    with pytest.raises(ValueError, match="lanes 2 to 4"):
        kernels.rounds_equal(m, 2, (1, 1))


def test_interpreted_kernels_give_the_same():
    """The same source as plain Python."""
    m = matrix(canonical(np.random.default_rng(1).integers(-3, 4, (60, 4))), 4)
    with interpreted():
        for since, nt in (((1,), 1), ((1, 0), 2), ((2,), 3)):
            judge(m, since, nt)
        assert not kernels.rounds_equal(m, 1, (0,))
        assert kernels.rounds_equal(m[:1], 1, (int(m[0, 1]),))
