"""Distribute rows to shards: one pass to count, one to copy. Rows that wait for a shard may be packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ddcli.engine.jit.load import kernel
from ddcli.engine.jit.registry import matrix_of
from ddcli.engine.kernels.gather import take
from ddcli.engine.kernels.hashes import SEED, mixed, shard_from
from ddcli.engine.kernels.packed_rows import PackedRows, packed_some
from ddcli.engine.kernels.rows import copy_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@kernel("MViVH")
def count_shards(m: np.ndarray, route: np.ndarray, shards: int, counts: np.ndarray, out: np.ndarray) -> int:
    """Write the shard of each row, by its lanes `route` as a key, and count each shard's rows in `counts`, all zero before."""
    for i in range(m.shape[0]):
        h = SEED
        for c in range(route.size):
            h = mixed(h, m[i, route[c]])
        shard = shard_from(h, shards)
        out[i] = np.uint32(shard)
        counts[shard] += 1
    return 0


@kernel("MHVL")
def move_to_shards(m: np.ndarray, shards: np.ndarray, ends: np.ndarray, parts: list[np.ndarray]) -> int:
    """Copy each row to its shard's matrix, in order, from row ends[shard] on, which becomes the row after the last one."""
    for i in range(m.shape[0]):
        shard: Any = np.int64(shards[i])
        copy_row(m, i, matrix_of(parts, shard), ends[shard])
        ends[shard] += 1
    return 0


def fresh_room(rows: int, lanes: int) -> np.ndarray:
    """Return a matrix of fresh memory."""
    return np.empty((rows, lanes), np.int64)


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
) -> list[np.ndarray]:
    """Return the rows of each shard, in the order of the sources; a row's shard is that of its `lanes` as a key.

    With `taken`, which are distinct lanes, only these are returned: a caller that wants them in another order saves a copy.

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
    counts = np.zeros((len(filled), shards), np.int64)
    which = [np.empty(len(m), np.uint32) for m in filled]

    def count(at: int) -> None:
        source = filled[at]
        given = (source.matrix(lanes), first) if isinstance(source, PackedRows) else (source, route)
        count_shards(*given, shards, counts[at], which[at])

    each(count, range(len(filled)), rows)
    sizes = counts.sum(axis=0).tolist()
    if len(filled) < 2 and (not filled or rows in sizes):
        return [_matrix(filled[0], taken) if size else np.empty((0, out), np.int64) for size in sizes]
    parts = [np.empty((size, out), np.int64) for size in sizes]
    ends = np.cumsum(counts, axis=0) - counts
    left = dict(enumerate(filled))
    filled.clear()
    each(lambda at: move_to_shards(_matrix(left.pop(at), taken), which[at], ends[at], parts), range(len(left)), rows)
    return parts


def distributed_packed(
    m: np.ndarray, lanes: Sequence[int], shards: int, taken: Sequence[int] | None = None
) -> list[PackedRows]:
    """Return the rows of each shard packed, in their order, with all lanes or those `taken`; a row's shard is that of its `lanes` as a key."""
    if not all(0 <= lane < m.shape[1] for lane in (*lanes, *(taken or ()))):
        raise ValueError(f"lanes {list(lanes)} and {taken} of a matrix of {m.shape[1]}")
    counts, which, numbers = np.zeros(shards, np.int64), np.empty(len(m), np.uint32), np.empty(len(m), np.uint32)
    count_shards(m, np.array(lanes, np.int64), shards, counts, which)
    ends = np.cumsum(counts)
    number_by_shard(which, ends - counts, numbers)
    kept = range(m.shape[1]) if taken is None else taken
    return [packed_some(m, kept, part) for part in np.split(numbers, ends[:-1])]


def unpacked(parts: Sequence[PackedRows], room: Callable[[int, int], np.ndarray] = fresh_room) -> np.ndarray:
    """Return the rows of at least one packed matrix as one matrix.

    `room` allocates a matrix of so many rows and lanes, of any content.
    """
    width, filled = parts[0].shape[1], [part for part in parts if len(part)]
    out, at = room(sum(map(len, filled)), width), 0
    for part in filled:
        part.unpack(out[at : at + len(part)], range(width))
        at += len(part)
    return out


def _matrix(source: np.ndarray | PackedRows, taken: Sequence[int] | None) -> np.ndarray:
    if isinstance(source, PackedRows):
        return source.matrix(taken)
    return source if taken is None or list(taken) == list(range(source.shape[1])) else take(source, taken)
