"""The records of a state's arrangements, read from its files by key, as of a time."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import decode
from ddcli.engine.times import LEAST, Frontier, less_equal
from ddcli.errors import UsageError
from ddcli.plan.changes import describe
from ddcli.plan.loops import level
from ddcli.plan.physical_graph import latest_horizon
from ddcli.store.batch.key_lookup import KeyLookup
from ddcli.store.time_text import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Type
    from ddcli.plan.node import Node
    from ddcli.store.batch.key_lookup import StoredBatches
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
    _batches: StoredBatches = field(default_factory=dict)

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
        lookup = KeyLookup(self.state, node.fingerprint, entry, len(self.kinds) + level(node), self.pool, self._batches)
        layout, matrix = lookup.layout, lookup.updates(prefix, keys)
        width = layout.record.width
        if at is not None:
            matrix = matrix[(matrix[:, width : width + len(at)] <= np.array(at, np.int64)).all(axis=1)]
        matrix = np.array(matrix, order="C")  # a copy, as a batch may keep its result
        matrix[:, width:-1] = LEAST
        summed = kernels.consolidate(matrix)
        return decode(summed, layout.record, self.pool).with_columns(pl.Series(DIFF, summed[:, -1].copy()))
