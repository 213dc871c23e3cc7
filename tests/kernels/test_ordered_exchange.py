"""Rows that are distributed to shards and sorted there, in one: the exchange, and a stable sort of each shard."""

from __future__ import annotations

from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels import partition, sort
from ddcli.engine.process import Workers
from tests.kernels.support import matrices


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    """Few rows are distributed as many are, into many pieces."""
    monkeypatch.setattr(partition, "MANY", 1)
    monkeypatch.setattr(partition, "FEWEST", 0)
    monkeypatch.setattr(sort, "TARGET", 1)


def expected(sources, route, shards, taken, by):
    """Return each shard's rows as sorting what came there does."""
    parts = [part[:, taken].tolist() for part in kernels.exchange(sources, route, shards)]
    return [sorted(part, key=itemgetter(slice(by))) for part in parts]


@given(
    st.integers(1, 5).flatmap(lambda width: st.lists(matrices(width), min_size=1, max_size=4)),
    st.integers(1, 5),
    st.data(),
)
def test_each_shard_comes_sorted_stably(sources, shards, data):
    """Rows of several sources, packed or not; equal rows, and values at both ends of their range."""
    width = sources[0].shape[1]
    route = data.draw(st.permutations(range(width)))[: data.draw(st.integers(0, width))]
    taken = data.draw(st.permutations(range(width)))[: data.draw(st.integers(1, width))]
    by = data.draw(st.integers(1, len(taken)))
    wanted = expected(sources, route, shards, taken, by)
    given_sources = [kernels.packed(m) if data.draw(st.booleans()) else m for m in sources if len(m)]
    if given_sources:
        found = partition.exchange_in_order(given_sources, route, shards, Workers(shards).each, taken, by)
        if found is None:
            largest = np.ascontiguousarray(max(sources, key=len)[:, taken])
            assert kernels.is_sorted(largest, by), "what is in no order is sorted"
        else:
            assert [part.tolist() for part in found] == wanted
            assert not given_sources, "sources are let go of"


@pytest.mark.parametrize("keys", ["few", "one", "backwards", "skewed", "wide"])
@pytest.mark.parametrize("packs", [False, True])
def test_many_rows_in_any_order(keys, packs, monkeypatch):
    """Pieces of more rows than are sorted at once, and of none; as many as a load has."""
    monkeypatch.undo()
    rows, random = 600_000, np.random.default_rng(3)
    key = {
        "few": random.integers(0, 7, rows),
        "one": np.full(rows, -5),
        "backwards": np.arange(rows)[::-1],
        "skewed": np.where(random.random(rows) < 0.001, 2**62, random.integers(0, 50, rows)),
        "wide": random.integers(-(2**63), 2**63 - 1, rows),
    }[keys]
    m = np.stack([random.integers(-3, 3, rows), key, np.arange(rows) % 11, np.ones(rows, np.int64)], axis=1)
    sources = [np.ascontiguousarray(part) for part in np.array_split(m, 5)]
    wanted = [kernels.sort_by(part[:, [1, 0, 3]].copy(), [0]) for part in kernels.exchange(sources, [1], 2)]
    sources = [kernels.packed(part) if packs else part for part in sources]
    found = kernels.exchange(sources, [1], 2, Workers(2).each, [1, 0, 3], 1)
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


@given(
    st.integers(1, 4).flatmap(lambda width: st.lists(matrices(width), min_size=1, max_size=4)),
    st.booleans(),
    st.data(),
)
def test_packed_parts_come_in_one(parts, in_order, data):
    """Sorted stably, or as they were where the largest part is sorted already."""
    by = data.draw(st.integers(0, parts[0].shape[1]))
    if in_order and by:
        parts = [kernels.sort_by(part, range(by)) for part in parts]
    rows = [row for part in parts for row in part.tolist()]
    found = kernels.unpacked([kernels.packed(part) for part in parts], by).tolist()
    largest = max(parts, key=len)
    assert found == (rows if not by or kernels.is_sorted(largest, by) else sorted(rows, key=itemgetter(slice(by))))
