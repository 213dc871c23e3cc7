"""Sorting and consolidating against Python's own sort and sums in a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels import sort
from tests.kernels.support import EXTREME, LANES, canonical, interpreted, matrices, matrix


@given(matrices(4))
def test_consolidate_is_the_sorted_sum(m):
    """Duplicates, zeros, negative diffs and extreme lanes."""
    before = m.copy()
    assert kernels.consolidate(m).tolist() == canonical(m)
    assert (m == before).all()


@given(matrices(4, size=40), st.lists(st.integers(0, 2), max_size=4))
def test_arranged_rows_are_lanes_consolidated(m, lanes):
    """Any lanes, some more than once, of few rows and of more."""
    wanted = [[*(row[lane] for lane in lanes), row[3]] for row in m.tolist()]
    assert kernels.arranged(m, np.array([*lanes, 3])).tolist() == canonical(matrix(wanted, len(lanes) + 1))


def test_arranging_refuses_what_it_cannot_do():
    """Lanes that are not there, and sums that leave their range."""
    with pytest.raises(ValueError, match="lanes"):
        kernels.arranged(np.array([[1, 2, 3]]), np.array([3]))
    with pytest.raises(kernels.DiffOverflow):
        kernels.arranged(np.array([[1, 7, 1 << 62], [1, 8, 1 << 62]]), np.array([0, 2]))


@given(matrices(3, size=400, lanes=st.integers(-6, 6)))
def test_consolidate_more_rows_than_insertion_sort_takes(m):
    """The radix sort, with many duplicates."""
    assert kernels.consolidate(m).tolist() == canonical(m)


@pytest.mark.parametrize("case", ["dense", "wide", "nulls", "few", "skewed", "constant"])
def test_consolidate_large(case):
    """Matrices that are distributed into pieces, evenly and not."""
    draw = np.random.default_rng(7)
    n = 3 * sort.PIECE
    m = draw.integers(0, n // 2, (n, 4))
    m[:, 3] = draw.integers(-1, 2, n)
    if case == "wide":
        m[:, :3] = draw.integers(*EXTREME, (n, 3), endpoint=True)
    elif case == "nulls":
        m[::7, 0] = EXTREME[1]
    elif case == "few":
        m[:, :3] = draw.integers(0, 3, (n, 3))
    elif case == "skewed":
        m[:, 0] = 1 << draw.integers(0, 63, n)
    elif case == "constant":
        m[:, :2] = EXTREME[0]
    result = kernels.consolidate(m)
    assert kernels.is_consolidated(result)
    assert np.array_equal(kernels.consolidate(m.copy(), owned=True), result)
    values, places = np.unique(m[:, :3], axis=0, return_inverse=True)
    sums = np.zeros(len(values), np.int64)
    np.add.at(sums, places.reshape(-1), m[:, 3])
    assert np.array_equal(result, np.column_stack([values, sums])[sums != 0])


def test_consolidate_gives_consolidated_input_back():
    """No copy where there is nothing to do."""
    for n in (0, 1, 5, 5000):
        m = np.stack([np.arange(n), np.ones(n, np.int64)], axis=1)
        result = kernels.consolidate(m)
        assert result is m or n == 5
        assert result.tolist() == m.tolist()


def test_consolidate_sums_ordered_rows():
    """A sorted matrix with equal rows is only summed."""
    m = np.stack([np.arange(1000) // 3, np.arange(1000) % 3 - 1], axis=1)
    assert kernels.consolidate(m).tolist() == canonical(m)


@pytest.mark.parametrize("n", [2, 100, 100_000])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("owned", [True, False])
def test_an_overflow_is_refused_and_shown(n, ordered, owned):
    """In each of the ways to consolidate."""
    m = np.stack([np.arange(n), np.full(n, 7), np.ones(n, np.int64)], axis=1)
    m[0, 2] = EXTREME[1]
    m[1] = m[0]
    m[1, 2] = 5
    with pytest.raises(kernels.DiffOverflow, match=rf"lanes \({m[0, 0]}, 7\)") as caught:
        kernels.consolidate(m if ordered else np.ascontiguousarray(m[::-1]), owned=owned)
    assert str(EXTREME[1]) in caught.value.problem
    assert "5" in caught.value.problem


@given(matrices(3), st.permutations([0, 1, 2]), st.integers(0, 3))
def test_sort_by_is_a_stable_sort(m, lanes, count):
    """By any lanes in any order."""
    by = lanes[:count]
    expected = sorted(m.tolist(), key=lambda row: [row[lane] for lane in by])
    assert kernels.sort_by(m, by).tolist() == expected


def test_sort_by_is_stable_at_size():
    """Over pieces, too."""
    draw = np.random.default_rng(3)
    m = np.stack([draw.integers(0, 50, 100_000), draw.integers(0, 9, 100_000), np.arange(100_000)], axis=1)
    assert kernels.sort_by(m, [1, 0]).tolist() == sorted(m.tolist(), key=lambda row: (row[1], row[0]))


def test_lanes_that_are_not_there_are_refused():
    """Before a kernel would read beyond a row."""
    with pytest.raises(ValueError, match="lanes"):
        kernels.sort_by(np.ones((2, 2), np.int64), [2])


@given(st.lists(LANES, max_size=6))
def test_is_sorted(lanes):
    """Sorted is what Python says is sorted."""
    assert kernels.is_sorted(matrix([(lane, 1) for lane in lanes], 2)) == (lanes == sorted(lanes))


@pytest.mark.parametrize("n", [3, 40, 200, 2000])
def test_interpreted_kernels_give_the_same(n):
    """The same source as plain Python."""
    draw = np.random.default_rng(n)
    m = draw.integers(-3, 4, (n, 4))
    with interpreted():
        assert kernels.consolidate(m).tolist() == canonical(m)
        assert kernels.sort_by(m, [2, 1]).tolist() == sorted(m.tolist(), key=lambda row: (row[2], row[1]))


def test_rows_that_few_leading_bits_leave_in_disorder():
    """A long run that is equal in its leading bits falls back to a sort by all of them."""
    n = 4000
    m = np.stack([np.zeros(n, np.int64), np.arange(n)[::-1], np.ones(n, np.int64)], axis=1)
    m[0, 0] = EXTREME[1]
    m[1, 0] = EXTREME[0]
    for how in (kernels.consolidate, lambda rows: kernels.sort_by(rows, [0, 1])):
        assert how(m).tolist() == canonical(m)


@pytest.mark.parametrize("n", [sort.PIECE + 1, 4 * sort.PIECE])
def test_a_value_that_fills_more_than_a_piece(n):
    """Half of the rows have one value: distributing that piece again can't make it smaller."""
    lead = np.where(np.arange(3 * n) % 3 == 0, np.arange(3 * n) % 1000 + 1, 0)
    m = np.column_stack([lead, np.ones(3 * n, np.int64)]).astype(np.int64)
    by_hand = m[np.argsort(lead, kind="stable")]
    assert (kernels.sort_by(m, [0]) == by_hand).all()
    values, counts = np.unique(lead, return_counts=True)
    assert (kernels.consolidate(m) == np.column_stack([values, counts])).all()
