"""Moving updates in time, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from tests.kernels.support import EXTREME, LANES, interpreted, matrices

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
