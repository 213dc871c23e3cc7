"""Filters moved as near to the inputs as possible: below joins, groupings, windows, unions and projections.

Only moves that pay for all data are made: a filter passes a collection without another reader, and enters no side of a join that other joins by the
same key share. The same records fail as before: a filter is moved only if it fails on no record, and passes only operators that fail on none. Of alternatives
over both sides of a join, each side gets the condition that follows from all of them.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.steps import FilterStep, MapStep
from ddcli.expressions.tree import Column, Expression
from ddcli.plan import asof, groupings, joins, logical, windows
from ddcli.plan.conditions import all_of, alternatives, any_of, conjuncts, is_certain, is_certain_step
from ddcli.plan.node import Graph, Node
from ddcli.plan.padded_joins import typed, without_padding
from ddcli.plan.prune import arranged, side_name, sides

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence

    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.engines import Engines

Parts = dict[int, Expression]
"""Conditions by number, over the columns of the node that they have reached."""
DEEPEST = 40
"""The most nodes that a condition passes."""
CERTAIN_AGGREGATES = frozenset({"count", "min", "max", "bool_and", "bool_or"})
"""Aggregates that fail on no rows; sums overflow."""


@dataclass(frozen=True)
class MovedFilters:
    """A graph with its filters moved: the new node of each node of the graph as written, by fingerprint.

    `same` has the nodes whose new node has the same records; `operators` also those whose records are filtered now.
    """

    graph: Graph
    same: Mapping[str, Node]
    operators: Mapping[str, Node]


def as_written(graph: Graph) -> MovedFilters:
    """Return a graph with its filters where they are written."""
    nodes = {node.fingerprint: node for node in graph.nodes()}
    return MovedFilters(graph, nodes, nodes)


def pushed_down(graph: Graph, several: Collection[str], *, partners: bool = True) -> MovedFilters:
    """Return a graph with its filters moved; `several` has the fingerprints of nodes, and the names of sides, that several read.

    Unless `partners` is set, filters pass no window, and apply only to the left sides of semijoins and as-of joins.
    """
    mover = _FilterMover(several, partners)
    for node in graph.nodes():
        mover.take(node)
    outputs = {name: mover.done[node.fingerprint] for name, node in graph.outputs.items()}
    found = Graph(outputs)
    there = {node.fingerprint for node in found.nodes()}
    same = {written: node for written, node in mover.done.items() if node.fingerprint in there}
    return MovedFilters(Graph(outputs, mover.engines(found, graph.engines)), same, {**mover.stands, **same})


def read_by_several(graph: Graph) -> dict[str, bool]:
    """Return for each node of a graph, by fingerprint, and for each side, by name, whether several read it."""
    found: dict[str, bool] = {}

    def read(name: str) -> None:
        found[name] = name in found

    for node in graph.outputs.values():
        read(node.fingerprint)
    for node in graph.nodes():
        for child in node.inputs:
            read(child.fingerprint)
        for child, key in sides(node):
            read(side_name(child.fingerprint, key))
    return found


@dataclass
class _FilterMover:
    """The nodes of a graph, added from the inputs on, each with its filters pushed down."""

    several: Collection[str]
    partners: bool
    done: dict[str, Node] = field(default_factory=dict)
    """The nodes with the records of those that were taken, by fingerprint."""
    stands: dict[str, Node] = field(default_factory=dict)
    """The nodes that do the work of these, even if their records differ by now."""
    written: dict[str, list[str]] = field(default_factory=dict)
    """The nodes as written for which a node stands."""
    _depth: int = 0

    def take(self, node: Node) -> None:
        """Add a node over the new nodes of its inputs; if it is a filter, push its conditions down."""
        inputs = tuple(self.done[child.fingerprint] for child in node.inputs)
        found = node.over(inputs)
        parts = _movable(found)
        if not parts and type(found) is logical.Apply and isinstance(found.step, FilterStep):
            found = self.over(found, (self.inner_joined(inputs[0], found.step.condition),))
        if parts:
            (child,) = inputs
            bare = {at: part for at, part in parts.items() if not part.columns()}
            below, left = self.pushed(child, {at: part for at, part in parts.items() if at not in bare})
            if below is not child:
                found = filtered_by(below, [*bare.values(), *left.values()])
        self.done[node.fingerprint] = found
        self._stand(found, [node.fingerprint])

    def engines(self, graph: Graph, wishes: Engines) -> Engines:
        """Return the wishes for the new nodes: those for the nodes that they replace, or, for a filter that sank, those for its readers."""
        found: Engines = {}
        for node in reversed(graph.nodes()):
            wanted = found.get(node.fingerprint, frozenset())
            for each in self.written.get(node.fingerprint, ()):
                wanted |= wishes.get(each, frozenset())
            found[node.fingerprint] = wanted
            for child in node.inputs:
                if not self.written.get(child.fingerprint):
                    found[child.fingerprint] = found.get(child.fingerprint, frozenset()) | wanted
        return {fingerprint: wanted for fingerprint, wanted in found.items() if wanted}

    def _stand(self, node: Node, written: Iterable[str]) -> None:
        known = self.written.setdefault(node.fingerprint, [])
        for each in written:
            self.stands[each] = node
            known.append(each)

    def over(self, node: Node, inputs: Sequence[Node]) -> Node:
        """Return a node with other inputs, which replaces the same nodes."""
        if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
            return node
        found = replace(node, inputs=tuple(inputs))
        self._stand(found, self.written.get(node.fingerprint, ()))
        return found

    def pushed(self, node: Node, parts: Parts) -> tuple[Node, Parts]:
        """Return a node with conditions pushed below it, as far as it has a single reader and lets them pass, and the remaining conditions."""
        written = self.written.get(node.fingerprint, ())
        if not parts or self._depth > DEEPEST or any(each in self.several for each in written):
            return node, parts
        self._depth += 1
        try:
            return self.pushed_below(node, parts)
        finally:
            self._depth -= 1

    def inner_joined(self, node: Node, condition: Expression) -> Node:
        """Return a node that is read once by a condition that may not sink: a left join as an inner one, if it drops its padded records."""
        if any(each in self.several for each in self.written.get(node.fingerprint, ())):
            return node
        if isinstance(node, logical.Apply) and _lets_through(node):
            (child,) = node.inputs
            given = dict(node.step.columns) if isinstance(node.step, MapStep) else {}
            return self.over(node, (self.inner_joined(child, condition.substitute(given)),))
        if not isinstance(node, joins.Join):
            return node
        inner = without_padding(node, [condition])
        return node if inner is node else self._inner(node, inner)

    def _inner(self, written: joins.Join, inner: Node) -> Node:
        """Return an inner join in the place of a left one, with columns of its types."""
        self._stand(inner, self.written.get(written.fingerprint, ()))
        return typed(inner, written.schema)

    def with_conditions(self, node: Node, parts: Parts) -> Node:
        """Return a node with conditions pushed below it, or applied to it."""
        found, left = self.pushed(node, parts)
        return filtered_by(found, left.values())

    def pushed_into_side(self, node: Node, key: Iterable[str], parts: Parts) -> tuple[Node, Parts]:
        """Return a side of a join with conditions applied to it, and the remaining ones if it is shared with other joins by the key."""
        found, left = self.pushed(node, parts)
        name = [side_name(each, key) for each in self.written.get(arranged(found).fingerprint, ())]
        if isinstance(found, logical.Arrange | logical.FilterOnRead) or any(each in self.several for each in name):
            return found, left
        return filtered_by(found, left.values()), {}

    @singledispatchmethod
    def pushed_below(self, node: Node, parts: Parts) -> tuple[Node, Parts]:
        """Return a node with conditions pushed below it, and the remaining ones. Most nodes let none pass."""
        return node, parts

    @pushed_below.register
    def _(self, node: logical.Apply, parts: Parts) -> tuple[Node, Parts]:
        if not _lets_through(node):
            return node, parts
        given = dict(node.step.columns) if isinstance(node.step, MapStep) else {}
        (child,) = node.inputs
        found, left = self.pushed(child, {at: part.substitute(given) for at, part in parts.items()})
        return self.over(node, (found,)), {at: parts[at] for at in left}

    @pushed_below.register(logical.Negate | logical.Consolidate)
    def _(self, node: Node, parts: Parts) -> tuple[Node, Parts]:
        (child,) = node.inputs
        found, left = self.pushed(child, parts)
        return self.over(node, (found,)), left

    @pushed_below.register
    def _(self, node: logical.Concat, parts: Parts) -> tuple[Node, Parts]:
        """Put the conditions that sink in one input into all of them."""
        tried = [self.pushed(child, parts) for child in node.inputs]
        left = {at: part for at, part in parts.items() if all(at in rest for _, rest in tried)}
        inputs = [filtered_by(found, [part for at, part in rest.items() if at not in left]) for found, rest in tried]
        return self.over(node, inputs), left

    @pushed_below.register
    def _(self, node: joins.Join, parts: Parts) -> tuple[Node, Parts]:
        written, node = node, without_padding(node, parts.values())
        kept = node.how in ("inner", "left"), node.how in ("inner", "right")
        merged = {name for name, side, _ in node.columns if side == "key"} if node.how == "right" else set[str]()
        inputs, left = list(node.inputs), dict(parts)
        for at, child in enumerate(node.inputs):
            if not kept[at]:
                continue
            columns = {name: column for name, column in deciding(node, at).items() if name not in merged}
            whole = {number: part for number, part in parts.items() if part.columns() <= columns.keys()}
            some = {number: _implied(part, columns.keys()) for number, part in left.items() if number not in whole}
            wanted = whole | {number: part for number, part in some.items() if part is not None}
            wanted = {number: part.substitute(columns) for number, part in wanted.items()}
            inputs[at], rest = self.pushed_into_side(child, [pair[at] for pair in node.on], wanted)
            left = {number: part for number, part in left.items() if number not in whole or number in rest}
        found = self.over(node, inputs)
        return found if node is written else self._inner(written, found), left

    @pushed_below.register(joins.Semijoin | asof.AsofJoin)
    def _(self, node: joins.Semijoin | asof.AsofJoin, parts: Parts) -> tuple[Node, Parts]:
        one, other = node.inputs
        columns, keys = deciding(node, 0), deciding(node, 1)
        own = {at: part.substitute(columns) for at, part in parts.items() if part.columns() <= columns.keys()}
        found, left = self.pushed_into_side(one, [pair[0] for pair in node.on], own)
        # A condition on the key holds for the partners, too: it sinks on the right whether or not it could on the left.
        if self.partners:
            on_keys = {at: part.substitute(keys) for at, part in parts.items() if part.columns() <= keys.keys()}
            other, _ = self.pushed_into_side(other, [pair[1] for pair in node.on], on_keys)
        return self.over(node, (found, other)), {at: part for at, part in parts.items() if at not in own or at in left}

    @pushed_below.register
    def _(self, node: groupings.Reduce, parts: Parts) -> tuple[Node, Parts]:
        expressions = [argument for call in node.calls for argument in call.args]
        expressions += [expression for call in node.calls for expression, _ in call.order_by]
        expressions += [expression for _, expression in (*node.by, *node.results)]
        if not all(map(is_certain, expressions)) or {call.function for call in node.calls} - CERTAIN_AGGREGATES:
            return node, parts
        return self._grouped(node, dict(node.by), parts)

    @pushed_below.register
    def _(self, node: groupings.Threshold, parts: Parts) -> tuple[Node, Parts]:
        if node.function is not None:
            return node, parts
        return self._grouped(node, {name: Column(name, kind) for name, kind in node.schema.items()}, parts)

    @pushed_below.register
    def _(self, node: groupings.Grouped, parts: Parts) -> tuple[Node, Parts]:
        if not node.certain:
            return node, parts
        return self._grouped(node, {name: Column(name, node.schema[name]) for name in node.by}, parts)

    @pushed_below.register
    def _(self, node: windows.Window, parts: Parts) -> tuple[Node, Parts]:
        if not self.partners or not all(_is_certain_call(call) for _, call in node.calls):
            return node, parts
        return self._grouped(node, {name: Column(name, node.schema[name]) for name in node.by}, parts)

    def _grouped(self, node: Node, by: Mapping[str, Expression], parts: Parts) -> tuple[Node, Parts]:
        """Put conditions on a group's columns below the grouping, on its rows."""
        own = {at: part.substitute(by) for at, part in parts.items() if part.columns() <= by.keys()}
        if not own:
            return node, parts
        found = self.with_conditions(node.inputs[0], own)
        return self.over(node, (found,)), {at: part for at, part in parts.items() if at not in own}


def deciding(node: Node, at: int) -> dict[str, Expression]:
    """Return the columns of a node's result that have the value of a column of an input, with its type: by name, that column."""
    child, found = node.inputs[at], dict[str, Expression]()
    for name, origins in node.column_origins().items():
        own = next((column for number, column in origins if number == at), None)
        if own is not None and child.schema[own].required() == node.schema[name].required():
            found[name] = Column(own, child.schema[own])
    return found


def filtered_by(node: Node, conditions: Iterable[Expression]) -> Node:
    """Return the records of a node for which all conditions are true."""
    wanted = [*conditions]
    return logical.Apply((node,), node.schema, FilterStep(all_of(wanted))) if wanted else node


def _movable(node: Node) -> Parts:
    """Return the conditions of a filter if none of them may fail; else none, since the conditions before a failing one decide on which records it is evaluated."""
    if not isinstance(node, logical.Apply) or isinstance(node, logical.FilterOnRead):
        return {}
    if not isinstance(node.step, FilterStep) or not is_certain(node.step.condition):
        return {}
    return dict(enumerate(conjuncts(node.step.condition)))


def _lets_through(node: logical.Apply) -> bool:
    """Return whether conditions may be applied before a step: if it is a filter or a projection that fails on no record."""
    return not isinstance(node, logical.FilterOnRead) and is_certain_step(node.step)


def _is_certain_call(call: WindowCall) -> bool:
    """Return whether a window's value fails on no partition: a frame's end at a distance in values may overflow."""
    expressions = [*call.args, *(call.aggregate.args if call.aggregate is not None else ())]
    if call.aggregate is not None:
        expressions += [expression for expression, _ in call.aggregate.order_by]
    ends = () if call.frame is None or call.frame.unit != "range" else (call.frame.start, call.frame.end)
    aggregates = {call.aggregate.function} if call.aggregate is not None else set[str]()
    certain = aggregates <= CERTAIN_AGGREGATES and all(end.offset is None for end in ends)
    return certain and all(map(is_certain, expressions))


def _implied(condition: Expression, columns: KeysView[str]) -> Expression | None:
    """Return the condition on some columns that each alternative of a condition implies; None if one implies none."""
    found = []
    for each in alternatives(condition):
        own = [part for part in conjuncts(each) if part.columns() and part.columns() <= columns]
        if not own:
            return None
        found.append(all_of(own))
    return any_of(found) if len(found) > 1 else None
