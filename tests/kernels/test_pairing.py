"""Pairs of equal numbers against counts.

The benchmark runs, at a size that takes no time.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.store.mirrors import equal_parts
from ddcli.store.mirrors.equal_parts import different, pairs
from tests.bench import kernels as bench

NUMBERS = st.lists(st.one_of(st.integers(-3, 3), st.sampled_from([8, 16, -(2**63), 2**63 - 1])), max_size=40)
TEXTS = st.sampled_from(
    [None, b"", b"a", b"b", b"a word of many", b"a word of manx", b"a wOrd of many", b"8 bytes!", b"8 bytes?"]
)


@given(NUMBERS, NUMBERS, st.sampled_from([0, 1, 1 << 62]), st.booleans())
def test_each_number_is_paired_as_often_as_both_sides_have_it(left, right, near, spread):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equal_parts, "NEAR", near)
        right = right if near < 2 else [number for number in right if abs(number) < 100]
        found = pairs(np.array(left, np.int64), np.array(right, np.int64), spread=spread).tolist()
    places = [place for place in found if place >= 0]
    assert len(set(places)) == len(places)
    assert all(left[at] == right[place] for at, place in enumerate(found) if place >= 0)
    assert len(places) == (Counter(left) & Counter(right)).total()


def test_a_number_that_is_often_there_costs_no_more():
    """Quadratic, it would take hours."""
    many = np.zeros(1 << 20, np.int64)
    assert (pairs(many, many[:-1]) >= 0).sum() == many.size - 1
    assert (pairs(many, many + 1) < 0).all()


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=20), st.integers(0, 20), st.randoms(use_true_random=False))
def test_pairs_stay_equal_where_their_texts_are(given, cut, draw):
    """Texts lie in their views or in one of several buffers, of one chunk or another."""
    sides = [[(at, each[side]) for at, each in enumerate(given)] for side in range(2)]
    frames = []
    for side in sides:
        draw.shuffle(side)
        parts = (
            pl.DataFrame(part, {"at": pl.Int64, "text": pl.Binary}, orient="row") for part in (side[:cut], side[cut:])
        )
        frames.append(pl.concat(parts, rechunk=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equal_parts, "SAMPLE", 1)  # so that rows are paired by their numbers
        left, right = different(*frames)
    apart = {at for at, (one, other) in enumerate(given) if one != other}
    assert sorted(left["at"]) == sorted(right["at"]) == sorted(apart)
    assert {*left.rows()} == {row for row in sides[0] if row[0] in apart}


def test_every_case_is_measured():
    """Five cases, each with a time."""
    table = bench.measure(2000, 5)
    assert len(table) == 5
    assert all(wall > 0 for _, wall, _ in table)
