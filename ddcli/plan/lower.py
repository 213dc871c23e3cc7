"""Lowering of the logical graph to the physical one: fuse, prune, compose, share."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Self

from ddcli.dataclass import dataclass
from ddcli.errors import Span, Text, UsageError
from ddcli.expressions.parse import parse_scalar
from ddcli.expressions.scope import ColumnScope
from ddcli.expressions.steps import FilterStep, MapStep, PythonStep, Step, UnnestStep
from ddcli.expressions.tree import Cast, Column, Expression
from ddcli.expressions.types import POOLED
from ddcli.plan import groupings, logical, loops, physical
from ddcli.plan.asof import lower_asof
from ddcli.plan.engines import Engines, lowered_wishes
from ddcli.plan.node import Graph, Node
from ddcli.plan.physical_graph import PhysicalGraph
from ddcli.plan.physical_joins import joined_once, keyed, matched, padded, unmatched
from ddcli.plan.prune import arranged, required_columns, side_name
from ddcli.plan.reductions import INT64, grouped, lower_reduction, ranked
from ddcli.plan.shape import arrange, conform, is_choice, is_not_null, linear
from ddcli.plan.windows import lower_window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.types import Schema


def lower(graph: Graph) -> PhysicalGraph:
    """Return the physical graph that computes the outputs of `graph`; raise UsageError for one that a loop keeps inside."""
    return GraphLowering.of(graph).graph(graph)


def read_counts(graph: Graph) -> Counter[str]:
    """Return the number of readers of each node: a node with two is computed once, so it is fused into neither."""
    counts = Counter(child.fingerprint for node in graph.nodes() for child in node.inputs)
    counts.update(node.fingerprint for node in graph.outputs.values())
    return counts


@dataclass
class GraphLowering:
    """The lowering of a logical graph's nodes to physical ones, each once."""

    required: dict[str, frozenset[str]]
    once: frozenset[str]
    alike: bool
    _done: dict[str, Node] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: Graph,
        columns: Mapping[str, frozenset[str]] | None = None,
        once: frozenset[str] | None = None,
        *,
        alike: bool = False,
    ) -> Self:
        """Return the lowering of a graph's nodes.

        `columns` are the least to keep of each node, by fingerprint; `once` the nodes with a single reader. By default, and for nodes
        that `columns` doesn't have, both are those of the graph. With `alike`, equal arrangements are one, whether or not their
        collection has other readers; older states have them apart.
        """
        alone = {fingerprint for fingerprint, count in read_counts(graph).items() if count == 1}
        if once is not None:
            alone = {fingerprint for fingerprint in alone if fingerprint not in (columns or {})} | once
        return cls(required_columns(graph, columns), frozenset(alone), alike)

    def graph(self, graph: Graph) -> PhysicalGraph:
        """Return the physical graph that computes the outputs of the graph; raise UsageError for one that a loop keeps inside."""
        for node in graph.outputs.values():
            if node.free:
                raise UsageError(
                    "a collection of a loop's body is read outside of the loop", hint="let it leave the loop"
                )
        self.nodes(graph)  # inputs first, so that no lowering recurses deeply
        outputs = {
            name: self.exported(node) if name.startswith(logical.EXPORT) else self.node(node)
            for name, node in graph.outputs.items()
        }
        made = Graph(outputs).nodes()
        return PhysicalGraph(outputs, tuple(made), self.engines(graph.nodes(), graph.engines, made))

    def nodes(self, graph: Graph) -> dict[str, Node]:
        """Return the physical node of each node of the graph, by its fingerprint, with the columns of it that any reader needs.

        A node that is fused into its reader is in no physical graph; it maps to the node that the reader would read without fusion.
        """
        return {node.fingerprint: self.node(node) for node in graph.nodes()}

    def node(self, node: Node) -> Node:
        """Return the physical node with the required columns of a logical one, in its order."""
        done = self._done.get(node.fingerprint)
        if done is None:
            done = self._done[node.fingerprint] = self.lowered(node)
        return done

    def exported(self, node: Node) -> Node:
        """Return the arrangement of all columns of a collection by the key that it is exported with, as joins by that key read it.

        Records whose key is null are not in it: no lookup could find them.
        """
        assert isinstance(node, logical.Arrange)
        (child,) = node.inputs
        # Joins sort their keys, which may be written in any order.
        exported = self.exactly(child, child.schema)
        return keyed(exported, sorted(set(node.by)), fuse=self.alike and is_choice(exported))

    def engines(self, graph: Sequence[Node], wishes: Engines, nodes: Sequence[Node]) -> Engines:
        """Return the engine on which each physical node of a graph is to be computed."""
        return lowered_wishes(wishes, graph, self._done, nodes)

    def schema(self, node: Node) -> Schema:
        needed = self.required[node.fingerprint]
        return {name: kind for name, kind in node.schema.items() if name in needed}

    def read_once(self, node: Node) -> bool:
        return node.fingerprint in self.once

    def exactly(self, child: Node, schema: Schema) -> Node:
        """Return the physical node of `child` with just these columns, in this order, of these types."""
        return conform(self.node(child), schema, fuse=self.read_once(child))

    @singledispatchmethod
    def lowered(self, node: Node) -> Node:
        raise AssertionError(type(node))

    @lowered.register
    def _(self, node: logical.Source) -> Node:
        return physical.Scan((), self.schema(node), node.name, len(node.time), node.meaning, node.arranged)

    @lowered.register(logical.Upsert | logical.Snapshots)
    def _(self, node: logical.Upsert | logical.Snapshots) -> Node:
        (source,) = node.inputs
        assert isinstance(source, logical.Source)
        schema = self.schema(node)
        rows = record = {name: node.schema[name] for name in node.key} | schema
        if not isinstance(node, logical.Upsert):
            plain = physical.SnapshotTable((self.exactly(source, rows),), record, node.key, source.name)
            return conform(plain, schema, fuse=True)
        rows = record | {name: source.schema[name] for name in (logical.PRESENT, logical.ORDER)}
        if not node.lasting:
            table = physical.UpsertTable((self.exactly(source, rows),), record, node.key, source.name)
            return conform(table, schema, fuse=True)
        rows |= {logical.MOMENT: INT64}
        fed = self.exactly(source, rows | {logical.SEQUENCE: INT64})
        table = physical.UpsertTable((fed,), rows, node.key, source.name, lasting=True)
        present = parse_scalar(Text(f'"{logical.PRESENT}" = 1', Span("", 1, 1)), ColumnScope(rows))
        return conform(linear(table, [FilterStep(present)], rows, fuse=True), schema, fuse=True)

    @lowered.register
    def _(self, node: logical.Watched) -> Node:
        (source,) = node.inputs
        assert isinstance(source, logical.Source)
        return conform(
            physical.WatchedRecords((self.exactly(source, source.schema),), source.schema, source.name),
            self.schema(node),
            fuse=True,
        )

    @lowered.register
    def _(self, node: logical.Apply) -> Node:
        (child,) = node.inputs
        step = node.step
        schema = self.schema(node)
        if isinstance(step, MapStep):
            step = MapStep(tuple((name, expression) for name, expression in step.columns if name in schema))
            return linear(self.node(child), [step], schema, fuse=self.read_once(child))
        below = self.node(child)
        after = {name: below.schema[name] for name in below.schema}
        if isinstance(step, UnnestStep):
            after |= {step.name: step.call.type}
        elif isinstance(step, PythonStep):
            after = dict(step.output)
        applied = linear(below, [step], after, fuse=self.read_once(child))
        return conform(applied, schema, fuse=True)

    @lowered.register
    def _(self, node: logical.Once) -> Node:
        return physical.StandingRecord((self.exactly(node.inputs[0], node.schema),), node.schema)

    @lowered.register
    def _(self, node: logical.Negate) -> Node:
        schema = self.schema(node)
        return physical.SignedSum((self.exactly(node.inputs[0], schema),), schema, (-1,))

    @lowered.register
    def _(self, node: logical.Concat) -> Node:
        schema = self.schema(node)
        return physical.SignedSum(
            tuple(self.exactly(child, schema) for child in node.inputs), schema, (1,) * len(node.inputs)
        )

    @lowered.register
    def _(self, node: logical.Consolidate) -> Node:
        schema = self.schema(node)
        return physical.Consolidated((self.exactly(node.inputs[0], schema),), schema)

    @lowered.register
    def _(self, node: logical.Inspect) -> Node:
        return physical.Show((self.exactly(node.inputs[0], node.schema),), node.schema, node.label)

    @lowered.register
    def _(self, node: logical.Arrange) -> Node:
        return self.node(node.inputs[0])

    @lowered.register
    def _(self, node: logical.Join) -> Node:
        schema = self.schema(node)
        on = tuple(sorted(node.on))
        one, other = [one for one, _ in on], [other for _, other in on]
        inner = node.how == "inner"
        left_arranged = self.keyed(node.left, one, fuse=inner and self.read_once(node.left), alone=inner)
        right_arranged = self.keyed(node.right, other, fuse=inner and self.read_once(node.right), alone=inner)
        columns = tuple(
            (name, "right" if side == "right" else "left", source)
            for name, side, source in node.columns
            if name in schema
        )
        if node.how == "left" and self.unique(node.right, other):
            return joined_once(node, self.side(node.left, one), left_arranged, right_arranged, columns, schema)
        sides = {"left": left_arranged.schema, "right": right_arranged.schema}
        inner_schema = {name: sides[side][source] for name, side, source in columns}
        parts: list[Node] = [
            conform(physical.EquiJoin((left_arranged, right_arranged), inner_schema, columns), schema, fuse=True)
        ]
        if node.how in ("left", "full"):
            alone = unmatched(self.side(node.left, one), left_arranged, right_arranged)
            parts.append(padded(node, alone, "left", schema))
        if node.how in ("right", "full"):
            alone = unmatched(self.side(node.right, other), right_arranged, left_arranged)
            parts.append(padded(node, alone, "right", schema))
        return parts[0] if len(parts) == 1 else physical.SignedSum(tuple(parts), schema, (1,) * len(parts))

    @lowered.register
    def _(self, node: logical.AsofJoin) -> Node:
        return lower_asof(node, self.node(node.left), self.node(node.right), self.schema(node))

    def unique(self, node: Node, columns: Sequence[str]) -> bool:
        """Return whether no two records of a collection agree on these columns."""
        return logical.is_unique(node.unique, columns)

    def side(self, child: Node, keys: Sequence[str], *, fuse: bool = False) -> Node:
        """Return the physical node of `child` with the columns that joins by these keys need, in its order."""
        whole, needed = self.node(child), self.required[side_name(arranged(child).fingerprint, keys)]
        return conform(whole, {name: kind for name, kind in whole.schema.items() if name in needed}, fuse=fuse)

    def keyed(self, child: Node, keys: Sequence[str], *, fuse: bool, alone: bool) -> physical.Arrangement:
        """Return the arrangement of `child` by join keys. One that is filtered on read stays as it is, if it is by these keys.

        `fuse` it into `child`; and if `alone`, into the choice of columns, which has no other reader.
        """
        conditions: list[Expression] = []
        below = child
        while isinstance(below, logical.FilterOnRead):
            assert isinstance(below.step, FilterStep)
            conditions.insert(0, below.step.condition)
            (below,) = below.inputs
        plain = len(set(keys)) == len(keys) and not any(below.schema[key].nullable for key in keys)
        if conditions and plain and isinstance(below, logical.Arrange) and set(below.by) == set(keys):
            side = self.side(below, keys)
            whole = keyed(side, keys, fuse=self.alike and is_choice(side))
            return physical.Filtered((whole,), whole.schema, whole.key, tuple(conditions))
        side = self.side(child, keys, fuse=fuse)
        fuse = fuse or (alone and side is not self.node(child)) or (self.alike and is_choice(side))
        return keyed(side, keys, fuse=fuse)

    @lowered.register
    def _(self, node: logical.Semijoin) -> Node:
        schema = self.schema(node)
        on = tuple(sorted(node.on))
        keys = [one for one, _ in on]
        left_arranged = self.keyed(node.inputs[0], keys, fuse=False, alone=not node.anti)
        right_arranged = self.keyed(node.inputs[1], [other for _, other in on], fuse=False, alone=True)
        once = self.unique(node.inputs[1], [other for _, other in on])
        if node.anti:
            left = self.side(node.inputs[0], keys)
            return conform(unmatched(left, left_arranged, right_arranged, once=once), schema, fuse=True)
        return conform(matched(left_arranged, right_arranged, once=once), schema, fuse=True)

    @lowered.register
    def _(self, node: groupings.Reduce) -> Node:
        return conform(
            lower_reduction(node, self.node(node.inputs[0]), fuse=self.read_once(node.inputs[0])),
            self.schema(node),
            fuse=True,
        )

    @lowered.register
    def _(self, node: groupings.PythonReduce) -> Node:
        child = self.node(node.inputs[0])
        columns = {name: Column(name, child.schema[name]) for name in dict.fromkeys(node.by + node.values)}
        prepared, key = grouped(child, columns, node.by)
        schema = {name: prepared.schema[name] for name in key} | node.schema
        group = physical.PythonGroup((arrange(prepared, key),), schema, key, node.values, node.function)
        return conform(group, self.schema(node), fuse=True)

    @lowered.register
    def _(self, node: groupings.Threshold) -> Node:
        child = self.exactly(node.inputs[0], node.schema)
        result = physical.Multiplicity((arrange(child, tuple(node.schema)),), node.schema, node.function)
        return conform(result, self.schema(node), fuse=True)

    @lowered.register
    def _(self, node: groupings.TopK) -> Node:
        child = self.exactly(node.inputs[0], node.schema)
        columns = {name: Column(name, kind) for name, kind in child.schema.items()}
        prepared, key = grouped(child, columns, node.by)
        if all(child.schema[name].kind not in POOLED for name, _ in node.order_by):
            prepared = ranked(prepared, key, node.order_by)
        schema = {name: prepared.schema[name] for name in key} | node.schema
        top = physical.Top((arrange(prepared, key),), schema, node.k, node.order_by)
        return conform(top, self.schema(node), fuse=True)

    @lowered.register
    def _(self, node: groupings.Window) -> Node:
        schema = self.schema(node)
        child = self.exactly(node.inputs[0], node.inputs[0].schema)
        return conform(lower_window(node, schema, child), schema, fuse=True)

    @lowered.register
    def _(self, node: logical.Temporal) -> Node:
        bounds = {"$from": node.lower, "$until": node.upper}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        child = self._beside(node, given)
        shift = physical.Shift((child,), self.schema(node), node.lower is not None, node.upper is not None)
        return physical.Delay((shift,), shift.schema)

    @lowered.register
    def _(self, node: logical.JoinFunction) -> Node:
        child = self.exactly(node.inputs[0], node.inputs[0].schema)
        shift = physical.PythonShift((child,), node.schema, node.function, node.batch)
        return conform(physical.Delay((shift,), node.schema), self.schema(node), fuse=False)

    @lowered.register
    def _(self, node: loops.Enter) -> Node:
        at = node.at if node.at.type == INT64 else Cast(node.at, INT64)
        return physical.EnterAt((self._beside(node, {"$round": at}),), self.schema(node), node.loop, node.depth)

    def _beside(self, node: Node, added: dict[str, Expression]) -> Node:
        """Return the node's input with its columns and, last, the added ones. Records where one of these is null stay out."""
        (child,) = node.inputs
        columns: dict[str, Expression] = {name: Column(name, kind) for name, kind in self.schema(node).items()} | added
        steps: list[Step] = [MapStep(tuple(columns.items()))]
        nullable = [name for name, expression in added.items() if expression.type.nullable]
        steps += [FilterStep(is_not_null(Column(name, added[name].type))) for name in nullable]
        schema = {name: expression.type for name, expression in columns.items()}
        if nullable:
            schema |= {name: schema[name].required() for name in nullable}
            steps.append(MapStep(tuple((name, Column(name, kind)) for name, kind in schema.items())))
        return linear(self.node(child), steps, schema, fuse=self.read_once(child))

    @lowered.register
    def _(self, node: loops.LoopVariable) -> Node:
        return conform(node, self.schema(node))

    @lowered.register
    def _(self, node: loops.Iterate) -> Node:
        """Identify the loop by its lowered nodes: a column outside that no node reads is no part of it."""
        inputs = tuple(self.exactly(child, child.schema) for child in node.inputs)
        return loops.identified(replace(node, inputs=inputs))

    @lowered.register
    def _(self, node: loops.Leave) -> Node:
        return conform(replace(node, inputs=(self.node(node.inputs[0]),)), self.schema(node))
