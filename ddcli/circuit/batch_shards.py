"""Batches as one pass sees them: those rows, or keys, of a stored batch that are of its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels

if TYPE_CHECKING:
    from collections.abc import Collection

    from ddcli.store.batch.stored_batch import StoredBatch


class BatchShare:
    """Those rows of a batch whose keys are of one pass, of several that share the batch's shard."""

    def __init__(self, batch: StoredBatch, lanes: tuple[int, ...], shard: int, shards: int) -> None:
        self.batch = batch
        self.rows, self.lower, self.upper = batch.rows, batch.lower, batch.upper
        self._of = lanes, shard, shards

    def matrix(self) -> np.ndarray:
        lanes, shard, shards = self._of
        matrix: np.ndarray = self.batch.matrix()
        mine: np.ndarray = matrix[kernels.shard_of(kernels.take(matrix, list(lanes)), len(lanes), shards) == shard]
        return mine

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        return self.batch.for_keys(keys, spared)

    def release(self) -> None:
        self.batch.release()


class KeyShards:
    """The shards of keys. It keeps the last result, as all batches of a trace look up the same keys."""

    def __init__(self, width: int, count: int) -> None:
        self.width = width
        self.count = count
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def shards(self, keys: np.ndarray) -> np.ndarray:
        """Return the shard of each key; further lanes don't count."""
        known = self._last
        if known is None or known[0] is not keys:
            own = np.ascontiguousarray(keys[:, : self.width])
            known = self._last = keys, kernels.shard_of(own, self.width, self.count)
        return known[1]


class ShardBatch:
    """A batch of one of a trace's shards: it looks up the keys of its shard."""

    def __init__(self, batch: StoredBatch, key_shards: KeyShards, shard: int) -> None:
        self.batch = batch
        self.rows, self.lower, self.upper = batch.rows, batch.lower, batch.upper
        self._key_shards = key_shards
        self._shard = shard

    def matrix(self) -> np.ndarray:
        return self.batch.matrix()

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        mine = keys[self._key_shards.shards(keys) == self._shard]
        return self.batch.for_keys(mine, spared) if len(mine) else np.empty((0, self.batch.layout.width), np.int64)

    def limits(self, first: np.ndarray, last: np.ndarray, nk: int) -> tuple[np.ndarray, np.ndarray] | None:
        mine = self._key_shards.shards(first) == self._shard
        found = self.batch.limits(first[mine], last[mine], nk) if mine.any() else None
        if found is None:
            return None
        low, high = first.copy(), last.copy()
        # Of the narrowest ranges of all batches others must not be made narrower here.
        low[:, nk:], high[:, nk:] = -(2**63), 2**63 - 1
        low[mine], high[mine] = found
        return low, high

    def in_ranges(self, first: np.ndarray, last: np.ndarray, nk: int) -> np.ndarray:
        mine = self._key_shards.shards(first) == self._shard
        if not mine.any():
            return np.empty((0, self.batch.layout.width), np.int64)
        return self.batch.in_ranges(first[mine], last[mine], nk)

    def release(self) -> None:
        self.batch.release()
