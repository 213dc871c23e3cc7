"""The records of a state's arrangements, read from its files by key, as of a time."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.times import LEAST, Frontier, less_equal
from ddcli.errors import UsageError
from ddcli.plan.changes import describe
from ddcli.plan.loops import level
from ddcli.plan.physical_graph import latest_horizon
from ddcli.store.batch.layout import BatchLayout
from ddcli.store.batch.stored_batch import StoredBatch
from ddcli.store.state.contents import batch_path
from ddcli.store.time_text import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Type
    from ddcli.plan.node import Node
    from ddcli.store.state.entries import ArrangementEntry
    from ddcli.store.state.manifest import Manifest

DIFF = "\0diff"
"""The name of the column of multiplicities, beside a record's own columns."""


@dataclass
class StoredArrangements:
    """The arrangements of one manifest. The indexes of their files are cached for the next look-up."""

    state: Path
    manifest: Manifest
    kinds: Sequence[Type]
    pool: Pool
    _batches: dict[tuple[Path, int], StoredBatch] = field(default_factory=dict)

    def succeed(self, before: StoredArrangements) -> None:
        """Take over the cached files of the manifest before: a file never changes."""
        self._batches = before._batches

    def rows(self, node: Node, prefix: Sequence[str], keys: pl.DataFrame, at: Time | None) -> pl.DataFrame:
        """Return the records whose first columns, `prefix`, are one of the rows of `keys`, with their multiplicities at a time.

        Without a time all updates count; those inside a loop sum over all of its rounds, to its result. Reads only the
        parts of files that can have one of the keys. Raises UsageError for a time before the kept past.
        """
        entry = self.manifest.arrangements[node.fingerprint]
        since = Frontier(entry.since or ())
        if at is not None and since and not less_equal(since.as_time(), at):
            early = format_time(since.as_time(), self.kinds)
            raise UsageError(
                f"the state no longer keeps {format_time(at, self.kinds)} apart: of {describe(node)} it keeps the times from {early} on",
                hint="keep more of the past with `history: 30 days`, or `history: all`, in the pipeline file",
            )
        horizon = None if at is None else latest_horizon(node, self.manifest.cache.get("horizons", {}))
        if at is not None and horizon is not None and at[0] < horizon:
            begin = format_time((horizon,), self.kinds)
            raise UsageError(
                f"the past of {describe(node)} before {begin} is unknown: older updates in a log that it reads were summed up as of then",
                hint=f"ask as of {begin} or later",
            )
        layout = BatchLayout.of(entry, len(self.kinds) + level(node))
        found = [np.empty((0, layout.width), np.int64)]
        for shard, wanted in self._by_shard(entry, layout, prefix, keys):
            for file in entry.shards[shard]:
                batch = self._batch(node.fingerprint, shard, file.name, entry, layout)
                found.append(batch.for_keys(wanted) if prefix else batch.matrix())
        matrix = kernels.concat(found)
        width = layout.record.width
        if at is not None:
            matrix = matrix[(matrix[:, width : width + len(at)] <= np.array(at, np.int64)).all(axis=1)]
        matrix = np.array(matrix, order="C")  # a copy, as a batch may keep its result
        matrix[:, width:-1] = LEAST
        summed = kernels.consolidate(matrix)
        return decode(summed, layout.record, self.pool).with_columns(pl.Series(DIFF, summed[:, -1].copy()))

    def _by_shard(
        self, entry: ArrangementEntry, layout: BatchLayout, prefix: Sequence[str], keys: pl.DataFrame
    ) -> list[tuple[int, np.ndarray]]:
        """Return the keys to look up in each shard: without a whole key, all keys in all shards."""
        schema = {name: layout.record.schema[name] for name in prefix}
        columns = [keys[name].cast(kind.to_polars()) for name, kind in schema.items()]
        frame = pl.DataFrame(columns).filter(
            *(pl.col(name).is_not_null() for name, kind in schema.items() if not kind.nullable)
        )
        every = range(len(entry.shards))
        if not prefix:
            return [(shard, np.empty((0, 0), np.int64)) for shard in every]
        lanes = Layout(schema)
        wanted = kernels.distinct_keys(
            kernels.sort_by(encode(frame, lanes, self.pool), range(lanes.width)), lanes.width
        )
        if len(prefix) < len(layout.key.names):
            return [(shard, wanted) for shard in every]
        shards = kernels.shard_of(wanted, layout.key.width, len(entry.shards))
        return [(shard, np.ascontiguousarray(wanted[shards == shard])) for shard in every if (shards == shard).any()]

    def _batch(self, identity: str, shard: int, name: str, entry: ArrangementEntry, layout: BatchLayout) -> StoredBatch:
        (file,) = [file for file in entry.shards[shard] if file.name == name]
        place = batch_path(self.state, identity, shard, file), file.at
        if place not in self._batches:
            self._batches[place] = StoredBatch(place[0], file, layout, self.pool)
        return self._batches[place]
