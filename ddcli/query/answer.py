"""The records of a collection for some keys, computed by the operators that runs use from arrangements, which are read from a state's files by key.

An operator that keeps the key returns the same for the records of one key alone as for them among all others, so it receives only
those. Each operator is stepped by itself, over a few rows, at the time in question.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.circuit.context import Traces
from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.operators.base import Delta
from ddcli.engine.rounds import Interval
from ddcli.engine.scope import Scope
from ddcli.engine.times import BEYOND, LEAST, Frontier, box, less_equal
from ddcli.engine.trace.spine import Trace
from ddcli.errors import UsageError
from ddcli.plan import logical, physical
from ddcli.plan.changes import describe
from ddcli.plan.loops import level
from ddcli.plan.physical_graph import latest_horizon, physical_graph
from ddcli.plan.physical_joins import EquiJoin
from ddcli.store.batch.stored_batch import KeyLookup
from ddcli.store.time_text import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Type
    from ddcli.plan.node import Node
    from ddcli.query.ways import Ways
    from ddcli.store.batch.stored_batch import StoredBatches
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


ANSWER = "answer"


@dataclass(frozen=True)
class Finder:
    """The search for records as of the time `at`; `known` is that time again, or None if all updates in the state are before it."""

    ways: Ways
    kept: StoredArrangements
    kinds: Sequence[Type]
    at: Time
    known: Time | None
    pool: Pool

    def rows(self, node: Node, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the records of a node that have one of the rows of `keys` in its columns, and their multiplicities."""
        found = self._found(node, keys).select(*node.schema, DIFF)
        if not keys.width:
            return found
        kinds = {name: node.schema[name].to_polars() for name in keys.columns}
        return found.join(keys.cast(kinds), on=keys.columns, how="semi", nulls_equal=True, maintain_order="left")  # type: ignore[arg-type]

    def _found(self, node: Node, keys: pl.DataFrame) -> pl.DataFrame:
        """Return at least the records with these keys, perhaps more."""
        known = {name: not keys[name].null_count() for name in keys.columns}
        best = max(self.ways.usable(node, known), key=lambda found: len(found[1]), default=None)
        if best is not None:
            way, prefix = best
            own = part(keys, {name: way.columns[name] for name in prefix if way.columns[name] in keys.columns})
            own = own.with_columns(pl.lit(0, pl.Int64).alias(name) for name in prefix if name not in own.columns)
            found = self.kept.rows(way.node, prefix, own, self.known)
            names = {name: column for column, name in way.columns.items() if name}
            return found.select(*(pl.col(names[name]).alias(name) for name in node.schema), DIFF)
        if isinstance(node, EquiJoin):
            return self._joined(node, keys)
        searched = node.searched({name: name for name in keys.columns})
        assert searched is not None, f"nothing answers for {type(node).__name__}"
        given = [self.rows(child, part(keys, names)) for child, names in searched]
        if isinstance(node, physical.Delay):
            (shift,) = node.inputs
            source = self._source(shift.inputs[0], 0)
            return self._made(replace(node, inputs=(replace(shift, inputs=(source,)),)), given)
        return given[0] if node.forwards else self._stepped(node, *given)

    def _joined(self, node: EquiJoin, keys: pl.DataFrame) -> pl.DataFrame:
        """Return a join's pairs: the records of one side with the keys, and their partners of the other side."""
        at = self.ways.first(node, {name: not keys[name].null_count() for name in keys.columns})
        assert at is not None, "the keys answer for one of the sides"
        known = node.decided(keys.columns)[at]
        one, other = node.inputs[at], node.inputs[1 - at]
        assert isinstance(one, physical.Arrangement)
        assert isinstance(other, physical.Arrangement)
        found = self.rows(one, part(keys, known))
        met = part(found, dict(zip(other.key, one.key, strict=True)))
        others = self.rows(other, met)
        return self._stepped(node, *((found, others) if at == 0 else (others, found)))

    def _stepped(self, node: Node, *given: pl.DataFrame) -> pl.DataFrame:
        """Return the output of an operator for these records of its inputs."""
        sources = tuple(self._source(child, at) for at, child in enumerate(node.inputs))
        return self._made(replace(node, inputs=sources), given)

    def _source(self, node: Node, at: int) -> Node:
        """Return the source that feeds an input."""
        scan = physical.Scan((), node.schema, f"given {at}", len(self.kinds))
        if isinstance(node, physical.Arrangement):
            return physical.KeptArrangement((scan,), node.schema, node.key, f"kept {at}")
        return scan

    def _made(self, node: Node, given: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the output of a graph of one operator for records that exist from the wanted time on."""
        from ddcli.circuit.graph import (
            assemble,
        )  # it imports all operators: an arrangement that answers by itself needs none

        nt = len(self.kinds)
        if isinstance(node, physical.Filtered):
            node = logical.Consolidate((node,), node.schema)
        assembled = assemble(
            physical_graph({ANSWER: node}), Scope(nt), _Empty(nt), self.pool, lambda _label, _updates: None, self.kinds
        )
        fed: dict[str, Delta | list[Delta]] = {
            f"given {at}": Delta(self._matrix(frame, assembled.layouts[f"given {at}"]))
            for at, frame in enumerate(given)
        }
        upper = [time for time in box(tuple(value + 1 for value in self.at)) if BEYOND not in time]
        deltas = assembled.step(fed, Interval(Frontier([(LEAST,) * nt]), Frontier(upper)))[ANSWER]
        layout = assembled.outputs[ANSWER]
        matrix = kernels.concat([np.empty((0, layout.width + nt + 1), np.int64), *(delta.updates for delta in deltas)])
        matrix = np.array(matrix, order="C")  # a copy, as a trace may keep the step's result
        matrix[:, layout.width : -1] = LEAST
        summed = kernels.consolidate(matrix)
        return decode(summed, layout, self.pool).with_columns(pl.Series(DIFF, summed[:, -1].copy()))

    def _matrix(self, frame: pl.DataFrame, layout: Layout) -> np.ndarray:
        kinds = {name: kind.to_polars() for name, kind in layout.schema.items()}
        nt = len(self.kinds)
        matrix = np.empty((frame.height, layout.width + nt + 1), np.int64)
        encode(frame.select(*kinds).cast(kinds) if kinds else frame.select(), layout, self.pool, matrix)  # type: ignore[arg-type]
        matrix[:, layout.width : -1] = self.at
        matrix[:, -1] = frame[DIFF].to_numpy()
        return kernels.consolidate(matrix)


def part(keys: pl.DataFrame, columns: dict[str, str]) -> pl.DataFrame:
    """Return the distinct keys in some of the columns, under their new names; without columns one empty key, if there is any key."""
    if not columns:
        return pl.DataFrame(height=min(1, keys.height))
    return keys.select(pl.col(old).alias(new) for new, old in columns.items()).unique()


@dataclass(frozen=True)
class _Empty(Traces):
    """The state of operators that have none: each trace is empty."""

    nt: int

    def trace(
        self, identity: str, key: Layout, value: Layout, nt: int, shard: int, by: Sequence[int] | None = None
    ) -> Trace:
        """Return an empty trace."""
        return Trace(key.width, value.width, nt, since=Frontier([(LEAST,) * self.nt]))
