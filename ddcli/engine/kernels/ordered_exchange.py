"""Deal many rows to shards and, in the same pass, into the pieces in which each shard sorts them.

Sorting rows after an exchange moves every row twice more, through fresh memory: once into pieces that fit the cache, once into order.
Here rows are moved once, and each piece is sorted in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import matrix_of
from ddcli.engine.kernels.gather import take
from ddcli.engine.kernels.packed_rows import PackedRows
from ddcli.engine.kernels.pieces import bits_of_pieces, piece_of
from ddcli.engine.kernels.rows import copy_row
from ddcli.engine.kernels.shards import SEED, mixed, shard_from
from ddcli.engine.kernels.sort import DISORDERED, is_sorted, order_of, sort_dealt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MANY: Final = 1 << 18
"""The number of rows of all sources below which this is no faster."""
OPEN: Final = 1 << 11
"""The largest number of pieces of all shards: each keeps a line of the cache open while rows are dealt."""
FEWEST: Final = 5
"""The fewest bits by which a shard's rows are dealt: with fewer the pieces don't fit the cache."""
LEADING: Final = 3
"""The most lanes by whose bits rows are dealt."""


@kernel("MVVV")
def widen_ranges(m: np.ndarray, lanes: np.ndarray, least: np.ndarray, most: np.ndarray) -> int:
    """Widen the least and the greatest value of each of some lanes by those of the rows."""
    for c in range(lanes.size):
        lane = lanes[c]
        low = least[c]
        high = most[c]
        for i in range(m.shape[0]):
            low = min(low, m[i, lane])
            high = max(high, m[i, lane])
        least[c] = low
        most[c] = high
    return 0


@kernel("MVVViVH")
def count_pieces(
    m: np.ndarray,
    route: np.ndarray,
    lanes: np.ndarray,
    plan: np.ndarray,
    shards: int,
    counts: np.ndarray,
    out: np.ndarray,
) -> int:
    """Write the piece of each row, numbered across all shards, and count each piece's rows in `counts`, all zero before.

    The lanes `route` determine a row's shard; its `lanes` determine its piece there, by a plan of `partition`.
    """
    each = counts.size // shards
    for i in range(m.shape[0]):
        h = SEED
        for c in range(route.size):
            h = mixed(h, m[i, route[c]])
        piece = shard_from(h, shards) * each + piece_of(m, i, lanes, plan)
        out[i] = np.uint32(piece)
        counts[piece] += 1
    return 0


@kernel("MHiVL")
def move_to_shard_pieces(
    m: np.ndarray, pieces: np.ndarray, bits: int, ends: np.ndarray, parts: list[np.ndarray]
) -> int:
    """Copy each row to its piece of its shard's matrix, in order, from row ends[piece] on, which becomes the row after the last one."""
    for i in range(m.shape[0]):
        piece: Any = np.int64(pieces[i])
        copy_row(m, i, matrix_of(parts, piece >> bits), ends[piece])
        ends[piece] += 1
    return 0


def fresh_room(rows: int, lanes: int) -> np.ndarray:
    """Return a matrix of fresh memory."""
    return np.empty((rows, lanes), np.int64)


def exchange_in_order(
    filled: list[np.ndarray | PackedRows],
    route: Sequence[int],
    shards: int,
    each: Callable[..., list[Any]],
    taken: Sequence[int],
    by: int,
    room: Callable[[int, int], np.ndarray] = fresh_room,
) -> list[np.ndarray] | None:
    """Return the rows of each shard, the lanes that are `taken`, sorted by the first `by` of them; rows that are equal in these in the order of the sources.

    Releases each source as it is moved; `room` allocates the matrix of each shard. Returns None, without having done anything, where exchanging first and sorting then is no
    slower: the rows are few, the shards are many, or the first source is sorted already.
    """
    rows = sum(map(len, filled))
    bits = min(bits_of_pieces(rows // shards), (OPEN // shards).bit_length() - 1)
    if rows < MANY or bits < FEWEST or not by or _is_in_order(max(filled, key=len), taken[:by]):
        return None
    leading = [taken[at] for at in range(min(by, LEADING))]
    ranges = np.empty((len(filled), 2, len(leading)), np.int64)

    def measure(at: int) -> None:
        source = filled[at]
        if isinstance(source, PackedRows):
            ranges[at] = source.bounds()[:, leading]
            return
        ranges[at] = source[0, leading]
        widen_ranges(source, np.array(leading, np.int64), *ranges[at])

    each(measure, range(len(filled)), rows)
    whole_plan = _plan(ranges[:, 0].min(axis=0), ranges[:, 1].max(axis=0), bits)
    kept = whole_plan[2] > 0
    plan, dealt_by = np.ascontiguousarray(whole_plan[:, kept]).reshape(-1), np.array(leading)[kept].tolist()
    pieces = 1 << bits
    counts = np.zeros((len(filled), shards * pieces), np.int64)
    which = [np.empty(len(m), np.uint32) for m in filled]
    looked_at = list(dict.fromkeys((*dealt_by, *route)))

    def count(at: int) -> None:
        source, places = filled[at], looked_at
        if isinstance(source, PackedRows):
            source, places = source.matrix(looked_at), [*range(len(looked_at))]
        lane = dict(zip(looked_at, places, strict=True))
        routed, first = (np.array([lane[each] for each in some], np.int64) for some in (route, dealt_by))
        count_pieces(source, routed, first, plan, shards, counts[at], which[at])

    each(count, range(len(filled)), rows)
    sizes = counts.sum(axis=0).reshape(shards, pieces)
    starts = np.zeros((shards, pieces + 1), np.int64)
    np.cumsum(sizes, axis=1, out=starts[:, 1:])
    parts = [room(size, len(taken)) for size in starts[:, -1].tolist()]
    ends = np.cumsum(counts, axis=0) - counts + starts[:, :-1].reshape(-1)
    left = dict(enumerate(filled))
    filled.clear()

    def move(at: int) -> None:
        source = left.pop(at)
        if isinstance(source, PackedRows):
            source.unpack_to(parts, which[at], bits, ends[at], taken)
        else:
            move_to_shard_pieces(_lanes(source, taken), which[at], bits, ends[at], parts)

    each(move, range(len(left)), rows)
    lanes = np.arange(by)
    each(lambda shard: sort_dealt(parts[shard], starts[shard], lanes), range(shards), rows)
    return parts


def _plan(least: np.ndarray, most: np.ndarray, bits: int) -> np.ndarray:
    """Return the plan by which rows are dealt by the leading bits of lanes of these ranges: for each lane its least value, the bits to drop, and the bits to keep."""
    plan = np.zeros((3, len(least)), np.int64)
    for c, (low, high) in enumerate(zip(least.tolist(), most.tolist(), strict=True)):
        width = (high - low).bit_length()
        keep = min(bits, width)
        plan[:, c] = low, width - keep, keep
        bits -= keep
    return plan


def _is_in_order(source: np.ndarray | PackedRows, lanes: Sequence[int]) -> bool:
    """Return whether a source's rows are sorted by some lanes."""
    if isinstance(source, PackedRows):
        return is_sorted(source.matrix(lanes), len(lanes))
    return order_of(source, np.array(lanes, np.int64)) != DISORDERED


def _lanes(source: np.ndarray, lanes: Sequence[int]) -> np.ndarray:
    """Return some lanes of rows."""
    return source if list(lanes) == list(range(source.shape[1])) else take(source, lanes)
