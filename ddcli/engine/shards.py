"""Updates in shards: exchanged by key, spread evenly, and put together."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, TakenLanes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from ddcli.engine.buffer_pool import BufferPool
    from ddcli.engine.kernels.packed_rows import PackedRows
    from ddcli.engine.stages import Deltas
    from ddcli.engine.workers import Workers


class Routing(NamedTuple):
    """The exchange of updates for a reader that needs its groups whole: `route` are the lanes whose hash is the shard, `taken` those that are copied, None for all."""

    route: tuple[int, ...]
    taken: TakenLanes | None = None


class DealtDelta(Delta):
    """A part of a load that was dealt to the shards of each reader, by its place, and waits packed. Only they read it, each once."""

    __slots__ = ()

    @property
    def rows(self) -> int:
        """The number of updates."""
        return max((sum(map(len, parts)) for parts in self.held.values()), default=0)

    @property
    def held(self) -> dict[int, list[PackedRows]]:
        """Return the parts of each shard."""
        return self[0]  # type: ignore[return-value]


def dealt_to(readers: Mapping[int, Routing], delta: Delta, count: int) -> DealtDelta:
    """Return updates dealt to `count` shards of each reader, in the lanes that it takes. Readers with equal routings share the parts."""
    made = {way: _dealt_packed(delta.updates, way, count) for way in set(readers.values())}
    held = {reader: made[way] for reader, way in readers.items()}
    return DealtDelta(held, delta.distinct, delta.inserts)  # type: ignore[arg-type]


def _dealt_packed(updates: np.ndarray, way: Routing, count: int) -> list[PackedRows]:
    return kernels.dealt_packed(updates, way.route, count, way.taken and way.taken.lanes)


class PackedArrival(NamedTuple):
    """The exchanged updates of a shard, which wait packed until the shard is stepped: then they are sorted for their reader."""

    parts: list[PackedRows]
    taken: TakenLanes | None
    inserts: bool

    @property
    def rows(self) -> int:
        """The number of updates."""
        return sum(map(len, self.parts))

    def arrived(self, buffers: BufferPool) -> Delta:
        """Return the updates, in reused memory."""
        found = kernels.unpacked(self.parts, self.taken.by if self.taken else 0, buffers.matrix)
        return Delta(found, inserts=self.inserts, taken=self.taken is not None)


def exchanged_for(
    deltas: Iterable[Delta], reader: int, way: Routing, workers: Workers
) -> Sequence[Delta | PackedArrival]:
    """Return updates exchanged for a reader. A load's updates were partitioned as they were read: they are unpacked when a shard is stepped."""
    found = list(deltas)
    if not any(isinstance(delta, DealtDelta) for delta in found):
        return exchanged(found, way, workers)
    inserts = all(delta.inserts or not delta.rows for delta in found)
    waiting: list[list[PackedRows]] = [[] for _ in range(workers.count)]
    while found:
        delta = found.pop(0)
        if isinstance(delta, DealtDelta):
            dealt = delta.held.pop(reader)
        elif delta.rows:
            dealt = _dealt_packed(delta.updates, way, workers.count)
        else:
            continue
        for parts, part in zip(waiting, dealt, strict=True):
            parts.append(part)
    return [PackedArrival(parts, way.taken, inserts) for parts in waiting]


def exchanged(deltas: list[Delta], way: Routing, workers: Workers) -> Deltas:
    """Exchange updates by key, and release their old matrices."""
    inserts = all(delta.inserts or not delta.rows for delta in deltas)

    def sources() -> Iterator[np.ndarray]:
        while deltas:
            yield deltas.pop(0).updates

    parts = kernels.exchange(sources(), way.route, workers.count, workers.each, *(way.taken or ()))
    # Equal rows have equal keys, but rows that are distinct within two shards may be equal.
    return [Delta(part, inserts=inserts, taken=way.taken is not None) for part in parts]


def dealt(delta: Delta, count: int) -> Deltas:
    """Return updates, spread evenly over `count` shards."""
    ends = [len(delta.updates) * shard // count for shard in range(count + 1)]
    return [Delta(delta.updates[a:b], delta.distinct) for a, b in itertools.pairwise(ends)]


def drained(parts: Sequence[Deltas]) -> Iterator[Delta]:
    """Yield the deltas of parts, and remove them from there, so that the caller can release their memory."""
    for deltas in parts:
        while deltas:
            yield deltas.pop(0)


def summed(deltas: Sequence[Delta]) -> Delta:
    """Return deltas as one; those without rows are skipped."""
    filled = [delta for delta in deltas if delta.rows]
    if len(filled) == 1:
        return filled[0]
    return Delta(kernels.concat([delta.updates for delta in filled or deltas]))
