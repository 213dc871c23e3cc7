"""Updates in shards: brought to where their keys are whole, spread evenly, and put together again."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, PackedDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from ddcli.engine.kernels.packed_rows import PackedRows
    from ddcli.engine.operators.base import TakenLanes
    from ddcli.engine.places import Deltas
    from ddcli.engine.workers import Workers


def exchanged(
    deltas: Iterable[Delta], route: tuple[int, ...], workers: Workers, taken: TakenLanes | None = None
) -> Deltas:
    """Bring each update to the shard that owns its key; as it is `taken`, if it is."""
    inserts = True

    def sources() -> Iterator[np.ndarray | PackedRows]:
        nonlocal inserts
        for delta in deltas:
            inserts = inserts and (delta.inserts or not delta.rows)
            yield delta.held if isinstance(delta, PackedDelta) else delta.updates

    parts = kernels.exchange(sources(), route, workers.count, workers.each, *(taken or ()))
    # Equal rows have equal keys, but rows that are distinct within two shards may be equal.
    return [Delta(part, inserts=inserts, taken=taken is not None) for part in parts]


def dealt(delta: Delta, count: int) -> Deltas:
    """Return updates, spread evenly over so many shards."""
    ends = [len(delta.updates) * shard // count for shard in range(count + 1)]
    return [Delta(delta.updates[a:b], delta.distinct) for a, b in itertools.pairwise(ends)]


def joined(parts: Sequence[Deltas]) -> Deltas:
    """Return the sum of updates, shard by shard."""
    if len(parts) == 1 and not isinstance(parts[0][0], PackedDelta):
        return parts[0]
    return [summed(deltas) for deltas in zip(*parts, strict=True)]


def drained(parts: Sequence[Deltas]) -> Iterator[Delta]:
    """Yield what is in parts, and take it out of them, so that whoever is done with it lets go of its memory."""
    for deltas in parts:
        while deltas:
            yield deltas.pop(0)


def summed(deltas: Sequence[Delta]) -> Delta:
    """Return updates in one, unpacked; those without rows are passed over."""
    filled = [delta for delta in deltas if delta.rows]
    if len(filled) == 1 and not isinstance(filled[0], PackedDelta):
        return filled[0]
    return Delta(kernels.concat([delta.updates for delta in filled or deltas]))
