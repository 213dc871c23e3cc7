"""Merging against sums in a dictionary.

Rows that share times and diff, against the matrix that they stand for.

Moving updates in time, against plain Python.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels import sort, uniform
from tests.kernels.support import EXTREME, LANES, canonical, interpreted, matrices, matrix


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
        with pytest.raises(ValueError, match=r"widths|dimension"):
            merge([np.ones((1, 3), np.int64), np.ones((1, 2), np.int64)])


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
    """As many as are distributed into pieces first; nothing is written elsewhere."""
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


SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 3), st.booleans(), st.booleans())


def shifted(m, nt, *, lower, upper):
    """Return what a temporal filter means for each update."""
    rows = []
    for *lanes, diff in m.tolist():
        *data, time = lanes[:-nt], lanes[-nt]
        data, rest = data[0], lanes[len(lanes) - nt + 1 :]
        until = data.pop() if upper else None
        begin = max(time, data.pop()) if lower else time
        end = max(time, until) if upper else None
        if end is None or begin < end:
            rows.append([*data, begin, *rest, diff])
            if upper:
                rows.append([*data, end, *rest, -diff])
    return rows


def judge(m, nt, lower, upper):
    """Compare the kernels with their meaning."""
    result = kernels.shift(m, nt, lower=lower, upper=upper)
    assert result.shape[1] == m.shape[1] - lower - upper
    assert result.tolist() == shifted(m, nt, lower=lower, upper=upper)
    entered = kernels.enter_at(m, nt)
    at = m.shape[1] - nt - 2
    assert entered.tolist() == [[*row[:at], *row[at + 1 : -2], max(row[-2], row[at]), row[-1]] for row in m.tolist()]


@given(SHAPES, st.data())
def test_shift_and_enter_at(shape, data):
    """Any number of data lanes and of rounds, either bound or both."""
    kept, nt, lower, upper = shape
    judge(data.draw(matrices(kept + 2 + nt + 1)), nt, lower, upper)


def test_interpreted_kernels_give_the_same():
    """The same source as plain Python."""
    m = np.random.default_rng(2).integers(-3, 4, (40, 7))
    with interpreted():
        for bounds in ((True, True), (True, False), (False, True)):
            judge(m, 2, *bounds)
        joined = m.copy()
        kernels.join_times(joined, 4, m[:, :2].copy())
    assert (joined[:, 4:6] == np.maximum(m[:, 4:6], m[:, :2])).all()


@given(matrices(5), st.integers(0, 2), st.data())
def test_join_times(m, at, data):
    """In place, beside lanes that stay."""
    times = np.array(data.draw(st.lists(st.tuples(LANES, LANES), min_size=len(m), max_size=len(m))), np.int64)
    expected = [
        [*row[:at], max(row[at], time[0]), max(row[at + 1], time[1]), *row[at + 2 :]]
        for row, time in zip(m.tolist(), times.reshape(-1, 2).tolist(), strict=True)
    ]
    kernels.join_times(m, at, times.reshape(-1, 2))
    assert m.tolist() == expected


def test_the_least_diff_has_no_negation():
    """It is refused where the record would leave."""
    m = np.array([[1, 3, 0, EXTREME[0]]])
    assert kernels.shift(m, 1, lower=True, upper=False).tolist() == [[1, 3, EXTREME[0]]]
    with pytest.raises(kernels.DiffOverflow, match="temporal filter"):
        kernels.shift(m, 1, lower=False, upper=True)


def test_wrong_shapes_are_refused():
    """Before a kernel would read beyond a row."""
    with pytest.raises(ValueError, match="lanes"):
        kernels.shift(np.ones((1, 3), np.int64), 1, lower=True, upper=True)
    with pytest.raises(ValueError, match="lanes"):
        kernels.enter_at(np.ones((1, 3), np.int64), 2)
    with pytest.raises(ValueError, match="times"):
        kernels.join_times(np.ones((1, 3), np.int64), 2, np.ones((1, 2), np.int64))
