"""Rows that wait packed, against the rows themselves."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine import kernels
from ddcli.engine.kernels.packed_rows import BLOCK
from tests.kernels.support import interpreted, matrices

WIDTHS = st.integers(1, 4)


def lane(random: np.random.Generator, rows: int, bits: int) -> np.ndarray:
    """Return integers that lie within 2**bits of each other, anywhere among the 64-bit ones."""
    if bits == 64:
        return random.integers(-(2**63), 2**63 - 1, rows, endpoint=True)
    least = int(random.integers(-(2**63), 2**63 - 2**bits, endpoint=True))
    return least + random.integers(0, 2**bits - 1, rows, endpoint=True)


@given(WIDTHS.flatmap(matrices), st.data())
def test_what_was_packed_is_unpacked(m, data):
    """All lanes, and some in any order; extremes included."""
    found = kernels.packed(m)
    assert (len(found), found.shape) == (len(m), m.shape)
    assert found.matrix().tolist() == m.tolist()
    lanes = data.draw(st.permutations(range(m.shape[1])))[: data.draw(st.integers(0, m.shape[1]))]
    assert found.matrix(lanes).tolist() == m[:, lanes].tolist()


@given(st.integers(0, 2**32), st.sampled_from([1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7]))
def test_every_width_in_bits_survives(seed, rows):
    """Lanes of any number of bits, blocks that are full or not."""
    random = np.random.default_rng(seed)
    m = np.stack([lane(random, rows, int(bits)) for bits in random.integers(0, 65, 5)], axis=1)
    assert (kernels.packed(m).matrix() == m).all()


def test_narrow_lanes_take_little():
    """A lane that has one value in all rows takes no room but for its head."""
    m = np.stack([np.arange(10_000), np.full(10_000, 7), np.ones(10_000, np.int64)], axis=1)
    assert kernels.packed(m)._words.nbytes < m.nbytes // 10


@given(WIDTHS.flatmap(lambda width: st.lists(matrices(width), min_size=1, max_size=4)), st.integers(1, 3), st.data())
def test_packed_rows_are_distributed_as_rows_are(sources, shards, data):
    """Some sources packed, others not; all lanes, or some in another order."""
    width = sources[0].shape[1]
    lanes = data.draw(st.permutations(range(width)))[: data.draw(st.integers(0, width))]
    expected = [part.tolist() for part in kernels.exchange(sources, lanes, shards)]
    some = [kernels.packed(m) if data.draw(st.booleans()) else m for m in sources]
    assert [part.tolist() for part in kernels.exchange(some, lanes, shards)] == expected
    taken = data.draw(st.permutations(range(width)))[: data.draw(st.integers(1, width))]
    found = kernels.exchange(some, lanes, shards, taken=taken)
    assert [part.tolist() for part in found] == [[[row[lane] for lane in taken] for row in part] for part in expected]


@given(WIDTHS.flatmap(matrices), st.integers(1, 4), st.data())
def test_rows_are_distributed_and_packed_as_they_are_exchanged(m, shards, data):
    """All lanes, or some in another order; shards without rows."""
    width = m.shape[1]
    lanes = data.draw(st.permutations(range(width)))[: data.draw(st.integers(0, width))]
    taken = data.draw(st.none() | st.permutations(range(width)).map(lambda all_: all_[: max(1, width - 1)]))
    expected = [part.tolist() for part in kernels.exchange([m], lanes, shards, taken=taken)]
    assert [part.matrix().tolist() for part in kernels.distributed_packed(m, lanes, shards, taken)] == expected


def test_interpreted_kernels_give_the_same():
    """The same source as plain Python."""
    random = np.random.default_rng(5)
    m = np.stack([lane(random, BLOCK + 9, bits) for bits in (0, 1, 7, 31, 33, 63, 64)], axis=1)
    with interpreted():
        found = kernels.packed(m)
        assert (found.matrix() == m).all()
    assert (found.matrix() == m).all()
