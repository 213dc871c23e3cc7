"""Pairs of equal numbers against counts."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.kernels.pairing import keep_equal_texts
from ddcli.store.mirrors.row_pairs import pairs

NUMBERS = st.lists(st.one_of(st.integers(-3, 3), st.sampled_from([8, 16, -(2**63), 2**63 - 1])), max_size=40)
TEXTS = st.sampled_from(
    [b"", b"a", b"b", b"a word of many", b"a word of manx", b"a wOrd of many", b"8 bytes!", b"8 bytes?"]
)


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


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=20), st.randoms(use_true_random=False))
def test_pairs_stay_equal_where_their_texts_are(given, draw):
    sides = [[each[side] for each in given] for side in range(2)]
    orders = [draw.sample(range(len(given)), len(given)) for _ in sides]
    laid = [[texts[order.index(at)] for at in range(len(texts))] for texts, order in zip(sides, orders, strict=True)]
    equal = np.ones(len(given), np.uint8)
    ends = [np.cumsum([0, *map(len, texts)], dtype=np.int64) for texts in laid]
    data = [np.frombuffer(b"".join(texts), np.uint8) for texts in laid]
    places = [np.array(order, np.int64) for order in orders]
    keep_equal_texts(ends[0], data[0], ends[1], data[1], *places, equal)
    assert equal.tolist() == [one == other for one, other in given]
