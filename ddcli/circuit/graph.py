"""The physical graph as a scope of operators, each loop in it as a scope within, and the places of sources.

A node is placed in the scope of the innermost loop whose round it depends on; a reader further inside lets it enter.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from ddcli.circuit.linear import value_layout
from ddcli.circuit.operators import INT64, CircuitContext, Operators, Traces, reduction, shards_of
from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.counts import OUTPUT
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.groups import Combine, CombinedSums
from ddcli.engine.operators.join import Arrange, Entered
from ddcli.engine.operators.linear import Consolidate, Permute
from ddcli.engine.operators.shift import Delay
from ddcli.engine.operators.upsert import Upsert
from ddcli.engine.records import decode_records
from ddcli.engine.scope import Scope
from ddcli.engine.scope_tree import LoopEntry, LoopScope, ScopeTree, VariablePlaces
from ddcli.engine.stages import Handle
from ddcli.plan import groupings, logical, loops, physical, physical_joins
from ddcli.plan.loops import outer_nodes
from ddcli.plan.node import below, digest
from ddcli.privacy import unnamed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.engine.executor import Part
    from ddcli.engine.rounds import Interval
    from ddcli.engine.stages import Deltas
    from ddcli.engine.trace.spine import Trace
    from ddcli.engine.trace.trace_import import Filtered, Imported
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Node
    from ddcli.plan.physical import PhysicalGraph


@dataclass(frozen=True)
class IndexedSource:
    """A source that is arranged as it comes: its key and all its columns.

    It is an arrangement that another dataflow keeps, in `shards`; or it is fed with rows [key | value | present | order], the last of a key having its value.
    """

    key: tuple[str, ...]
    schema: Schema
    shards: Sequence[Imported] | None = None


class SourcePlaces:
    """The places of a scope's sources. Those `given` are arranged as they come, by shards that are made now or `lazily`."""

    def __init__(
        self,
        scope: Scope,
        traces: Traces,
        given: Mapping[str, IndexedSource],
        *,
        lazily: bool,
    ) -> None:
        self.fed: dict[str, Handle] = {}
        """The places at which the sources that are arranged as they come are fed."""
        self._placed: dict[str, tuple[Handle, Sequence[Imported | Upsert]]] = {}
        """And where their updates come out, arranged."""
        self._scope, self._traces, self._given, self._lazily = scope, traces, given, lazily

    def scan(self, node: physical.Scan) -> Handle:
        """Return the place of a source: arranged as it comes, by rows, or by columns, as the node states."""
        layout = Layout(node.schema)
        indexed = self._given.get(node.name)
        if indexed is None:
            return self._scope.source(layout.width, layout)
        handle, shards = self.source(node.name)
        lanes = Layout(indexed.schema).take(node.schema)
        permutes = [Permute(lanes, self._scope.nt) for _ in shards]
        return self._scope.add(permutes, handle, width=layout.width, layout=layout)

    def arranged_as(self, node: physical.Arrangement) -> str | None:
        """Return the name of the source that comes as the very arrangement of a node; None if none does."""
        (scan,) = node.inputs
        if not isinstance(scan, physical.Scan) or scan.name not in self._given:
            return None
        indexed = self._given[scan.name]
        same = indexed.key == node.key and list(indexed.schema.items()) == list(node.schema.items())
        return scan.name if same else None

    def source(self, name: str) -> tuple[Handle, Sequence[Imported | Upsert]]:
        """Return the handle of the updates of a source that is arranged as it comes, and the operators that keep it."""
        if name not in self._placed:
            indexed = self._given[name]
            layout = Layout(indexed.schema)
            shards: Sequence[Imported | Upsert]
            if indexed.shards is not None:
                shards = indexed.shards
                handle = self.fed[name] = self._scope.fed(shards, layout.width + self._scope.nt + 1, layout)
            else:
                key = Layout({column: indexed.schema[column] for column in indexed.key})
                value = value_layout(indexed.schema, indexed.key)
                trace = self._traces.trace
                nt, count = self._scope.nt, self._scope.workers.count
                # Not over `self`: what a lazy shard is made with lives as long as the scope, which would then be a cycle.
                shards = shards_of(
                    lambda shard: Upsert(trace(digest("upserts", name), key, value, nt, shard)),
                    count,
                    lazily=self._lazily,
                )
                fed = Layout(key.schema | value.schema | {"$present": INT64, "$order": INT64})
                self.fed[name] = self._scope.source(fed.width, fed)
                handle = self._scope.add(
                    shards, self.fed[name], width=layout.width, layout=layout, route=range(key.width)
                )
            self._placed[name] = handle, shards
        return self._placed[name]


T = TypeVar("T")

SHOWN = 3
"""Records of a collection that a message shows."""


@dataclass
class Assembled:
    """A scope that computes a physical graph: the places of inputs and outputs, and their layouts."""

    scope: Scope
    sources: dict[str, Handle] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    leaving: dict[str, Handle] = field(default_factory=dict)
    outputs: dict[str, Layout] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)
    """The outputs that have equal records in one shard."""
    arranged: dict[str, list[Trace]] = field(default_factory=dict)
    """The shards' traces of those outputs that are arrangements: their contents are read from there."""

    @cached_property
    def nest(self) -> ScopeTree:
        """The scope and those within it."""
        return ScopeTree(self.scope)

    def step(self, fed: dict[str, Delta | Deltas], interval: Interval) -> dict[str, Deltas]:
        """Close an interval. `fed` has the inputs' updates by name, and loses them; return the outputs' updates.

        An output's updates are one delta, or one for each shard; these share no record.
        """
        found = self.step_places({self.sources[name].index: fed.pop(name) for name in [*fed]}, interval)
        return {name: self._left(name, found.get(handle.index, ())) for name, handle in self.leaving.items()}

    def step_places(
        self,
        fed: dict[int, Delta | Deltas],
        interval: Interval,
        parts: Sequence[tuple[int, Part]] = (),
        on_trace_ready: Callable[[Trace], None] | None = None,
        leave: Callable[[int, Delta], bool] | None = None,
    ) -> dict[int, Deltas]:
        """Close an interval, as `engine.executor.step_in_memory` does: what is fed, and the updates returned, are by place."""
        found = self.scope.step(fed, interval)
        if found is None:
            from ddcli.engine.executor import step_in_memory  # a step of one stage needs no schedule and no store

            found = step_in_memory(self.nest, fed, interval, parts, on_trace_ready, leave)
        return found

    def _left(self, name: str, deltas: Sequence[Delta]) -> Deltas:
        filled = [delta for delta in deltas if len(delta.updates)]
        if len(filled) < 2 or name in self.owned:
            return filled
        # Rows of two shards may be equal where the key that they were distributed by is gone.
        return [Delta(kernels.concat([delta.updates for delta in filled]))]


def assemble(
    graph: PhysicalGraph,
    scope: Scope,
    context: CircuitContext,
    indexed: Mapping[str, IndexedSource] | None = None,
    *,
    parted: bool = False,
    lazily: bool = False,
) -> Assembled:
    """Fill `scope` with the operators of `graph`.

    `indexed` are the sources that are arranged as they come: arrangements that others keep, fed by shard, and upserts. With `parted`, the
    shards of an output share no record. With `lazily`, an operator of a shard, and its traces, are made when the shard is first taken
    through its stage.
    """
    left: dict[str, list[int]] = defaultdict(list)
    for node in graph.nodes:
        if isinstance(node, loops.Leave):
            left[node.inputs[0].fingerprint].append(node.which)
    context = replace(context, joined=graph.only_joined)
    assembly = _Assembly(scope, None, _SharedFacts(context, left, indexed or {}, lazily))
    result = Assembled(scope)
    for name, node in graph.outputs.items():
        handle = assembly.handle(node)
        if isinstance(node, physical.Arrangement):
            shards = () if lazily else assembly.operators.arranged[node.fingerprint]
            result.arranged[name] = [shard.trace for shard in shards if isinstance(shard, Arrange | Upsert)]
        else:
            layout = result.outputs[name] = Layout(node.schema)
            in_parts = scope.pairs is not None and scope.pairs.each
            if node.partition(scope.nt) is not None and not (in_parts and node.repeats):
                result.owned.add(name)
            elif parted and scope.workers.count > 1:
                parts = [Consolidate() for _ in range(scope.workers.count)]
                handle = scope.add(parts, handle, width=layout.width, layout=layout, route=range(layout.width))
                scope.call(handle, OUTPUT + name, "output")
                result.owned.add(name)
            result.leaving[name] = handle
            scope.keep(handle)
    for scan in graph.scans().values():
        handle = assembly.handle(scan)
        result.sources[scan.name] = assembly.sources.fed.get(scan.name, handle)
        result.layouts[scan.name] = Layout(scan.schema)
    return result


def route(node: Node) -> Sequence[int]:
    """Return the lanes of a node's input that decide the shard of a row; none if rows stay in their shard."""
    return () if node.exchanged_by is None else Layout(node.inputs[0].schema).take(node.exchanged_by)


@dataclass(frozen=True)
class _SharedFacts:
    """The facts that all scopes share: `left` has, by loop, which of its bodies are read outside."""

    context: CircuitContext
    left: dict[str, list[int]]
    indexed: Mapping[str, IndexedSource]
    lazily: bool


@dataclass
class _Assembly:
    """The filling of one scope. A node that depends on no round of the scope's loop is placed outside, and enters."""

    scope: Scope
    outside: _Assembly | None
    whole: _SharedFacts
    handles: dict[str, Handle] = field(default_factory=dict)
    ports: dict[tuple[str, int], Handle] = field(default_factory=dict)
    entering: list[tuple[Node, LoopEntry]] = field(default_factory=list)
    variables: dict[int, Handle] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.operators = Operators(self.scope, self.whole.context)
        self.sources = SourcePlaces(self.scope, self.whole.context.traces, self.whole.indexed, lazily=self.whole.lazily)

    def handle(self, node: Node) -> Handle:
        """Return the place of a node in this scope."""
        for each in below(node, lambda known: known.fingerprint in self.handles, self.before):
            self.handles[each.fingerprint] = self.place(each)
        return self.handles[node.fingerprint]

    def before(self, node: Node) -> Sequence[Node]:
        """Return the nodes that have a place in this scope before a node gets its own."""
        if node.level < self.scope.depth or isinstance(node, loops.LoopVariable | physical.Scan):
            return ()
        if isinstance(node, loops.Leave):
            (iterate,) = node.inputs
            assert isinstance(iterate, loops.Iterate)
            return (*iterate.initials, *outer_nodes(iterate))
        return () if isinstance(node, physical.Arrangement) and self.sources.arranged_as(node) else node.inputs

    def place(self, node: Node) -> Handle:
        if node.level < self.scope.depth:
            return self.enter(node)
        layout = Layout(node.schema)
        if isinstance(node, loops.Leave):
            return self.called(node, self.leave(node))
        if isinstance(node, loops.LoopVariable):
            return self.called(node, self.variable(node.index, layout))
        if isinstance(node, physical.Scan):
            return self.called(node, self.sources.scan(node))
        if isinstance(node, physical.Arrangement) and (source := self.sources.arranged_as(node)):
            handle, self.operators.arranged[node.fingerprint] = self.sources.source(source)
            return handle
        inputs = [self.handle(child) for child in node.inputs]
        summed = isinstance(node, groupings.Accumulate | logical.Once) and self.scope.combines and self.scope.nt == 1
        if summed:
            inputs = self.summed(node, *inputs)
        moved = summed and isinstance(node, groupings.Accumulate) and not self.scope.streams
        if isinstance(node, physical_joins.RowLookup) and self.scope.workers.count > 1:
            inputs = self.lookup_inputs(node, *inputs)
        shards = self.shards(partial(self.operators.operator, node))
        if isinstance(node, physical.Arrangement):
            self.operators.arranged[node.fingerprint] = cast("Sequence[Arrange | Filtered]", shards)
        # Updates of a chain of lookups at later rounds continue at once: they must meet the others as of this step.
        joins, wraps = physical.EquiJoin | physical_joins.DeltaJoin, isinstance(node, physical.Filtered)
        shifts = isinstance(node, joins | loops.EnterAt)
        handle = self.scope.add(
            shards,
            *inputs,
            width=layout.width,
            layout=layout,
            route=() if moved else route(node),
            shifts=shifts,
            wraps=wraps,
            arranges=isinstance(node, physical.Arrangement),
        )
        self.scope.call(handle, node.fingerprint, node.kind, keeps_signs=node.keeps_signs, takes=not summed)
        if self.operators.times > 1 and isinstance(node, joins):
            # The lattice join of two closed times may be open: a join's updates wait for it.
            operators, depth = self.operators, self.scope.depth
            delays = self.shards(lambda shard: Delay(operators.waiting_trace(node, layout, shard), depth))
            handle = self.scope.add(delays, handle, width=layout.width, layout=layout, route=range(layout.width))
        return handle

    def summed(self, node: Node, read: Handle) -> list[Handle]:
        """Return the handles that an accumulation or a standing record reads in place of its input, whose parts are added up as they come.

        For an accumulation these are rows as they are, and the sums of those that were added up already. If the scope doesn't distribute parts as they come,
        both are exchanged to the shards of their groups here.
        """
        if isinstance(node, logical.Once):
            layout = Layout(node.schema)
            shards = [Consolidate(sorted_ones=True) for _ in range(self.scope.workers.count)]
            times = self.scope.add(shards, read, width=layout.width, layout=layout)
            self.scope.call(times, node.fingerprint, node.kind, emits=False)
            return [times]
        assert isinstance(node, groupings.Accumulate)
        combines = [Combine(reduction(node, self.operators.times)) for _ in range(self.scope.workers.count)]
        layout = Layout(node.inputs[0].schema)
        rows = self.scope.add(combines, read, width=layout.width, layout=layout)
        self.scope.call(rows, node.fingerprint, node.kind, emits=False)
        digits = {f"\0digit{at}": INT64 for at in range(combines[0].reduce.digits)}
        added = Layout({name: node.schema[name] for name in node.by} | digits)
        sums = self.scope.add([CombinedSums(each) for each in combines], read, width=added.width, layout=added)
        if self.scope.streams:
            return [rows, sums]
        return [self._moved(rows, layout, route(node)), self._moved(sums, added, route(node))]

    def _moved(self, read: Handle, layout: Layout, lanes: Sequence[int]) -> Handle:
        """Return a place with the same updates, partitioned by these lanes."""
        permutes = [Permute(range(layout.width), self.scope.nt) for _ in range(self.scope.workers.count)]
        return self.scope.add(permutes, read, width=layout.width, layout=layout, route=lanes)

    def lookup_inputs(self, node: physical_joins.RowLookup, updates: Handle, arranged: Handle) -> list[Handle]:
        """Return the handles that a lookup reads, with the updates in the shards of the rows that they look up."""
        if node.is_in_order:
            return [updates, arranged]
        layout = Layout(node.inputs[0].schema)
        route = layout.take(one for one, _ in node.on[: len(node.arranged.key)])
        return [self._moved(updates, layout, route), arranged]

    def called(self, node: Node, handle: Handle, label: str = "") -> Handle:
        """Return the place of a node under the node's fingerprint as name; `label` is its name in the progress display."""
        self.scope.call(handle, node.fingerprint, label)
        return handle

    def shards(self, make: Callable[[int], T]) -> Sequence[T]:
        """Return the shards of an operator."""
        return shards_of(make, self.scope.workers.count, lazily=self.whole.lazily)

    # --- loops ----------------------------------------------------------------------------------------------------

    def enter(self, node: Node) -> Handle:
        """Let a collection from outside into the loop: from its first round on, an arrangement as it stands."""
        assert self.outside is not None
        self.outside.handle(node)
        if isinstance(node, physical.Arrangement):
            arranged = self.outside.operators.arranged[node.fingerprint]
            shards = self.shards(lambda shard: Entered(arranged[shard].trace))
            nt = self.operators.times + node.level
            layout = Layout(node.schema)
            handle = self.scope.fed(shards, layout.width + nt + 1, layout)
            self.operators.arranged[node.fingerprint] = shards
            self.entering.append((node, LoopEntry(handle, shards)))
        else:
            layout = Layout(node.schema)
            handle = self.scope.source(layout.width, layout)
            self.entering.append((node, LoopEntry(handle)))
        return handle

    def leave(self, node: loops.Leave) -> Handle:
        (iterate,) = node.inputs
        assert isinstance(iterate, loops.Iterate)
        if (iterate.fingerprint, node.which) not in self.ports:
            self.loop(iterate)
        return self.ports[iterate.fingerprint, node.which]

    def loop(self, node: loops.Iterate) -> None:
        """Add a loop: a scope of its own with the nodes that depend on its round."""
        around = self.scope
        scope = Scope(around.nt + 1, around.depth + 1, around.workers, counted=around.counted)
        inner = _Assembly(scope, self, self.whole)
        layouts = [Layout(initial.schema) for initial in node.initials]
        places = [inner.variable(at, layout) for at, layout in enumerate(layouts)]
        bodies = [inner.handle(body) for body in node.bodies]
        left = sorted(set(self.whole.left[node.fingerprint]))

        def show(at: int, changes: np.ndarray) -> str:
            shown = np.ascontiguousarray(changes[:SHOWN])
            records = decode_records(shown, layouts[at], self.whole.context.pool(0))
            return ", ".join(
                f"{unnamed(record)} {diff:+d}" for record, diff in zip(records, shown[:, -1].tolist(), strict=True)
            )

        loop = LoopScope(
            scope,
            [VariablePlaces(*each) for each in zip(places, bodies, node.names, strict=False)],
            [entry for _, entry in inner.entering],
            [bodies[which] for which in left],
            node.bound,
            node.guard,
            show,
        )
        inputs = [self.handle(outer) for outer in (*node.initials, *(outer for outer, _ in inner.entering))]
        out = [Layout(node.bodies[which].schema) for which in left]
        place = Handle(len(around.places))
        ports = self.scope.add_inner(loop, *inputs, widths=[layout.width for layout in out], layouts=out)
        self.called(node, place, node.kind)
        for which, port in zip(left, ports, strict=True):
            self.ports[node.fingerprint, which] = port

    def variable(self, index: int, layout: Layout) -> Handle:
        """Return the place of one of the loop's variables."""
        if index not in self.variables:
            self.variables[index] = self.scope.source(layout.width, layout)
        return self.variables[index]
