"""Pairs of equal numbers against counts."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddcli.store.mirrors.cancellation import pairs

NUMBERS = st.lists(st.one_of(st.integers(-3, 3), st.sampled_from([8, 16, -(2**63), 2**63 - 1])), max_size=40)


@given(NUMBERS, NUMBERS)
def test_each_number_is_paired_as_often_as_both_sides_have_it(left, right):
    found = pairs(np.array(left, np.int64), np.array(right, np.int64)).tolist()
    places = [place for place in found if place >= 0]
    assert len(set(places)) == len(places)
    assert all(left[at] == right[place] for at, place in enumerate(found) if place >= 0)
    assert len(places) == (Counter(left) & Counter(right)).total()


def test_a_number_that_is_often_there_costs_no_more():
    """Quadratic, it would take hours."""
    many = np.zeros(1 << 20, np.int64)
    assert (pairs(many, many[:-1]) >= 0).sum() == many.size - 1
    assert (pairs(many, many + 1) < 0).all()
