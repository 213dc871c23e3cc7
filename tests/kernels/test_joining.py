"""Joining against all pairs of rows, one at a time."""

from __future__ import annotations

import sys
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from tests.kernels.support import EXTREME, canonical, interpreted, matrices, matrix


def all_pairs(a, b, nk, nt, take):
    """Return the rows that the definition gives, not consolidated."""
    nta, ntb = nt if isinstance(nt, tuple) else (nt, nt)
    rows = []
    for *left, da in kernels.matrix(a).tolist():
        for *right, db in kernels.matrix(b).tolist():
            if left[:nk] == right[:nk]:
                data = left[:-nta] + right[nk:-ntb]
                times = [max(pair) for pair in zip_longest(left[-nta:], right[-ntb:], fillvalue=EXTREME[0])]
                rows.append([*(data[lane] for lane in take), *times, da * db])
    return matrix(rows, len(take) + max(nta, ntb) + 1)


@st.composite
def uniform(draw, data, nt):
    """Draw rows of so many data lanes that share their times and diff; some are there twice."""
    rows = draw(st.lists(st.tuples(*[st.integers(0, 2)] * data), max_size=12))
    times = draw(st.tuples(*[st.integers(0, 2)] * nt))
    return kernels.Uniform(matrix(sorted(rows), data), np.array([*times, draw(st.integers(1, 2))]))


@st.composite
def cases(draw):
    """Draw the batches of two sides, shapes, and the lanes to take."""
    nk, nta = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    ntb = draw(st.one_of(st.just(nta), st.integers(1, 3)))
    va, vb = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    lanes = st.integers(0, 2)
    sides = [
        draw(
            st.lists(
                matrices(nk + v + nt + 1, consolidated=True, size=12, lanes=lanes) | uniform(nk + v, nt),
                min_size=1,
                max_size=3,
            )
        )
        for v, nt in ((va, nta), (vb, ntb))
    ]
    nt = nta if nta == ntb and draw(st.booleans()) else (nta, ntb)
    data = nk + va + vb
    take = draw(st.one_of(st.permutations(range(data)), st.lists(st.integers(0, data - 1), max_size=4)))
    return *sides, nk, nt, np.array(take, np.int64)


def judge(lefts, rights, nk, nt, take):
    """Compare the join of batches with all pairs; and each pair of batches, where it is said to be consolidated."""
    result = kernels.join(lefts, rights, nk, nt, take)
    assert result.shape[1] == take.size + (max(nt) if isinstance(nt, tuple) else nt) + 1
    pairs = [all_pairs(a, b, nk, nt, take.tolist()) for a in lefts for b in rights]
    assert canonical(result) == canonical(*pairs)
    if len(pairs) == 1 and set(range(nk)) <= set(take.tolist()):
        assert sorted(result.tolist()) == canonical(*pairs)


@given(cases())
def test_join_is_all_pairs(case):
    """Any number of key lanes, of time lanes on either side, and of batches, any lanes taken."""
    judge(*case)


@given(cases(), st.integers(1, 20))
def test_a_join_in_chunks_has_the_same_rows(case, most):
    """No chunk is larger than it may be, but for the rows of one pair of values; and a join as a whole is refused where it has more rows."""
    lefts, rights, nk, nt, take = case
    chunks = [*kernels.join_chunks(lefts, rights, nk, nt, take, most)]
    assert canonical(*chunks) == canonical(*(all_pairs(a, b, nk, nt, take.tolist()) for a in lefts for b in rights))
    assert max(map(len, chunks)) <= max(most, 12 * 12)
    if sum(map(len, chunks)) > most:
        with pytest.raises(kernels.ManyPairs):
            kernels.join(lefts, rights, nk, nt, take, most)


@given(cases(), st.data())
def test_a_few_new_rows_of_both_sides_are_joined_at_once(case, data):
    """Each new batch with what the other side holds: the same as each pair by itself; more rows than are few, too."""
    lefts, rights, nk, nt, take = case
    nt = nt if isinstance(nt, tuple) else (nt, nt)
    left, right = lefts[0], rights[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["ddcli.engine.kernels.join"], "FEW", data.draw(st.sampled_from([0, 5, 64])))
        result = kernels.JoinOfFew(nk, nt, take).join(left, rights, right, lefts[1:])
    pairs = [(left, b) for b in rights] + [(a, right) for a in lefts[1:]]
    assert canonical(result) == canonical(*(all_pairs(a, b, nk, nt, take.tolist()) for a, b in pairs))


def test_a_few_rows_with_many_matches():
    """Room is asked for again, and far keys are found among many."""
    many = np.array([[key, value, 0, 1] for key in range(0, 3000, 3) for value in range(3)])
    few = np.array([[key, 0, 5, 2] for key in (-1, 3, 4, 1500, 2997, 9000)])
    none = few[:0]
    found = kernels.JoinOfFew(1, (1, 1), np.array([0, 2])).join(few, [many, many[:30]], none, [])
    assert canonical(found) == canonical(*(all_pairs(few, m, 1, 1, [0, 2]) for m in (many, many[:30])))
    wide = np.array([[7, value, 0, 1] for value in range(500)])
    found = kernels.JoinOfFew(1, (1, 1), np.array([0, 1, 2])).join(
        none, [], np.array([[7, 1, 2, 3], [7, 2, 2, -3]]), [wide]
    )
    assert len(found) == 1000
    with pytest.raises(kernels.DiffOverflow):
        kernels.JoinOfFew(1, (1, 1), np.array([0])).join(
            np.array([[7, 0, 2, 1 << 62]]), [np.array([[7, 0, 2, 2]])], none, []
        )
    pair = np.array([[7, 0, 2, 1 << 62], [7, 1, 2, 1 << 62]])
    one = np.array([[7, 0, 2, 1]])
    for found in (
        lambda: kernels.JoinOfFew(1, (1, 1), np.array([0])).join(none, [], one, [pair]),
        lambda: kernels.join(pair, one, 1, 1, np.array([0])),
    ):
        with pytest.raises(kernels.DiffOverflow, match=rf"sum .* {1 << 62} \+ {1 << 62}, at lanes \(7, 2\)"):
            found()


@pytest.mark.parametrize("sides", [(0, 1), (1, 0)])
def test_an_overflow_names_rows_that_share_their_tail(sides):
    """The message has the diff of each, though the rows are kept without."""
    rows = kernels.Uniform(np.array([[7, 0]]), np.array([2, 1 << 62])), np.array([[7, 0, 2, 2]])
    left, right = (rows[side] for side in sides)
    for found in (
        lambda: kernels.join(left, right, 1, 1, np.array([0])),
        lambda: kernels.JoinOfFew(1, (1, 1), np.array([0])).join(left, [right], rows[1][:0], []),
    ):
        with pytest.raises(kernels.DiffOverflow, match=str(1 << 62)):
            found()


def test_interpreted_join_is_all_pairs():
    """The same source as plain Python."""
    draw = np.random.default_rng(5)
    with interpreted():
        for nta, ntb in ((1, 1), (2, 2), (1, 2)):
            for take in ([0, 1, 2], [0, 2], [1]):
                a = matrix(canonical(draw.integers(-2, 3, (20, 3 + nta))), 3 + nta)
                b = matrix(canonical(draw.integers(-2, 3, (20, 3 + ntb))), 3 + ntb)
                judge([a], [b], 1, (nta, ntb), np.array(take))
                found = kernels.JoinOfFew(1, (nta, ntb), np.array(take)).join(a, [b], b, [a])
                assert canonical(found) == canonical(*2 * [all_pairs(a, b, 1, (nta, ntb), take)])


@pytest.mark.parametrize("nt", [1, 2])
def test_a_large_key_is_joined_in_chunks(nt):
    """Room is asked for again and again, within a key too."""
    draw = np.random.default_rng(6)
    rows = draw.integers(0, 4, (600, 3 + nt))
    rows[:, 0] //= 3
    rows[:, 1] = np.arange(600) % 150
    a = kernels.consolidate(rows)
    b = kernels.consolidate(rows[:40].copy())
    take = np.array([0, 1, 2])
    chunks = list(kernels.join_chunks(a, b, 1, nt, take))
    assert len(chunks) > 1
    assert canonical(*chunks) == canonical(all_pairs(a, b, 1, nt, take.tolist()))
    judge([b, a], [a, b], 1, nt, np.array([0, 2]))


def test_a_pair_of_values_costs_the_sum_of_its_times():
    """Two values that change 1000 times each give 1999 rows, not a million."""
    times = np.arange(1000)
    a = np.stack([times * 0, times * 2, np.where(times % 2, -1, 1)], axis=1)
    b = np.stack([times * 0, times * 2 + 1, np.ones(1000, np.int64)], axis=1)
    result = kernels.join(a, b, 1, 1, np.array([0]))
    assert len(result) < 2000
    assert result[:, -1].sum() == 0
    assert kernels.is_consolidated(result)


def test_a_small_delta_meets_large_batches():
    """Far seeks in both directions."""
    n = 100_000
    big = np.stack([np.arange(n), np.arange(n) * 3, np.zeros(n, np.int64), np.ones(n, np.int64)], axis=1)
    delta = np.array([[k, 1, 5, 2] for k in (0, 17, 50_000, n - 1, n + 7)])
    expected = [[k, 1, 3 * k, 5, 2] for k in (0, 17, 50_000, n - 1)]
    take = np.array([0, 1, 2])
    assert kernels.join(delta, [big, big[:0], big], 1, 1, take).tolist() == expected * 2
    assert kernels.join([big], delta, 1, 1, np.array([0, 2, 1])).tolist() == expected


def test_nothing_joins_with_nothing():
    """The width is right where no row is."""
    a, b = np.empty((0, 4), np.int64), np.ones((1, 5), np.int64)
    assert kernels.join(a, b, 1, 1, np.array([0, 2, 3])).shape == (0, 5)
    assert kernels.join([], [b], 1, 1, np.array([0])).shape == (0, 3)


@pytest.mark.parametrize("nt", [1, 2])
@pytest.mark.parametrize(("x", "y"), [(1 << 32, 1 << 31), (EXTREME[0], -1), (-1, EXTREME[0]), (-(1 << 40), 1 << 40)])
def test_a_product_of_diffs_out_of_range_is_refused(nt, x, y):
    """The message shows both rows."""
    times = [3] * nt
    with pytest.raises(kernels.DiffOverflow, match=f"product .* {x} x {y}"):
        kernels.join(np.array([[1, 8, *times, x]]), np.array([[1, 9, *times, y]]), 1, nt, np.array([0, 1, 2]))


@pytest.mark.parametrize("nt", [1, 2])
@pytest.mark.parametrize(("x", "y"), [(EXTREME[0], 1), (EXTREME[1], -1), (-(1 << 32), 1 << 31), (1, EXTREME[0])])
def test_products_at_the_ends_of_the_range_are_exact(nt, x, y):
    """What fits is not refused."""
    times = [3] * nt
    result = kernels.join(np.array([[1, *times, x]]), np.array([[1, *times, y]]), 1, nt, np.array([0]))
    assert result.tolist() == [[1, *times, x * y]]


def test_lanes_that_are_not_there_are_refused():
    """Before a kernel would read beyond a row."""
    with pytest.raises(ValueError, match="lanes"):
        kernels.join(np.ones((1, 3), np.int64), np.ones((1, 3), np.int64), 1, 1, np.array([1]))
