"""Contents of a pipeline read from its state as of one time: a collection's records by key, and all that a statement needs.

Nothing is locked and nothing written. The files that a manifest names exist until a newer manifest does; so if a commit removes
a file during a look-up, the look-up is repeated with the newer one.

For a statement the graph is cut at each collection that the state keeps whole, from the answer down; the rest is computed from the inputs. Operators whose result depends on the times
themselves (upserts, whole tables, shifts in time) are run apart, over all updates of the inputs below them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.circuit.traces import StateAnswers
from ddcli.circuit.trial import Trial, as_of
from ddcli.driver.prepare import WholeInputs, bind_remembered
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool, new_secret
from ddcli.engine.times import BEYOND, Frontier, up_to
from ddcli.errors import StateError, UsageError, suggestion
from ddcli.expressions.tree import Column, MapStep
from ddcli.job.inputs import find_time
from ddcli.job.request import kept_clock, last_time, load_functions, newest_of, read_request, refuse_code, time_now
from ddcli.plan import logical, loops, temporal
from ddcli.plan.lower import lower, required_columns
from ddcli.plan.node import Graph
from ddcli.query.answer import DIFF, Finder, HeldArrangements, StoredArrangements, with_key
from ddcli.screen import shell
from ddcli.store.texts import format_frontier, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema, Type
    from ddcli.job.request import Request
    from ddcli.plan.node import Node
    from ddcli.plan.pipeline_file import BoundPipeline
    from ddcli.store.state.manifest import Manifest


ATTEMPTS = 100


class Lookup:
    """A collection of a pipeline whose records can be looked up by key, in the newest commit when it was opened or refreshed."""

    _pool: Pool
    _kept: StoredArrangements

    def __init__(self, request: Request, name: str) -> None:
        self.request, self.name, self.manifest = request, name, self._newest(request)
        self._read()

    @classmethod
    def open(cls, pipeline: Path, name: str, *, state: Path | None = None, no_code: bool = False) -> Lookup:
        """Open the state of a pipeline to read the collection, input or output `name`; `no_code` refuses pipelines with Python functions. Raises UsageError, StateError."""
        request = read_request(pipeline, state)
        refuse_code(request.spec, no_code=no_code)
        spec = request.spec
        known = [*spec.outputs, *spec.inputs, *(given for one in spec.collections.values() for given in one.names)]
        if name not in known:
            hint = suggestion(name, known, f"there are: {', '.join(dict.fromkeys(known))}")
            raise UsageError(f"no collection, input or output is named '{name}'", place=str(pipeline), hint=hint)
        found = cls(request, name)
        load_functions(request.spec)
        return found

    @property
    def upper(self) -> str:
        """The frontier before which the state has closed all times, in words."""
        return format_frontier(Frontier(self.manifest.upper), self._kinds)

    @property
    def columns(self) -> Schema:
        """The columns of the records that the state keeps."""
        return self._node.schema

    @property
    def known(self) -> Schema:
        """All columns of the collection, including those that the state doesn't keep."""
        return self._meant.schema

    @property
    def diff(self) -> str:
        """The name of the column with a record's multiplicity."""
        name = "diff"
        while name in self.columns:
            name = f"${name}"
        return name

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """The columns that records can be looked up with. See `answers`."""
        return self._ways.keys(self._node)

    def answers(self, key: Mapping[str, Any]) -> bool:
        """Return whether records can be found by these values; the first columns of one of the keys are mostly enough."""
        known = {name: value is not None for name, value in key.items()}
        return any(self._ways.answers(node, known) for node in self._nodes)

    def rows(self, key: Mapping[str, Any], *, as_of: Any = None) -> pl.DataFrame:
        """Return the records with these values; the last column is their multiplicity.

        They are as of the newest commit, or of an earlier time `as_of` that the state still distinguishes. It costs as much as
        reading the parts of files that can have the key, whatever the size of the state.
        """
        for name in key:
            if name not in self.columns:
                kept = f"the state has no column '{name}' of '{self.name}', as no output needs it"
                problem = kept if name in self.known else f"'{self.name}' has no column '{name}'"
                raise UsageError(problem, hint=f"its columns are: {', '.join(self.columns)}")
        keys = pl.DataFrame(height=1).with_columns(self._typed(name, value) for name, value in key.items())
        for _ in range(ATTEMPTS):
            try:
                return self._rows(keys, key, as_of)
            except StateError:
                # Its files are gone because there is a newer commit, or something is wrong with them.
                if not self.refresh():
                    raise
        raise StateError("the state is committed faster than it can be read", place=str(self.request.state))

    def _typed(self, name: str, value: Any) -> pl.Series:
        kind = self.columns[name]
        try:
            return pl.Series(name, [value], kind.to_polars(), strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            raise UsageError(f"{value!r} is not {kind.required()}, the type of the column '{name}'") from None

    def refresh(self) -> bool:
        """Move to the newest commit and return whether it is a newer one."""
        newest = self._newest(self.request)
        if newest.number == self.manifest.number:
            return False
        before, self.manifest = self.manifest, newest
        if (newest.plan, newest.secret) != (before.plan, before.secret):
            self._read()
        else:
            kept = StoredArrangements(self.request.state, newest, self._kinds, self._pool)
            kept.succeed(self._kept)
            self._kept = kept
            self._ways = HeldArrangements(self._plan.graph, newest.arrangements.keys())
        return True

    @staticmethod
    def _newest(request: Request) -> Manifest:
        manifest = newest_of(request)
        if manifest is None:
            hint = f"`{shell('dd', 'run', request.spec.path)}` makes it, or name its directory with --state"
            raise StateError("there is no state yet", place=str(request.state), hint=hint)
        return manifest

    def _read(self) -> None:
        """Find the collection in the plan that made the state."""
        request, manifest, spec = self.request, self.manifest, self.request.spec
        bound = bind_remembered(request, manifest)
        self._kinds = bound.kinds
        self._plan = bound.plan(manifest.cache["plan"])
        if self._plan.fingerprint != manifest.plan:
            hint = f"see `{shell('dd', 'plan', spec.path)}`, and run it"
            raise StateError("the pipeline has changed since its state was made", place=str(spec.path), hint=hint)
        source = spec.outputs[self.name].source.value if self.name in spec.outputs else self.name
        self._meant = bound.relations[source].node
        self._nodes = [with_key(node) for node in self._plan.lowered(self._meant)]
        if not self._nodes:
            problem = f"no output reads '{self.name}', so the state has nothing of it"
            raise UsageError(problem, place=str(spec.path), hint="ask for another collection, or make it an output")
        self._ways = HeldArrangements(self._plan.graph, manifest.arrangements.keys())
        self._pool = Pool(manifest.secret_bytes)
        self._kept = StoredArrangements(request.state, manifest, self._kinds, self._pool)
        self._node = self._nodes[0]

    def _rows(self, keys: pl.DataFrame, key: Mapping[str, Any], as_of: Any) -> pl.DataFrame:
        at, known = asked_time(self.manifest, self._kinds, as_of)
        answer = Finder(self._ways, self._kept, self._kinds, at, known, self._pool)
        for node in self._nodes:
            if self._ways.answers(node, {name: value is not None for name, value in key.items()}):
                found = answer.rows(node, keys)
                return found.rename({DIFF: self.diff}).sort(list(node.schema), nulls_last=True)
        raise self._refusal(key)

    def _refusal(self, key: Mapping[str, Any]) -> UsageError:
        shortest = {names[:1] if self.answers(dict.fromkeys(names[:1], True)) else names: None for names in self.keys}
        keys = [", ".join(names) for names in shortest]
        nulls = " (and no record without a value there)" if None in key.values() else ""
        asked = f"by {', '.join(key)}" if key else "without a key"
        given = self.request.spec.inputs.get(self.name)
        if not keys and given is not None and given.arrangement is not None:
            hint = f"ask it where it is kept, in {given.path.value}: `dd query` with that pipeline's file"
            return UsageError(f"'{self.name}' can't be asked here: another pipeline keeps it", hint=hint)
        if not keys:
            return UsageError(
                f"'{self.name}' can't be asked {asked}: the state keeps it by no key",
                hint="ask a collection that is reduced, made distinct or joined; or end this one with `- arrange: {by: [..], export: NAME}`",
            )
        why = f"the state keeps it by {' and by '.join(keys)}{nulls}"
        hint = f"give a value of {' or of '.join(keys)}"
        return UsageError(f"'{self.name}' can't be asked {asked}: {why}", hint=hint)


def asked_time(manifest: Manifest, kinds: Sequence[Type], as_of: Any) -> tuple[Time, Time | None]:
    """Return the time in question, by default the last that a state has closed; and again, or None if all updates in the state are before it."""
    upper = Frontier(manifest.upper)
    known = format_frontier(upper, kinds)
    corners = upper.corners() if upper else ((BEYOND,) * len(kinds),)
    if as_of is None and len(corners) == 1:
        return tuple(value - 1 for value in corners[0]), None
    if as_of is None:
        raise UsageError(
            f"the state has closed the times before {known}, and none of them is the last",
            hint="choose one with --as-of",
        )
    words = as_of if isinstance(as_of, tuple | list) else [as_of]
    at = parse_time(",".join(map(str, words)), find_time(manifest), "--as-of", "state's")
    if kept_clock(manifest) == "arrival" and upper.less_equal(at) and at <= (time_now(None),):
        return (last_time(manifest),), None  # nothing has arrived since the last run
    if upper.less_equal(at):
        raise UsageError(
            f"{','.join(map(str, words))} is not closed: the state has closed the times before {known}",
            hint="ask for an earlier one, or run the pipeline",
        )
    last = len(corners) == 1 and all(value == corner - 1 for value, corner in zip(at, corners[0], strict=True))
    return at, None if last else at


TIMED = (logical.Upsert, logical.Snapshots, logical.Once, temporal.JoinFunction)
"""Operators whose result depends on the times of their input."""
LOOKING = (logical.Watched, logical.Inspect)
"""Operators that return their input unchanged, for observers."""

ALWAYS = logical.Source((), {}, "#always")
"""A source with a row at any time: a query that depends on no input has its rows even if no input has had one."""


Found = tuple[Layout, "Matrix"]
"""A collection's records in some columns, as `[data lanes | count]`."""


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
        own, matrix = self._found[name]
        return self._timed(kernels.take(matrix, [*own.take(layout.names), matrix.shape[1] - 1]))

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
            return layout, as_of(self._inputs.matrix(node.name, layout, up_to(self.at)), len(self.at), self.at)
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
            return layout, np.column_stack([lanes, rows[DIFF].to_numpy()])
        return None

    @cached_property
    def _state(self) -> tuple[HeldArrangements, StoredArrangements, list[dict[str, Node]]]:
        """The arrangements of the state by collection, their files, and the physical nodes of the pipeline's collections."""
        manifest = self.manifest
        assert manifest is not None
        plan = self.bound.plan(manifest.cache["plan"])
        parts = zip(plan.generations, plan.parts, strict=True)
        lowered = [generation.nodes(part) for generation, part in parts]
        stored = StoredArrangements(self.request.state, manifest, self.bound.kinds, self.pool)
        return HeldArrangements(plan.graph, manifest.arrangements.keys(), whole=True), stored, lowered

    # --- of the inputs ----------------------------------------------------------------------------------------------

    def _once(self, node: logical.Once) -> Found:
        """Return the record of a `Once`, which exists if an input below has a row at or before the time."""
        sources = logical.sources(Graph({"": node})).values()
        if self.manifest is not None and self._keeps_rows({source.name for source in sources}):
            layout = Layout(node.schema)
            return layout, np.ones((1, layout.width + 1), np.int64)
        if any(logical.PRESENT in source.schema for source in sources):  # a row that deletes a key doesn't count
            return self._timed_records(node, list(node.schema))
        layout = Layout(node.schema)
        there = any(source == ALWAYS or self._has_rows(source.name) for source in sources)
        return layout, np.ones((int(there), layout.width + 1), np.int64)

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
        taken = self._inputs.readers[name].take((), None, up_to(self.at).elements)
        return any(piece.rows for piece in taken.slices)

    def _timed_records(self, node: Node, columns: list[str]) -> Found:
        """Return the records of an operator that depends on times, run over all updates below."""
        picked = {name: Column(name, node.schema[name]) for name in columns}
        schema = {name: each.type for name, each in picked.items()}
        picks: Node = logical.Apply((node,), schema, MapStep(tuple(picked.items())))
        upper = up_to(self.at)
        graph = lower(Graph({"": _rebuilt(picks, {})}))
        lenient = self.request.spec.errors is not None
        trial = Trial(
            graph, self.bound.kinds, self.pool, facts=self._inputs.facts(upper), lenient=lenient, answers=self.answers
        )
        fed = {name: self._inputs.matrix(name, layout, upper) for name, layout in trial.layouts.items()}
        return trial.outputs[""], trial.contents(self.at, fed)[""]


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
    """Return whether an operator's result depends on the times of its input; for a loop, whether the result of an operator in its body does."""
    if isinstance(node, loops.Leave):
        return any(isinstance(each, TIMED) and each.free for each in Graph({"": node}).nodes())
    return isinstance(node, TIMED)
