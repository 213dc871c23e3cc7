"""Linear operators on lanes, at every width: strided lanes are where libraries' fast paths have had errors."""

from operator import eq, ge, gt, le, lt, ne

import numpy as np
import pytest

from ddcli.engine.kernels import DiffOverflow
from ddcli.engine.kernels.gather import EQUAL, GREATER, LESS
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.linear import (
    Concat,
    Constant,
    Inverted,
    LaneComparison,
    Permute,
    Plus,
    Select,
    permute,
)
from ddcli.engine.rounds import Interval
from ddcli.engine.times import Frontier
from ddcli.errors import InputError

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


def test_a_number_is_added_to_a_lane_and_a_sum_out_of_range_is_left_to_the_expression():
    class Refuse:
        def step(self, deltas, interval):
            raise InputError("told in the words of the file")

    add = Permute([Plus(0, 2), 1], 1, Refuse())
    updates = np.array([[5, 7, 0, 1], [-3, 7, 0, 1]])
    found = add.step([Delta(updates, distinct=True)], INTERVAL)
    assert found.updates.tolist() == [[7, 7, 0, 1], [-1, 7, 0, 1]]
    assert found.distinct
    with pytest.raises(InputError):
        add.step([Delta(np.array([[2**63 - 2, 7, 0, 1]]))], INTERVAL)
    with pytest.raises(InputError):
        Permute([Plus(0, -2), 1], 1, Refuse()).step([Delta(np.array([[1 - 2**63, 7, 0, 1]]))], INTERVAL)


@pytest.mark.parametrize("fits", [True, False])
def test_a_number_is_added_elsewhere_and_the_given_updates_stay(fits):
    refused = []

    class Refuse:
        def step(self, deltas, interval):
            refused.extend(deltas[0].updates.tolist())
            raise InputError("told in the words of the file")

    rows = [[5, 7, 0, 1], [-3, 8, 0, 1], [2 if fits else 2**63 - 1, 9, 0, 1]]
    updates = np.array(rows)
    add = Permute([1, Plus(0, 2)], 1, Refuse())
    if fits:
        found = add.step([Delta(updates)], INTERVAL).updates
        assert found.tolist() == [[row[1], row[0] + 2, *row[2:]] for row in rows]
    else:
        with pytest.raises(InputError):
            add.step([Delta(updates)], INTERVAL)
        assert refused == rows
    assert updates.tolist() == rows


@pytest.mark.parametrize("lanes", range(2, 8))
def test_rows_whose_lanes_compare_are_selected(lanes):
    random = np.random.default_rng(lanes)
    updates = random.integers(0, 3, (200, lanes + 2))
    signs = {LESS: lt, LESS | EQUAL: le, EQUAL: eq, LESS | GREATER: ne, GREATER | EQUAL: ge, GREATER: gt}
    for _ in range(30):
        some = [
            LaneComparison(*map(int, (random.integers(lanes), random.choice([*signs]), random.integers(-1, lanes), 1)))
            for _ in range(random.integers(1, 4))
        ]
        found = Select(some, [lanes - 1, Constant(5)], 1).step([Delta(updates)], INTERVAL).updates
        expected = [
            [row[lanes - 1], 5, *row[-2:]]
            for row in updates.tolist()
            if all(signs[each.orders](row[each.lane], row[each.other] if each.other >= 0 else 1) for each in some)
        ]
        assert found.tolist() == expected


def test_what_is_selected_is_distinct_where_it_keeps_all_lanes():
    updates = np.array([[1, 5, 0, 1], [2, 5, 0, 1]], np.int64)
    compared = [LaneComparison(1, EQUAL, number=5)]
    assert Select(compared, [1, 0], 1).step([Delta(updates, distinct=True)], INTERVAL).distinct
    assert not Select(compared, [1, 1], 1).step([Delta(updates, distinct=True)], INTERVAL).distinct
    with pytest.raises(ValueError, match="a matrix of 4 lanes"):
        Select([LaneComparison(4, EQUAL)], [0], 1).step([Delta(updates)], INTERVAL)
