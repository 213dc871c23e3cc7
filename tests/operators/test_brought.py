"""Updates that are brought to shards: dealt as they were read, or all at once, they are the same rows in the same shards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, TakenLanes
from ddcli.engine.shards import Arriving, Routing, brought, dealt_to, exchanged
from ddcli.engine.workers import Workers
from tests.kernels.support import matrices

WIDTH = 4


def ways() -> st.SearchStrategy[Routing]:
    """Return ways by which a reader is brought rows of `WIDTH` lanes."""
    lanes = st.permutations(range(WIDTH)).flatmap(lambda all_: st.integers(1, WIDTH).map(lambda n: tuple(all_[:n])))
    taken = st.none() | lanes.flatmap(lambda some: st.builds(TakenLanes, st.just(some), st.integers(0, len(some))))
    return st.builds(Routing, lanes, taken)


@given(
    st.lists(st.tuples(matrices(WIDTH), st.booleans(), st.booleans()), min_size=1, max_size=4),
    ways(),
    ways(),
    st.integers(1, 3),
)
def test_dealt_as_it_was_read_is_as_exchanged(parts, one, other, count):
    """Two readers, who may take the same, of parts that were dealt and others that were not."""
    workers = Workers(count)
    readers = {7: one, 9: other}
    deltas = [Delta(matrix, inserts=inserts) for matrix, _, inserts in parts]
    dealt = [
        dealt_to(readers, delta, count) if deals else delta for delta, (_, deals, _) in zip(deltas, parts, strict=True)
    ]
    assert [delta.rows for delta in dealt] == [delta.rows for delta in deltas]
    for reader, way in readers.items():
        expected = exchanged([*deltas], way, workers)
        found = brought([*dealt], reader, way, workers)
        assert any(deals for _, deals, _ in parts) == all(isinstance(each, Arriving) for each in found)
        for here, delta in zip(found, expected, strict=True):
            assert here.rows == delta.rows
            arrived = here.arrived() if isinstance(here, Arriving) else here
            lanes = range(arrived.updates.shape[1])
            assert kernels.sort_by(arrived.updates, lanes).tolist() == kernels.sort_by(delta.updates, lanes).tolist()
            assert (arrived.inserts, arrived.taken) == (delta.inserts, delta.taken)
