"""Updates that are exchanged between shards: distributed as they were read, or all at once, they are the same rows in the same shards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import heap, kernels
from ddcli.engine.memory_store import PackedArrival, Routing, distributed_to, exchanged, exchanged_for
from ddcli.engine.operators.base import Delta
from ddcli.engine.process import Workers
from tests.kernels.support import matrices

WIDTH = 4


def ways() -> st.SearchStrategy[Routing]:
    """Return routings of a reader of rows of `WIDTH` lanes."""
    lanes = st.permutations(range(WIDTH)).flatmap(lambda all_: st.integers(1, WIDTH).map(lambda n: tuple(all_[:n])))
    return st.builds(Routing, lanes, st.none() | lanes)


@given(
    st.lists(st.tuples(matrices(WIDTH), st.booleans(), st.booleans()), min_size=1, max_size=4),
    ways(),
    ways(),
    st.integers(1, 3),
)
def test_distributed_as_it_was_read_is_as_exchanged(parts, one, other, count):
    """Two readers, who may take the same, of parts that were distributed and others that were not."""
    workers = Workers(count)
    readers = {7: one, 9: other}
    deltas = [Delta(matrix, inserts=inserts) for matrix, _, inserts in parts]
    distributed = [
        distributed_to(readers, delta, count) if deals else delta
        for delta, (_, deals, _) in zip(deltas, parts, strict=True)
    ]
    assert [delta.rows for delta in distributed] == [delta.rows for delta in deltas]
    for reader, way in readers.items():
        expected = exchanged([*deltas], way, workers)
        found = exchanged_for([*distributed], reader, way, workers)
        assert any(deals for _, deals, _ in parts) == all(isinstance(each, PackedArrival) for each in found)
        for here, delta in zip(found, expected, strict=True):
            assert here.rows == delta.rows
            arrived = here.arrived(heap.BufferPool()) if isinstance(here, PackedArrival) else here
            lanes = range(arrived.updates.shape[1])
            assert kernels.sort_by(arrived.updates, lanes).tolist() == kernels.sort_by(delta.updates, lanes).tolist()
            assert (arrived.inserts, arrived.taken) == (delta.inserts, delta.taken)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(0, 8)), max_size=30))
def test_memory_is_used_again_when_nobody_refers_to_it(steps):
    """Matrices, and rows of them that outlive them, keep what was written, whatever comes and goes beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heap, "LARGE", 1)
        made, held = heap.BufferPool(), []
        for number, (rows, width, leaves) in enumerate(steps):
            matrix = made.matrix(rows, width)
            assert matrix.shape == (rows, width)
            assert matrix.flags.c_contiguous
            matrix[:] = number
            held.append((number, matrix[rows // 2 :] if leaves % 2 else matrix))
            del matrix
            if leaves < len(held):
                del held[leaves]
            assert all((matrix == number).all() for number, matrix in held)


def test_one_matrix_after_the_other_lies_in_one_place():
    made = heap.BufferPool()
    shape = heap.LARGE // 4 + 1, 4
    places = set()
    for _ in range(3):
        matrix = made.matrix(*shape)
        places.add(matrix.ctypes.data)
        del matrix
    assert len(places) == 1
    one, other = made.matrix(*shape), made.matrix(*shape)
    assert not np.may_share_memory(one, other)


def test_threads_are_given_different_memory():
    made, shape = heap.BufferPool(), (heap.LARGE // 4 + 1, 4)

    def fill(number):
        for _ in range(20):
            matrix = made.matrix(*shape)
            matrix[:: shape[0] // 50] = number
            assert (matrix[:: shape[0] // 50] == number).all()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(fill, range(4)))
