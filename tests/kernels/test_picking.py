"""Picking rows and lanes, distributing keys to shards: against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels import locate
from tests.kernels.support import EXTREME, LANES, canonical, interpreted, matrices, matrix

KEYS = st.lists(st.tuples(LANES, LANES), max_size=8).map(lambda rows: matrix(sorted(set(rows)), 2))


@given(matrices(4, consolidated=True), KEYS)
def test_gather_keeps_the_rows_of_the_keys(m, keys):
    """In order, all of them, no others."""
    wanted = set(map(tuple, keys.tolist()))
    assert kernels.gather(m, 2, keys).tolist() == [row for row in m.tolist() if tuple(row[:2]) in wanted]


@given(matrices(4, consolidated=True), st.integers(0, 3))
def test_distinct_keys(m, nk):
    """Each once, sorted."""
    keys = kernels.distinct_keys(m, nk)
    assert keys.shape[1] == nk
    assert list(map(tuple, keys.tolist())) == sorted({tuple(row[:nk]) for row in m.tolist()})


@given(matrices(3), st.lists(st.integers(0, 2), max_size=5))
def test_take_permutes_projects_and_repeats(m, lanes):
    """Into a matrix of its own."""
    result = kernels.take(m, lanes)
    assert result.tolist() == [[row[lane] for lane in lanes] for row in m.tolist()]
    assert result.flags.c_contiguous
    assert result.shape == (len(m), len(lanes))


@given(matrices(3), st.lists(st.integers(0, 2), max_size=5), st.data())
def test_take_picks_rows(m, lanes, data):
    """In any order, some more than once."""
    rows = data.draw(st.lists(st.integers(0, len(m) - 1), max_size=8)) if len(m) else []
    result = kernels.take(m, lanes, np.array(rows, np.int64))
    assert result.tolist() == [[int(m[row, lane]) for lane in lanes] for row in rows]
    assert result.shape == (len(rows), len(lanes))


@given(matrices(3), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.integers(0, 3), st.data())
def test_columns_and_rows_are_put_among_lanes(m, before, after, more, lanes, data):
    """All rows or some, in pieces, from any lane on; other lanes stay, and what columns have beyond the rows is left."""
    picked = data.draw(st.none() | st.lists(st.integers(0, len(m) - 1), max_size=8) if len(m) else st.none())
    wanted = m if picked is None else m[picked]
    tail = np.ascontiguousarray(m[:, lanes:])
    rows = None if picked is None else np.array(picked, np.int64)
    out = np.full((len(wanted), before + 3 + after), -5)
    size = data.draw(st.integers(1, 5))
    for first in range(0, len(out), size):
        some = wanted[first : first + size]
        columns = np.full((lanes, len(some) + more), 7)
        columns[:, : len(some)] = some[:, :lanes].T
        kernels.put_columns(columns, out, before, first, len(some), tail, rows)
    assert out[:, before : before + 3].tolist() == wanted.tolist()
    assert (np.delete(out, range(before, before + 3), axis=1) == -5).all()


def test_what_does_not_exist_is_not_put():
    """No lane or row of the result, no row of the tail, no value of a column: nothing is written to or read outside of what there is."""
    columns, tail, out = np.zeros((1, 2), np.int64), np.zeros((3, 2), np.int64), np.zeros((2, 4), np.int64)
    kernels.put_columns(columns, out, 1, 0, 2, tail, np.array([2, 0]))
    for at, first, count in ((-1, 0, 2), (2, 0, 2), (0, -1, 2), (0, 1, 2), (0, 0, 3), (0, 0, -1)):
        with pytest.raises(ValueError, match="lanes"):
            kernels.put_columns(columns, out, at, first, count, tail, np.array([2, 0]))
    for rows in (None, np.array([0]), np.array([0, 3]), np.array([-1, 0])):
        with pytest.raises(ValueError, match="lanes"):
            kernels.put_columns(columns, out, 0, 0, 2, tail, rows)
    with pytest.raises(ValueError, match="lanes"):
        kernels.put_columns(columns[:, :1].copy(), out, 0, 0, 2, tail, np.array([2, 0]))


@given(matrices(3), st.lists(st.integers(0, 2), min_size=1, max_size=4), st.data())
def test_numbers_are_added_to_lanes_elsewhere(m, lanes, data):
    """The rows themselves stay as they are: others may read them."""
    numbers = data.draw(st.lists(LANES, min_size=len(lanes), max_size=len(lanes)))
    expected = [[row[lane] + number for lane, number in zip(lanes, numbers, strict=True)] for row in m.tolist()]
    fits = all(EXTREME[0] <= each <= EXTREME[1] for row in expected for each in row)
    before = m.tolist()
    found = kernels.take_sums(m, np.array(lanes), np.array(numbers))
    assert (found is not None) == fits
    assert found is None or found.tolist() == expected
    assert m.tolist() == before


@given(st.lists(matrices(3), min_size=1, max_size=4))
def test_matrices_are_put_together_out_of_a_list(batches):
    """It is empty then; their rows are in the order of its matrices."""
    expected = [row for batch in batches for row in batch.tolist()]
    assert kernels.concat_out_of(batches).tolist() == expected
    assert not batches


@given(st.integers(0, 1 << 30), st.sampled_from([1, 255, 256, 257, 700]), st.sampled_from([1, 30, 20_000]))
def test_many_keys_are_located_in_sources_of_any_size(seed, count, most):
    """Near each other and far apart, some in no source."""
    random = np.random.default_rng(seed)
    keys = np.unique(random.integers(0, random.choice([count, 50 * count]) + 1, count))
    values = [np.sort(random.integers(-3, keys[-1] + 3, random.integers(0, most + 1))) for _ in range(3)]
    bounds, rows = locate(keys[:, None].copy(), [np.stack([each, each], axis=1) for each in values])
    sides = [np.searchsorted(each, keys, side) for each in values for side in ("left", "right")]
    assert bounds.tolist() == np.stack(sides, axis=1).tolist()
    assert rows == sum((stop - start).sum() for start, stop in zip(sides[::2], sides[1::2], strict=True))


def mixed(lanes: list[int]) -> int:
    """Hash a key by the formula in the documentation."""
    h, top = 0x9E3779B97F4A7C15, 1 << 64
    for lane in lanes:
        h ^= lane % top
        h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 % top
        h = (h ^ h >> 27) * 0x94D049BB133111EB % top
        h ^= h >> 31
    return h


@given(st.lists(st.tuples(LANES, LANES, st.just(1)), max_size=9), st.integers(1, 1000))
def test_shards_are_as_documented(rows, shards):
    """The formula is part of the layout of files."""
    expected = [(mixed(list(row[:2])) >> 32) * shards >> 32 for row in rows]
    assert kernels.shard_of(matrix(rows, 3), 2, shards).tolist() == expected


@given(st.lists(matrices(4), min_size=1, max_size=3), st.lists(st.integers(0, 3), max_size=3), st.integers(1, 9))
def test_exchange_deals_rows_to_their_shards(sources, lanes, shards):
    """In order, by any lanes, into matrices of their own."""
    m = np.concatenate(sources)
    which = kernels.shard_of(kernels.take(m, lanes), len(lanes), shards).tolist()
    parts = kernels.exchange(sources, lanes, shards)
    expected = [[row for row, at in zip(m.tolist(), which, strict=True) if at == shard] for shard in range(shards)]
    assert [part.tolist() for part in parts] == expected
    assert all(part.shape[1] == 4 and part.flags.c_contiguous for part in parts)


def test_exchange_gives_its_input_where_one_shard_has_it_all():
    """Copies only what is distributed."""
    m = np.array([[3, 1], [3, 2]])
    assert kernels.exchange([m], [1], 1)[0] is m
    assert sum(part is m for part in kernels.exchange([m[:0], m], [0], 5)) == 1


@given(st.lists(matrices(4, consolidated=True), min_size=1, max_size=4), KEYS)
def test_gather_bounds_of_several_sources(sources, keys):
    """By key, then by source."""
    bounds = locate(keys, sources)[0]
    expected = [row for key in keys.tolist() for m in sources for row in m.tolist() if row[:2] == key]
    assert kernels.gather_bounds(sources, bounds).tolist() == expected


def test_shards_of_some_keys_never_change():
    """Golden values."""
    m = np.array([[0, 1], [1, 1], [-1, 1], [EXTREME[0], 1]])
    assert kernels.shard_of(m, 1, 1 << 20).tolist() == [926218, 937367, 909477, 295404]


def test_concat():
    """Copies only where there is more than one with rows."""
    a, b = np.ones((1, 2), np.int64), np.empty((0, 2), np.int64)
    assert kernels.concat([b, a, b]) is a
    assert kernels.concat([b]) is b
    assert kernels.concat([a, a]).tolist() == [[1, 1], [1, 1]]


def test_wrong_shapes_are_refused():
    """Before a kernel would read beyond a row."""
    m = np.ones((2, 3), np.int64)
    with pytest.raises(ValueError, match="lanes"):
        kernels.take(m, [3])
    for rows, lanes in [([2], [0]), ([-1], [0]), ([0], [3])]:
        with pytest.raises(ValueError, match="lanes"):
            kernels.take(m, lanes, np.array(rows))
    with pytest.raises(ValueError, match="keys"):
        kernels.gather(m, 1, m)
    with pytest.raises(ValueError, match="shards"):
        kernels.shard_of(m, 1, 0)
    with pytest.raises(ValueError, match="shards"):
        kernels.exchange([m], [1], 0)
    with pytest.raises(ValueError, match="lanes"):
        kernels.exchange([m], [3], 2)
    with pytest.raises(ValueError, match="not there"):
        kernels.gather_bounds([m], np.array([[1, 3]]))
    with pytest.raises(ValueError, match="widths"):
        kernels.gather_bounds([m, m[:, :2]], np.array([[0, 1, 0, 1]]))


def test_interpreted_kernels_give_the_same():
    """The same source as plain Python."""
    m = matrix(canonical(np.random.default_rng(1).integers(-3, 4, (60, 4))), 4)
    keys = np.array([[-2, 0], [1, 1], [3, 3]])
    calls = [
        lambda: kernels.gather(m, 2, keys),
        lambda: kernels.distinct_keys(m, 2),
        lambda: kernels.take(m, [3, 0]),
        lambda: kernels.shard_of(m, 2, 7),
        lambda: kernels.exchange([m, m], [2, 0], 3)[1],
        lambda: kernels.gather_bounds([m, m], np.array([[0, 2, 5, 9], [2, 2, 9, len(m)]])),
    ]
    compiled = [call().tolist() for call in calls]
    with interpreted():
        assert [call().tolist() for call in calls] == compiled
