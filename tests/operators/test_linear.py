"""Linear operators on lanes, at every width: strided lanes are where libraries' fast paths have had errors."""

import numpy as np
import pytest

from ddcli.engine.kernels import DiffOverflow
from ddcli.engine.operators.base import Delta, Interval
from ddcli.engine.operators.linear import Concat, Constant, Inverted, Permute, permute
from ddcli.engine.times import Frontier

INTERVAL = Interval(Frontier([(0,)]), Frontier([(1,)]))


@pytest.mark.parametrize("lanes", range(2, 14))
def test_a_difference_negates_each_diff_whatever_the_width(lanes):
    updates = np.arange(lanes * 100, dtype=np.int64).reshape(100, lanes)
    found = Concat((1, -1), lanes).step([Delta(updates), Delta(updates)], INTERVAL).updates
    assert (found[:100] == updates).all()
    assert (found[100:, :-1] == updates[:, :-1]).all()
    assert (found[100:, -1] == -(updates[:, -1].copy())).all()


@pytest.mark.parametrize("lanes", range(3, 14))
def test_lanes_are_taken_inverted_and_filled(lanes):
    updates = np.arange(lanes * 50, dtype=np.int64).reshape(50, lanes)
    found = permute(updates, [Inverted(0), Constant(7), 0], 2)
    assert found.tolist() == [[~row[0], 7, row[0], *row[-2:]] for row in updates.tolist()]


def test_negating_the_least_diff_is_refused():
    updates = np.array([[1, 0, -(2**63)]], np.int64)
    with pytest.raises(DiffOverflow):
        Concat((-1,), 3).step([Delta(updates)], INTERVAL)


def test_dropping_a_column_makes_rows_equal():
    updates = np.array([[1, 5, 0, 1], [2, 5, 0, 1]], np.int64)
    assert not Permute([1], 1).step([Delta(updates, distinct=True)], INTERVAL).distinct
    assert Permute([1, 0], 1).step([Delta(updates, distinct=True)], INTERVAL).distinct
