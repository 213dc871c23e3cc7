"""The records of a collection for some keys, from a state's files: the arrangements that answer, and the rows that they hold.

An operator that keeps the key returns the same for the records of one key alone as for them among all others, so it receives only
those. Each operator is stepped by itself, over a few rows, at the time in question.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.times import LEAST, Frontier, less_equal
from ddcli.errors import UsageError
from ddcli.expressions.tree import Column, FilterStep, MapStep, Step, text_of
from ddcli.plan import logical, physical, temporal
from ddcli.plan.changes import describe
from ddcli.plan.logical import PRESENT
from ddcli.plan.node import Graph
from ddcli.plan.physical import EquiJoin, latest_horizon, physical_graph
from ddcli.plan.shape import not_null_column
from ddcli.plan.windows import RunningGroup
from ddcli.plan.words import ALL
from ddcli.store.batch.stored_batch import KeyLookup
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Type
    from ddcli.plan.node import Node
    from ddcli.plan.physical import PhysicalGraph
    from ddcli.store.batch.stored_batch import StoredBatches
    from ddcli.store.state.manifest import Manifest


Names = tuple[str, ...]


@frozen
class Way:
    """An arrangement with the records of a collection: its node, and the collection's names for its columns.

    It lacks records with a null in one of the columns `present`. It is sorted by its columns in the order of `columns`, so a
    look-up must have values for the first of them.
    """

    node: Node
    columns: dict[str, str]
    key: Names
    present: frozenset[str] = frozenset()

    def prefix(self, known: Mapping[str, bool], *, whole: bool = False) -> Names | None:
        """Return the known columns at the start of its key, which can be searched; None if it can't be searched.

        `known` maps a column to True for a value, False for null. If it may be read `whole`, no column has to be known.
        """
        if not all(known.get(name) for name in self.present):
            return None
        found = []
        for own, name in self.columns.items():
            if own != ALL and name not in known:
                break
            found.append(own)
        return tuple(found) if found or whole or not self.key else None


@dataclass(frozen=True)
class HeldArrangements:
    """The arrangements of a plan that a state has, by their identities `held`; each is searched by its key, or may be read `whole`."""

    graph: PhysicalGraph
    held: Collection[str]
    whole: bool = False

    @cached_property
    def _kept(self) -> dict[str, Node]:
        # For a running window, a state keeps marks, not its records.
        nodes = (node for node in self.graph.nodes if not isinstance(node, RunningGroup))
        return {node.fingerprint: node for node in nodes if node.fingerprint in self.held}

    def to(self, node: Node) -> list[Way]:
        """Return the arrangements with the collection of a node: its own, and the ones through which other operators read it."""
        found = []
        own = self._kept.get(node.fingerprint)
        if own is not None:
            found.append(Way(own, {name: name for name in own.schema}, own.kept_by))
        base, steps = _over_linear_steps(node)
        for other in self._kept.values():
            if isinstance(other, physical.Arrangement):
                below, more = _over_linear_steps(other.inputs[0])
                if below.fingerprint == base.fingerprint and text_of(more[: len(steps)]) == text_of(steps):
                    found += _renamed(node, other, more[len(steps) :])
        return found

    def usable(self, node: Node, known: Mapping[str, bool]) -> list[tuple[Way, Names]]:
        """Return the arrangements with all of a node's records that have values for these columns, each with the columns to search by."""
        ways = ((way, way.prefix(known, whole=self.whole)) for way in self.to(node))
        return [(way, prefix) for way, prefix in ways if prefix is not None]

    def of_inputs(self, names: Collection[str]) -> Iterator[Node]:
        """Yield the arrangements whose records are all made of rows of these inputs, so that one with a record proves a row."""
        for node in self._kept.values():
            if isinstance(node, physical.Arrangement) and PRESENT not in node.schema:
                below = Graph({"": node}).nodes()
                if all(each.name in names for each in below if isinstance(each, physical.Scan)):
                    yield node

    def answers(self, node: Node, known: Mapping[str, bool]) -> bool:
        """Return whether a node's records can be found by these columns: True for a known value, False for a null."""
        if self.usable(node, known):
            return True
        if isinstance(node, EquiJoin):
            return self.first(node, known) is not None
        found = node.searched(dict(known))
        return found is not None and all(self.answers(child, values) for child, values in found)

    def first(self, node: EquiJoin, known: Mapping[str, bool]) -> int | None:
        """Return the side of a join to search first; the other is searched for the keys found there. None if neither works."""
        sides = node.restriction(dict(known))
        keys = [side.kept_by for side in node.inputs]
        able = [
            at
            for at in (0, 1)
            if self.answers(node.inputs[at], sides[at])
            and self.answers(node.inputs[1 - at], dict.fromkeys(keys[1 - at], True))
        ]
        return max(able, key=lambda at: set(keys[at]) <= set(sides[at]), default=None)

    def keys(self, node: Node) -> list[Names]:
        """Return the keys that a node's records can be looked up with, in the names of its own columns."""
        keys = (tuple(dict.fromkeys(key)) for key in self._keys(node))
        found = [key for key in dict.fromkeys(keys) if self.answers(node, dict.fromkeys(key, True))]
        return [key for key in found if not any(other != key and key[: len(other)] == other for other in found)]

    def _keys(self, node: Node) -> Iterator[Names]:
        for way in self.to(node):
            key = tuple(way.columns[own] for own in way.key if own != ALL)
            if all(key):
                yield key
        if isinstance(node, EquiJoin):
            given = [*zip(node.inputs, node.decided(node.schema), strict=True)]
        else:
            given = node.searched({name: name for name in node.schema}) or []
        for child, names in given:
            keys = [child.kept_by, *self._keys(child)] if isinstance(node, EquiJoin) else self._keys(child)
            yield from (tuple(names[name] for name in key) for key in keys if names.keys() >= {*key})


def with_key(node: Node) -> Node:
    """Return the records of an input with their key where operators read fewer columns of them: the state keeps the key too."""
    base, steps = _over_linear_steps(node)
    keyed = isinstance(base, logical.Table) and not getattr(base, "lasting", False)
    plain = all(
        isinstance(step, MapStep) and all(isinstance(made, Column) and made.name == name for name, made in step.columns)
        for step in steps
    )
    return base if keyed and plain else node


def _over_linear_steps(node: Node) -> tuple[Node, tuple[Step, ...]]:
    """Return a node as linear steps over a node that is not linear."""
    steps: tuple[Step, ...] = ()
    while isinstance(node, physical.Linear) and not isinstance(node, physical.Pick):
        steps = (*node.steps, *steps)
        node = node.inputs[0]
    return node, steps


def _renamed(node: Node, arranged: physical.Arrangement, steps: Iterable[Step]) -> Iterator[Way]:
    """Yield the way to a node through an arrangement of it after `steps`, if those only rename columns and drop nulls."""
    names = {name: name for name in node.schema}
    present: set[str] = set()
    for step in steps:
        if isinstance(step, FilterStep) and (column := not_null_column(step)) in names:
            present.add(names[column or ""])
        elif isinstance(step, MapStep):
            plain = [(name, expression) for name, expression in step.columns if isinstance(expression, Column)]
            names = {name: names[expression.name] for name, expression in plain if expression.name in names}
        else:
            return
    if {*names.values()} >= node.schema.keys():
        columns = {name: names.get(name, "") for name in arranged.schema}
        yield Way(arranged, columns, arranged.key, frozenset(present))


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
        lookup = KeyLookup(self.state, node.fingerprint, entry, len(self.kinds) + node.level, self.pool, self._batches)
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

    ways: HeldArrangements
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
        if isinstance(node, temporal.Delay):
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
        # It imports all operators: an arrangement that answers by itself needs none.
        from ddcli.circuit.trial import Trial

        if isinstance(node, physical.Filtered):
            node = logical.Consolidate((node,), node.schema)
        trial = Trial(physical_graph({ANSWER: node}), self.kinds, self.pool)
        fed = {f"given {at}": self._matrix(frame, trial.layouts[f"given {at}"]) for at, frame in enumerate(given)}
        found = trial.contents(self.at, fed)[ANSWER]
        return decode(found, trial.outputs[ANSWER], self.pool).with_columns(pl.Series(DIFF, found[:, -1].copy()))

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
