"""The updates of some keys in an arrangement of a state, read from the parts of its files that can have them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, encode
from ddcli.store.batch.layout import BatchLayout
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.state.contents import batch_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.engine.columns import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.store.state.entries import ArrangementEntry

StoredBatches = dict[tuple["Path", int], StoredBatch]
"""Opened batches by their path and their place in it."""


@dataclass
class KeyLookup:
    """An arrangement of the state in a directory, whose times have `nt` coordinates. `batches` are those that are open: a file never changes."""

    state: Path
    identity: str
    entry: ArrangementEntry
    nt: int
    pool: Pool
    batches: StoredBatches = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layout = BatchLayout.of(self.entry, self.nt)

    def updates(self, prefix: Sequence[str], keys: pl.DataFrame) -> Matrix:
        """Return the updates of the records whose first columns, `prefix`, are one of the rows of `keys`; without a prefix all."""
        found = [np.empty((0, self.layout.width), np.int64)]
        for shard, wanted in self._by_shard(prefix, keys):
            for file in self.entry.shards[shard]:
                place = batch_path(self.state, self.identity, shard, file), file.at
                if place not in self.batches:
                    self.batches[place] = StoredBatch(place[0], file, self.layout, self.pool)
                batch = self.batches[place]
                found.append(batch.for_keys(wanted) if prefix else batch.matrix())
        return kernels.concat(found)

    def _by_shard(self, prefix: Sequence[str], keys: pl.DataFrame) -> list[tuple[int, Matrix]]:
        """Return the keys to look up in each shard: without a whole key, all keys in all shards."""
        schema = {name: self.layout.record.schema[name] for name in prefix}
        columns = [keys[name].cast(kind.to_polars()) for name, kind in schema.items()]
        frame = pl.DataFrame(columns).filter(
            *(pl.col(name).is_not_null() for name, kind in schema.items() if not kind.nullable)
        )
        every = range(len(self.entry.shards))
        if not prefix:
            return [(shard, np.empty((0, 0), np.int64)) for shard in every]
        lanes = Layout(schema)
        wanted = kernels.distinct_keys(
            kernels.sort_by(encode(frame, lanes, self.pool), range(lanes.width)), lanes.width
        )
        if len(prefix) < len(self.layout.key.names):
            return [(shard, wanted) for shard in every]
        shards = kernels.shard_of(wanted, self.layout.key.width, len(self.entry.shards))
        return [(shard, np.ascontiguousarray(wanted[shards == shard])) for shard in every if (shards == shard).any()]
