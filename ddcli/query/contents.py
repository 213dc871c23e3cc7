"""The contents that a statement reads, as of one time: collections that a state keeps whole, and inputs from their beginning.

The graph is cut at each such collection, from the answer down; the rest is computed. Operators whose result depends on the times
themselves (upserts, whole tables, shifts in time) are run apart, over all updates of the inputs below them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.circuit.traces import StateAnswers
from ddcli.circuit.trial import Trial, as_of
from ddcli.dataclass import dataclass
from ddcli.driver.prepare import WholeInputs, before
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool, new_secret
from ddcli.engine.times import BEYOND, Frontier
from ddcli.errors import UsageError
from ddcli.expressions.steps import MapStep
from ddcli.expressions.tree import Column
from ddcli.plan import logical, loops
from ddcli.plan.lower import lower
from ddcli.plan.node import Graph
from ddcli.plan.optimizer.pushdown import required_columns
from ddcli.query.answer import DIFF, Finder, StoredArrangements, Ways

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ddcli.engine.columns import Matrix
    from ddcli.engine.times import Time
    from ddcli.job.request import Request
    from ddcli.plan.node import Node
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.store.state.manifest import Manifest

TIMED = (logical.Upsert, logical.Snapshots, logical.Once, logical.JoinFunction)
"""Operators whose result depends on the times of their input."""
LOOKING = (logical.Watched, logical.Inspect)
"""Operators that return their input unchanged, for observers."""

ALWAYS = logical.Source((), {}, "#always")
"""A source with a row at any time: a query that depends on no input has its rows even if no input has had one."""


@dataclass(frozen=True)
class Found:
    """A collection's records in some columns, as `[data lanes | count]`."""

    layout: Layout
    matrix: Matrix


class FoundContents:
    """The contents that cut the graph of a statement at the time `at`; of the state, as of its last commit if `known` is None.

    `inputs` are opened when they are first needed, unless they are given. Their values get the pool of the state, if one is read.
    """

    def __init__(
        self,
        request: Request,
        manifest: Manifest | None,
        bound: BoundPipeline,
        at: Time,
        known: Time | None,
        inputs: WholeInputs | None,
    ) -> None:
        self.request, self.manifest, self.bound, self.at, self.known = request, manifest, bound, at, known
        self.pool = Pool(manifest.secret_bytes if manifest is not None else new_secret())
        self.answers = StateAnswers(request.state, manifest) if manifest is not None else None
        self._given = inputs
        self._found: dict[str, Found] = {}

    @cached_property
    def _inputs(self) -> WholeInputs:
        found = self._given or WholeInputs.of(self.request, taken=True)
        found.pool = self.pool
        return found

    def cut(self, node: Node) -> Node:
        """Return a node with the collections that are found replaced by sources, whose names `fed` knows."""
        graph = Graph({"": node})
        needed = required_columns(graph)
        cuts: dict[str, Node] = {}
        wanted = {node.fingerprint}
        for each in reversed(graph.nodes()):
            if each.fingerprint not in wanted:
                continue
            found = None if each.free else self._records(each, sorted(needed[each.fingerprint]))
            if found is None:
                wanted.update(child.fingerprint for child in each.inputs)
                continue
            name = f"#found {len(cuts)}"
            self._found[name] = found
            cuts[each.fingerprint] = logical.Source((), dict(each.schema), name)
        return _rebuilt(node, cuts)

    def fed(self, name: str, layout: Layout) -> Matrix:
        """Return the contents of a source that `cut` made as updates at the time, in columns of a layout."""
        found = self._found[name]
        matrix = kernels.take(found.matrix, [*found.layout.take(layout.names), found.matrix.shape[1] - 1])
        return self._timed(matrix)

    def _timed(self, matrix: Matrix) -> Matrix:
        width = matrix.shape[1] - 1
        whole = np.empty((len(matrix), width + len(self.at) + 1), np.int64)
        whole[:, :width], whole[:, width:-1], whole[:, -1] = matrix[:, :-1], self.at, matrix[:, -1]
        return kernels.consolidate(whole)

    def _records(self, node: Node, columns: list[str]) -> Found | None:
        """Return some columns of a collection's records; None if they are to be computed from the collections below."""
        if isinstance(node, logical.Once):
            return self._once(node)
        found = self._kept(node, columns) if self.manifest is not None else None
        if found is not None:
            return found
        if _is_timed(node):
            return self._timed_records(node, columns)
        if isinstance(node, logical.Source):
            layout = Layout({name: node.schema[name] for name in columns})
            return Found(layout, self._summed(self._inputs.matrix(node.name, layout, before(self.at))))
        return None

    # --- of the state -----------------------------------------------------------------------------------------------

    def _kept(self, node: Node, columns: list[str]) -> Found | None:
        """Return a collection's records from arrangements of the state, if those have all of them."""
        ways, stored, lowered = self._state
        for nodes in lowered:
            physical = nodes.get(node.fingerprint)
            if physical is None or not all(physical.schema.get(name) == node.schema[name] for name in columns):
                continue
            if not ways.answers(physical, {}):
                continue
            finder = Finder(ways, stored, self.bound.kinds, self.at, self.known, self.pool)
            try:
                rows = finder.rows(physical, pl.DataFrame(height=1))
            except UsageError:  # the state does not keep the past that far
                continue
            layout = Layout({name: node.schema[name] for name in columns})
            lanes = encode(rows.select(columns), layout, self.pool)
            return Found(layout, np.column_stack([lanes, rows[DIFF].to_numpy()]))
        return None

    @cached_property
    def _state(self) -> tuple[Ways, StoredArrangements, list[dict[str, Node]]]:
        """The arrangements of the state by collection, their files, and the physical nodes of the pipeline's collections."""
        manifest = self.manifest
        assert manifest is not None
        plan = self.bound.plan(manifest.cache["plan"])
        parts = zip(plan.generations, plan.parts, strict=True)
        lowered = [generation.nodes(part) for generation, part in parts]
        stored = StoredArrangements(self.request.state, manifest, self.bound.kinds, self.pool)
        return Ways(plan.graph, manifest.arrangements.keys(), whole=True), stored, lowered

    # --- of the inputs ----------------------------------------------------------------------------------------------

    def _once(self, node: logical.Once) -> Found:
        """Return the record of a `Once`, which exists if an input below has a row at or before the time."""
        sources = logical.sources(Graph({"": node})).values()
        if self.manifest is not None and self._keeps_rows({source.name for source in sources}):
            layout = Layout(node.schema)
            return Found(layout, np.ones((1, layout.width + 1), np.int64))
        if any(logical.PRESENT in source.schema for source in sources):  # a row that deletes a key doesn't count
            return self._timed_records(node, list(node.schema))
        layout = Layout(node.schema)
        there = any(source == ALWAYS or self._has_rows(source.name) for source in sources)
        return Found(layout, np.ones((int(there), layout.width + 1), np.int64))

    def _keeps_rows(self, names: set[str]) -> bool:
        """Return whether an arrangement has a record made of rows of these inputs: one has had a row then. The smallest is read first."""
        assert self.manifest is not None
        ways, stored, _ = self._state
        entries = self.manifest.arrangements
        rows = {
            node: sum(file.rows for shard in entries[node.fingerprint].shards for file in shard)
            for node in ways.of_inputs(names)
        }
        for node in sorted(rows, key=rows.__getitem__):
            try:
                if rows[node] and not stored.rows(node, (), pl.DataFrame(height=1), self.known).is_empty():
                    return True
            except UsageError:  # the state does not keep the past that far
                continue
        return False

    def _has_rows(self, name: str) -> bool:
        taken = self._inputs.readers[name].take((), None, before(self.at).elements)
        return any(piece.rows for piece in taken.slices)

    def _timed_records(self, node: Node, columns: list[str]) -> Found:
        """Return the records of an operator that depends on times, run over all updates below."""
        picked = {name: Column(name, node.schema[name]) for name in columns}
        schema = {name: each.type for name, each in picked.items()}
        picks: Node = logical.Apply((node,), schema, MapStep(tuple(picked.items())))
        upper = before(self.at)
        graph = lower(Graph({"": _rebuilt(picks, {})}))
        lenient = self.request.spec.errors is not None
        trial = Trial(
            graph, self.bound.kinds, self.pool, facts=self._inputs.facts(upper), lenient=lenient, answers=self.answers
        )
        fed = {name: self._inputs.matrix(name, layout, upper) for name, layout in trial.layouts.items()}
        closed = Frontier([time for time in upper if BEYOND not in time])
        found = as_of(trial.close(closed, fed)[""], len(self.at), self.at)
        return Found(trial.outputs[""], found)

    def _summed(self, updates: Matrix) -> Matrix:
        """Return the records that updates sum to, with their counts."""
        return as_of(updates, len(self.at), self.at)


def _rebuilt(node: Node, cuts: Mapping[str, Node]) -> Node:
    """Return a node with the `cuts` in place of nodes below it, by fingerprint, and without operators that only observe."""
    done: dict[str, Node] = {}
    for each in Graph({"": node}).nodes():
        inputs = tuple(done[child.fingerprint] for child in each.inputs)
        if each.fingerprint in cuts:
            found = cuts[each.fingerprint]
        elif isinstance(each, LOOKING):
            (found,) = inputs
        else:
            found = replace(each, inputs=inputs)
        done[each.fingerprint] = found
    return done[node.fingerprint]


def _is_timed(node: Node) -> bool:
    """Return whether an operator's result depends on the times of its input; for a loop, whether that of one in its body does."""
    if isinstance(node, loops.Leave):
        return any(isinstance(each, TIMED) and each.free for each in Graph({"": node}).nodes())
    return isinstance(node, TIMED)
