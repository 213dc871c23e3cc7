"""Deal rows to shards: one pass to count, one to copy.

Where rows are sorted after an exchange, they would move twice more, through fresh memory: once into pieces that fit the cache, once into order. So many rows are distributed to
shards and, in the same pass, into the pieces in which each shard sorts them, each in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import matrix_of
from ddcli.engine.kernels.gather import take
from ddcli.engine.kernels.hashes import SEED, mixed, shard_from
from ddcli.engine.kernels.packed_rows import PackedRows, packed_some
from ddcli.engine.kernels.rows import copy_row
from ddcli.engine.kernels.sort import DISORDERED, bits_of_pieces, is_sorted, order_of, piece_of, sort_distributed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


MANY: Final = 1 << 18
"""The number of rows of all sources below which this is no faster."""
OPEN: Final = 1 << 11
"""The largest number of pieces of all shards: each keeps a line of the cache open while rows are distributed."""
FEWEST: Final = 5
"""The fewest bits for distributing a shard's rows: with fewer the pieces don't fit the cache."""
LEADING: Final = 3
"""The most lanes by whose bits rows are distributed."""
NO_LANES = np.empty(0, np.int64)
"""The lanes and the plan for one piece a shard."""


@kernel("MVVV")
def widen_ranges(m: np.ndarray, lanes: np.ndarray, least: np.ndarray, most: np.ndarray) -> int:
    """Widen the least and the greatest value of each of some lanes to include the rows' values."""
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
    plan, distributed_by = np.ascontiguousarray(whole_plan[:, kept]).reshape(-1), np.array(leading)[kept].tolist()
    pieces = 1 << bits
    counts = np.zeros((len(filled), shards * pieces), np.int64)
    which = [np.empty(len(m), np.uint32) for m in filled]
    looked_at = list(dict.fromkeys((*distributed_by, *route)))

    def count(at: int) -> None:
        source, places = filled[at], looked_at
        if isinstance(source, PackedRows):
            source, places = source.matrix(looked_at), [*range(len(looked_at))]
        lane = dict(zip(looked_at, places, strict=True))
        routed, first = (np.array([lane[each] for each in some], np.int64) for some in (route, distributed_by))
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
            move_to_shard_pieces(_matrix(source, taken), which[at], bits, ends[at], parts)

    each(move, range(len(left)), rows)
    lanes = np.arange(by)
    each(lambda shard: sort_distributed(parts[shard], starts[shard], lanes), range(shards), rows)
    return parts


def _plan(least: np.ndarray, most: np.ndarray, bits: int) -> np.ndarray:
    """Return the plan for distributing rows by the leading bits of lanes of these ranges: for each lane its least value, the bits to drop, and the bits to keep."""
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


T = TypeVar("T")


@kernel("HVH")
def number_by_shard(shards: np.ndarray, ends: np.ndarray, out: np.ndarray) -> int:
    """Write the numbers of the rows of each shard, in order, from out[ends[shard]] on, which becomes the one after the last."""
    for i in range(shards.size):
        shard: Any = np.int64(shards[i])
        out[ends[shard]] = np.uint32(i)
        ends[shard] += 1
    return 0


def in_turn(task: Callable[[int], T], numbers: Iterable[int], rows: int) -> list[T]:  # noqa: ARG001 - for one that looks
    """Run a task for each of some numbers, one after the other, and return its results."""
    return [task(number) for number in numbers]


def exchange(
    sources: Iterable[np.ndarray | PackedRows],
    lanes: Sequence[int],
    shards: int,
    each: Callable[..., list[Any]] = in_turn,
    taken: Sequence[int] | None = None,
    by: int = 0,
) -> list[np.ndarray]:
    """Return the rows of each shard, in the order of the sources; a row's shard is that of its `lanes` as a key.

    With `taken`, which are distinct lanes, only these are returned: a caller that wants them in another order saves a copy. Many rows may come sorted by the
    first `by` of them, else in the order of the sources: a caller that sorts them stably saves another copy.

    `each(task, numbers, rows)` runs the sources' shares of the work: a source's rows are counted, then copied to places that no other
    source writes, and the source is released. Returns a source itself where it is all that a shard has.

    >>> [part.tolist() for part in exchange([np.array([[7, 0, 1], [8, 5, 1]]), np.array([[9, 0, 1]])], [1], 2)]
    [[[8, 5, 1]], [[7, 0, 1], [9, 0, 1]]]
    """
    filled = list(sources)
    width = filled[0].shape[1]
    out = width if taken is None else len(taken)
    if not 0 < shards < 1 << 31:
        raise ValueError(f"{shards} shards")
    if lanes and not (min(lanes) >= 0 and max(lanes) < width):
        raise ValueError(f"lanes {list(lanes)} of a matrix of {width}")
    filled = [m for m in filled if len(m)]
    rows = sum(map(len, filled))
    route, first = np.array(lanes, np.int64), np.arange(len(lanes))
    if by and taken is not None and (ordered := exchange_in_order(filled, lanes, shards, each, taken, by)) is not None:
        return ordered
    counts = np.zeros((len(filled), shards), np.int64)
    which = [np.empty(len(m), np.uint32) for m in filled]

    def count(at: int) -> None:
        source = filled[at]
        given = (source.matrix(lanes), first) if isinstance(source, PackedRows) else (source, route)
        count_pieces(*given, NO_LANES, NO_LANES, shards, counts[at], which[at])

    each(count, range(len(filled)), rows)
    sizes = counts.sum(axis=0).tolist()
    if len(filled) < 2 and (not filled or rows in sizes):
        return [_matrix(filled[0], taken) if size else np.empty((0, out), np.int64) for size in sizes]
    parts = [np.empty((size, out), np.int64) for size in sizes]
    ends = np.cumsum(counts, axis=0) - counts
    left = dict(enumerate(filled))
    filled.clear()
    each(
        lambda at: move_to_shard_pieces(_matrix(left.pop(at), taken), which[at], 0, ends[at], parts),
        range(len(left)),
        rows,
    )
    return parts


def distributed_packed(
    m: np.ndarray, lanes: Sequence[int], shards: int, taken: Sequence[int] | None = None
) -> list[PackedRows]:
    """Return the rows of each shard packed, in their order, with all lanes or those `taken`; a row's shard is that of its `lanes` as a key."""
    if not all(0 <= lane < m.shape[1] for lane in (*lanes, *(taken or ()))):
        raise ValueError(f"lanes {list(lanes)} and {taken} of a matrix of {m.shape[1]}")
    counts, which, numbers = np.zeros(shards, np.int64), np.empty(len(m), np.uint32), np.empty(len(m), np.uint32)
    count_pieces(m, np.array(lanes, np.int64), NO_LANES, NO_LANES, shards, counts, which)
    ends = np.cumsum(counts)
    number_by_shard(which, ends - counts, numbers)
    kept = range(m.shape[1]) if taken is None else taken
    return [packed_some(m, kept, part) for part in np.split(numbers, ends[:-1])]


def unpacked(
    parts: Sequence[PackedRows], by: int = 0, room: Callable[[int, int], np.ndarray] = fresh_room
) -> np.ndarray:
    """Return the rows of at least one packed matrix as one matrix. Many rows come sorted stably by the first `by` lanes.

    `room` allocates a matrix of so many rows and lanes, of any content.
    """
    width, filled = parts[0].shape[1], [part for part in parts if len(part)]
    if by and filled and (ordered := exchange_in_order([*filled], (), 1, in_turn, range(width), by, room)) is not None:
        return ordered[0]
    out, at = room(sum(map(len, filled)), width), 0
    for part in filled:
        part.unpack(out[at : at + len(part)], range(width))
        at += len(part)
    return out


def _matrix(source: np.ndarray | PackedRows, taken: Sequence[int] | None) -> np.ndarray:
    if isinstance(source, PackedRows):
        return source.matrix(taken)
    return source if taken is None or list(taken) == list(range(source.shape[1])) else take(source, taken)
