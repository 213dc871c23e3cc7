"""Rows that share times and diff, against the matrix that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels import sort, uniform
from tests.kernels.support import LANES, canonical, matrices, matrix


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.data())
def test_parts_are_the_consolidated_rows(data, nt, repeated, draw):
    """However many are equal, in whatever order; with the length and shape of the matrix."""
    rows = draw.draw(st.lists(st.tuples(*[LANES] * data), min_size=1, max_size=20))
    tail = np.array([*draw.draw(st.tuples(*[LANES] * nt)), draw.draw(st.integers(1, 3))])
    whole = np.concatenate([matrix(rows, data), np.tile(tail, (len(rows), 1))], axis=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uniform, "LEAST", 1)
        patch.setattr(uniform, "REPEATED", repeated)
        assert kernels.common_tail(whole, nt).tolist() == tail.tolist()
        found = kernels.consolidated_parts(matrix(rows, data), tail)
        again = kernels.shared(kernels.consolidate(whole.copy()), nt)
    assert isinstance(found, kernels.Uniform) == (len(rows) - len(set(rows)) <= len(rows) // repeated)
    assert isinstance(again, kernels.Uniform) == (len({row[-1] for row in canonical(whole)}) == 1)
    for each in (found, again):
        assert kernels.matrix(each).tolist() == canonical(whole)
        assert len(each) == len(canonical(whole))
        assert each.shape == (len(each), data + nt + 1)
    if isinstance(found, kernels.Uniform):
        keys = matrix(sorted({row[:1] for row in draw.draw(st.lists(st.sampled_from(rows)))}), 1)
        keyed = canonical(*[whole[whole[:, 0] == key] for key in keys[:, 0]])
        assert found.of(keys).matrix().tolist() == keyed
        bounds, _ = kernels.locate(keys, [kernels.leading(found)])
        assert kernels.matrix(kernels.rows_within(found, bounds)).tolist() == keyed


@given(matrices(4, size=6, lanes=st.integers(0, 1)), st.integers(1, 2))
def test_a_tail_is_common_only_if_all_rows_have_it(rows, nt):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uniform, "LEAST", 1)
        tail = kernels.common_tail(rows, nt)
    tails = {tuple(row[-nt - 1 :]) for row in rows.tolist()}
    assert (tail is not None) == (len(tails) == 1 and min(tails)[-1] > 0)


def test_many_rows_are_sorted_where_they_lie():
    """As many as are dealt into pieces first; nothing is written elsewhere."""
    data = np.random.default_rng(5).integers(-1000, 1000, (2 * sort.PIECE + 7, 2))
    expected = np.array(sorted(map(tuple, data.tolist())))
    found = kernels.sort_by(data, [0, 1], owned=True)
    assert np.shares_memory(found, data)
    assert (found == expected).all()


def test_whoever_takes_them_for_a_matrix_fails():
    rows = kernels.Uniform(np.array([[7], [8]]), np.array([3, 1]))
    for misread in (lambda: rows[0], lambda: kernels.consolidate(rows), lambda: kernels.distinct_keys(rows, 1)):
        with pytest.raises((TypeError, AttributeError)):
            misread()
    with pytest.raises(ValueError, match="dimension"):
        kernels.concat([rows, rows])
