"""Waiting rows in less memory: for each lane of a block its least value, and the differences of the others to it in as few bits as the largest takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import inline
from ddcli.engine.kernels.hashes import U0, U1
from ddcli.engine.kernels.page_headers import integer

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK: Final = 512
"""Rows whose lanes are packed one after the other while they are in the processor's first cache."""
HEAD: Final = 2
"""Words before a lane's values: the least value, and the bits that each difference takes."""
FIRST, LAST = -(2**63), 2**63 - 1
MOST: Final = np.uint64(LAST)


@kernel("MVHVU")
def pack_rows(m: np.ndarray, lanes: np.ndarray, numbers: np.ndarray, values: np.ndarray, words: np.ndarray) -> int:
    """Write blocks of the rows with these numbers, lane by lane; return how many words they take. No value straddles two words.

    `values` has room for the values of a block.
    """
    rows, o = numbers.size, 0
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        for c in range(lanes.size):
            lane = lanes[c]
            least = m[np.int64(numbers[start]), lane]
            most = least
            for i in range(count):
                value = m[np.int64(numbers[start + i]), lane]
                values[i] = value
                least = min(least, value)
                most = max(most, value)
            low = np.uint64(least)
            span = np.uint64(most) - low
            bits = 0
            while span > U0:
                span >>= U1
                bits += 1
            words[o] = low
            words[o + 1] = np.uint64(bits)
            o += HEAD
            if bits > 0:
                each, per = np.uint64(bits), 64 // bits
                i = 0
                while i < count:
                    word, shift = U0, U0
                    for at in range(i, min(i + per, count)):
                        word |= (np.uint64(values[at]) - low) << shift
                        shift += each
                    words[o] = word
                    o += 1
                    i += per
    return o


@inline
def unpack_block(words: np.ndarray, o: int, places: np.ndarray, out: np.ndarray, start: int, end: int) -> int:
    """Write the rows of a block, packed from word o on, to rows start to end of `out`, each lane to its place; return where the next block begins."""
    for c in range(places.size):
        place = places[c]
        low = words[o]
        bits = integer(words[o + 1])
        o += HEAD
        per = 64 // bits if bits > 0 else 0
        if place < 0:
            o += (end - start + per - 1) // per if per > 0 else 0
        elif per == 0:
            for i in range(start, end):
                out[i, place] = integer(low)
        elif per == 1:
            for i in range(start, end):
                out[i, place] = integer(low + words[o])
                o += 1
        else:
            each = np.uint64(bits)
            mask = (U1 << each) - U1
            i = start
            while i < end:
                word = words[o]
                o += 1
                for at in range(i, min(i + per, end)):
                    out[at, place] = integer(low + (word & mask))
                    word >>= each
                i += per
    return o


@kernel("UVM")
def unpack_rows(words: np.ndarray, places: np.ndarray, out: np.ndarray) -> int:
    """Unpack all rows, each lane to its place; a lane with a negative place is skipped."""
    rows, o = out.shape[0], 0
    for start in range(0, rows, BLOCK):
        o = unpack_block(words, o, places, out, start, min(start + BLOCK, rows))
    return o


class PackedRows:
    """A packed matrix."""

    __slots__ = ("_words", "shape")

    def __init__(self, words: np.ndarray, shape: tuple[int, int]) -> None:
        self._words = words
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]

    def matrix(self, lanes: Sequence[int] | None = None) -> np.ndarray:
        """Return the rows in their order, with all their lanes or the given ones, which are distinct."""
        wanted = range(self.shape[1]) if lanes is None else lanes
        out = np.empty((len(self), len(wanted)), np.int64)
        self.unpack(out, wanted)
        return out

    def unpack(self, out: np.ndarray, lanes: Sequence[int]) -> None:
        """Write some lanes of the rows, in their order."""
        assert unpack_rows(self._words, self._places(lanes), out) == self._words.size, "what was packed is unpacked"

    def _places(self, lanes: Sequence[int]) -> np.ndarray:
        """Return the place of each lane among the given ones; a negative number for the others."""
        places = np.full(self.shape[1], -1, np.int64)
        places[list(lanes)] = range(len(lanes))
        return places


def packed(m: np.ndarray) -> PackedRows:
    """Return a matrix packed.

    >>> packed(np.array([[7, -1], [9, -1]])).matrix([1, 0]).tolist()
    [[-1, 7], [-1, 9]]
    """
    return packed_some(m, range(m.shape[1]), np.arange(len(m), dtype=np.uint32))


def packed_some(m: np.ndarray, lanes: Sequence[int], numbers: np.ndarray) -> PackedRows:
    """Return some lanes of the rows with these numbers packed."""
    rows, width = len(numbers), len(lanes)
    words = np.empty((rows + HEAD * (-(-rows // BLOCK))) * width, np.uint64)
    size = pack_rows(m, np.array(lanes, np.int64), numbers, np.empty(BLOCK, np.int64), words)
    return PackedRows(words[:size].copy(), (rows, width))
