"""Arrangements of updates that were exchanged in the lanes that they keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.heap import BufferPool
from ddcli.engine.kernels import sort
from ddcli.engine.memory_store import PackedArrival, Routing, distributed_to, exchanged_for
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.join import Arrange
from ddcli.engine.process import Workers
from ddcli.engine.rounds import Interval
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace
from tests.kernels.support import matrices

INTERVAL = Interval(Frontier([(0,)]), Frontier([(9,)]))


@given(st.integers(1, 3).flatmap(lambda data: matrices(data + 2)), st.integers(1, 3), st.booleans(), st.data())
def test_lanes_are_taken_on_the_way_or_there(updates, shards, deals, data):
    """Each shard has the same batch, whether rows come as they were or in the lanes that are kept, distributed as they were read or not."""
    width = updates.shape[1] - 2
    lanes = data.draw(st.permutations(range(width)))[: data.draw(st.integers(1, width))]
    taken = Arrange(lanes, Trace(1, len(lanes) - 1, 1, since=Frontier([(0,)]))).takes(updates.shape[1])
    assert taken == (*lanes, width, width + 1)
    found = []
    for wanted in (None, taken):
        way = Routing((lanes[0],), wanted)
        given = [distributed_to({3: way}, Delta(updates), shards) if deals else Delta(updates) for _ in range(2)]
        there = [
            delta.arrived(BufferPool()) if isinstance(delta, PackedArrival) else delta
            for delta in exchanged_for(given, 3, way, Workers(shards))
        ]
        assert all(delta.taken == (wanted is not None) for delta in there)
        arranges = [Arrange(lanes, Trace(1, len(lanes) - 1, 1, since=Frontier([(0,)]))) for _ in there]
        found.append([one.step([delta], INTERVAL).updates.tolist() for one, delta in zip(arranges, there, strict=True)])
    assert found[0] == found[1]
    assert sum(map(len, found[0])) == len(
        kernels.consolidate(kernels.take(kernels.concat([updates] * 2), [*lanes, width, width + 1]))
    )


@pytest.mark.parametrize("lanes", [(0, 1), (1, 0)])
@pytest.mark.parametrize("holder", ["nobody", "delta", "matrix", "view", "whole"])
def test_what_others_have_is_not_written_over(lanes, holder):
    """Many updates are sorted where they lie only if nobody has them, or what they are a part of."""
    whole = np.random.default_rng(5).integers(1, 1000, (2 * sort.PIECE, 4))
    before, width = whole[: sort.PIECE + 7].copy(), [*lanes, 2, 3]
    updates = whole[: sort.PIECE + 7] if holder == "whole" else before.copy()
    delta = Delta(updates)
    held = {"nobody": None, "delta": delta, "matrix": updates, "view": updates[::2], "whole": whole}[holder]
    deltas = [delta]
    del delta, updates, whole
    arrange = Arrange(lanes, Trace(1, 1, 1, since=Frontier([(0,)])))
    assert np.array_equal(arrange.step(deltas, INTERVAL).updates, kernels.consolidate(kernels.take(before, width)))
    if holder != "nobody":
        there = held.updates if holder == "delta" else held
        assert np.array_equal(there[: len(before)], before[::2] if holder == "view" else before)
