"""Merging against sums in a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from ddcli.engine import kernels
from tests.kernels.support import EXTREME, canonical, interpreted, matrices, matrix


@given(matrices(3, consolidated=True), matrices(3, consolidated=True), matrices(3, consolidated=True))
def test_merge_is_the_sum_of_its_inputs(a, b, c):
    """Any number of inputs gives the sorted, consolidated sum."""
    assert kernels.merge([a, b, c]).tolist() == canonical(a, b, c)


def test_merge_gives_the_only_input_with_rows_itself():
    """A merge of one batch with empty ones copies nothing."""
    batch = np.array([[1, 1]])
    empty = np.empty((0, 2), np.int64)
    assert kernels.merge([empty, batch, empty]) is batch
    assert kernels.merge([empty]) is empty


@pytest.mark.parametrize("size", [3, 300, 5000])
@pytest.mark.parametrize("count", [2, 3, 12])
def test_merge_any_number_of_any_size(size, count):
    """All at once where they are few, two at a time where they are not."""
    draw = np.random.default_rng(size + count)
    batches = [matrix(canonical(draw.integers(-9, 10, (size // at, 3))), 3) for at in range(1, count + 1)]
    merged = kernels.merge(batches)
    assert merged.tolist() == canonical(*batches)
    if size < 5000:
        with interpreted():
            assert kernels.merge(batches).tolist() == merged.tolist()


@given(matrices(2, consolidated=True), matrices(2, consolidated=True))
def test_merge_in_portions_ends_with_the_same_result(a, b):
    """Fuel of one row at a time only takes longer."""
    merge = kernels.Merge(a, b)
    steps = 1
    while not merge.work(1):
        steps += 1
        assert steps <= len(a) + len(b) + 1
    assert merge.result.tolist() == canonical(a, b)


def test_long_runs_of_one_side_are_copied_whole():
    """Runs longer than the streak that starts a copy, on both sides and across equal rows."""
    a = np.array([[i, 1] for i in range(200)])
    b = np.array([[i, -1] for i in (50, 100)] + [[i, 2] for i in range(300, 400)])
    assert kernels.merge([a, b]).tolist() == canonical(a, b)
    merge = kernels.Merge(b, a)
    while not merge.work(7):
        pass
    assert merge.result.tolist() == canonical(a, b)


@pytest.mark.parametrize(("x", "y"), [(EXTREME[1], 1), (EXTREME[0], -1)])
def test_a_sum_of_diffs_out_of_range_is_refused(x, y):
    """The message says what was being added, and where."""
    with pytest.raises(kernels.DiffOverflow, match=rf"{x} \+ {y}, at lanes \(7, 8\)"):
        kernels.merge([np.array([[7, 8, x]]), np.array([[7, 8, y]])])
    with pytest.raises(kernels.DiffOverflow, match=rf"{x} \+ {y}, at lanes \(7, 8\)"):
        kernels.Merge(np.array([[7, 8, x]]), np.array([[7, 8, y]])).work(9)


def test_batches_of_different_widths_are_refused():
    """Before a kernel would read beyond a row."""
    for merge in (kernels.merge, lambda batches: kernels.Merge(*batches)):
        with pytest.raises(ValueError, match="widths"):
            merge([np.ones((1, 3), np.int64), np.ones((1, 2), np.int64)])
