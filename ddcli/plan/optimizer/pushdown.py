"""Filters and projections moved as near to the inputs as possible: below joins, groupings, windows and unions.

Only moves that pay for all data are made: a filter passes a collection without another reader, and enters no side of a join that other joins by the
same key share. The same records fail as before: a filter is moved only if it fails on no record, and passes only operators that fail on none. Of alternatives
over both sides of a join, each side gets the condition that follows from all of them. A join without a key gets the one that equalities above it state.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import Call, Cast, Column, Expression, FilterStep, Literal, MapStep
from ddcli.plan import joins, logical
from ddcli.plan.conditions import CERTAIN, STRICT_AND_CERTAIN, all_of, alternatives, any_of, conjuncts, is_certain
from ddcli.plan.joins import BinaryNode, Join
from ddcli.plan.logical import Rewritten
from ddcli.plan.lower import arranged, side_name
from ddcli.plan.node import Graph, Node
from ddcli.plan.windows import Window

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, KeysView, Sequence
    from collections.abc import Set as AbstractSet

    from ddcli.expressions.types import Schema
    from ddcli.plan.physical import Engines


ARITHMETIC = {"+", "-", "*", "/", "//", "%"}
STRICT = ARITHMETIC | STRICT_AND_CERTAIN
"""Functions that are null where an argument is."""


def without_padding(node: joins.Join, conditions: Iterable[Expression]) -> joins.Join:
    """Return a left join as an inner one, if one of the conditions on its columns drops padded records; else the join itself.

    A condition that is null, or false, where all columns of the right side are null keeps no record without a partner. An inner join returns the others
    in fewer operators, and lets conditions sink into both of its sides. So that the same records fail, the condition must not fail on padded ones.
    """
    padded = {name for name, side, _ in node.columns if side == "right"}
    if node.how != "left" or not any(drops(each, padded) and passes(each, padded) for each in conditions):
        return node
    keys = {one for one, _ in node.on}, {other for _, other in node.on}
    schema: Schema = {}
    for name, side, source in node.columns:
        at = side == "right"
        kind = node.inputs[at].schema[source]
        schema[name] = kind.required() if source in keys[at] else kind
    return replace(node, schema=schema, how="inner")


def typed(node: Node, schema: Schema) -> Node:
    """Return a node with the types of a schema, which may be nullable where the node's are not."""
    if node.schema == schema:
        return node
    return logical.Apply((node,), schema, MapStep(tuple((name, Column(name, kind)) for name, kind in schema.items())))


def drops(condition: Expression, padded: AbstractSet[str]) -> bool:
    """Return whether a condition is true for no record in which the `padded` columns are null."""
    if isinstance(condition, Call):
        of = [drops(each, padded) for each in condition.args]
        if condition.function in ("and", "or"):
            return any(of) if condition.function == "and" else all(of)
        if condition.function == "not" and _is_test(condition.args[0]):
            return is_null(condition.args[0].children[0], padded)
        if condition.function == "is not distinct from":
            one, other = condition.args
            return (is_null(one, padded) and not other.type.nullable) or (
                is_null(other, padded) and not one.type.nullable
            )
    return is_null(condition, padded)


def _is_test(expression: Expression) -> bool:
    return isinstance(expression, Call) and expression.function == "is null"


def is_null(expression: Expression, padded: AbstractSet[str]) -> bool:
    """Return whether an expression is null for every record in which the `padded` columns are null."""
    if isinstance(expression, Column):
        return expression.name in padded
    if isinstance(expression, Literal):
        return expression.value is None
    if isinstance(expression, Cast):
        return is_null(expression.argument, padded)
    if isinstance(expression, Call) and expression.function == "in":
        return is_null(expression.args[0], padded)
    return (
        isinstance(expression, Call)
        and expression.function in STRICT
        and any(is_null(each, padded) for each in expression.args)
    )


def passes(expression: Expression, padded: AbstractSet[str]) -> bool:
    """Return whether an expression fails on no record in which the `padded` columns are null: null plus any number is null, and can't overflow."""
    if is_certain(expression):
        return True
    if not isinstance(expression, Call | Cast) or not all(passes(each, padded) for each in expression.children):
        return False
    if isinstance(expression, Cast):
        return is_null(expression.argument, padded)
    of = [is_null(each, padded) for each in expression.args]
    if expression.function in ("/", "//", "%"):  # null / 0 fails
        return of[1]
    return expression.function in CERTAIN or (expression.function in ARITHMETIC and any(of))


Parts = dict[int, Expression]
"""Conditions by number, over the columns of the node that they have reached."""
DEEPEST = 40
"""The most nodes that a condition passes."""


def with_keys(node: Join, parts: Parts) -> tuple[Join, Parts]:
    """Return a join of each record with each as one by key, if conditions equate columns of its sides, and the remaining conditions."""
    if node.how != "inner" or not all(_is_constant(node.inputs[at], pair[at]) for pair in node.on for at in (0, 1)):
        return node, parts
    origins = {name: (side, source) for name, side, source in node.columns}
    left, right = (each.schema for each in node.inputs)
    on: dict[str, str] = {}
    rest: Parts = {}
    for number, part in parts.items():
        found = sorted(origins[each.name] for each in _equated(part))
        if [side for side, _ in found] == ["left", "right"]:
            (_, one), (_, other) = found
            if left[one].required() == right[other].required() and one not in on and other not in on.values():
                on[one] = other
                continue
        rest[number] = part
    if not on:
        return node, parts
    partners = {other: one for one, other in on.items()}
    columns, schema = [], dict(node.schema)
    for name, side, source in node.columns:
        if side == "right" and source in partners:
            side, source = "left", partners[source]
        columns.append((name, side, source))
        if side == "left" and source in on:
            schema[name] = schema[name].required()
    return replace(node, schema=schema, on=tuple(on.items()), columns=tuple(columns)), rest


def _is_constant(node: Node, name: str) -> bool:
    """Return whether a column is written as a constant, as SQL does for joins without a condition."""
    return (
        isinstance(node, logical.Apply)
        and isinstance(node.step, MapStep)
        and isinstance(dict(node.step.columns)[name], Literal)
    )


def _equated(condition: Expression) -> list[Column]:
    """Return the two columns that a condition equates; none if it is another."""
    if not isinstance(condition, Call) or condition.function != "=":
        return []
    columns = [each for each in condition.args if isinstance(each, Column)]
    return columns if len(columns) == len(condition.args) else []


def pushed_down(graph: Graph, several: Collection[str], *, partners: bool = True, crossed: bool = True) -> Rewritten:
    """Return a graph with its filters moved; `several` has the fingerprints of nodes, and the names of sides, that several read.

    Unless `partners` is set, filters pass no window, and apply only to the left sides of semijoins and as-of joins. Unless `crossed` is
    set, a join without a key gets none.
    """
    mover = _FilterMover(several, partners, crossed)
    for node in graph.nodes():
        mover.take(node)
    outputs = {name: mover.done[node.fingerprint] for name, node in graph.outputs.items()}
    found = Graph(outputs)
    there = {node.fingerprint for node in found.nodes()}
    same = {written: node for written, node in mover.done.items() if node.fingerprint in there}
    return Rewritten(Graph(outputs, mover.engines(found, graph.engines)), same, {**mover.stands, **same})


@dataclass
class _FilterMover:
    """The nodes of a graph, added from the inputs on, each with its filters pushed down."""

    several: Collection[str]
    partners: bool
    crossed: bool
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
        # No operator is below an input, so its filter stays where it is.
        if type(found) is logical.Apply and isinstance(found.step, FilterStep) and inputs[0].inputs:
            found = self._filtered(found, inputs[0], found.step.condition)
        self.done[node.fingerprint] = found
        self._stand(found, [node.fingerprint])

    def _filtered(self, node: Node, child: Node, condition: Expression) -> Node:
        """Return a filter of a child with its conditions pushed down if none of them may fail: those before a failing one decide on which records it is evaluated."""
        if not is_certain(condition):
            return self.over(node, (self.inner_joined(child, condition),))
        parts = dict(enumerate(conjuncts(condition)))
        bare = {at: part for at, part in parts.items() if not part.columns()}
        below, left = self.pushed(child, {at: part for at, part in parts.items() if at not in bare})
        return node if below is child else filtered_by(below, [*bare.values(), *left.values()])

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
        if isinstance(node, logical.Apply) and node.lets_pass:
            (child,) = node.inputs
            given = dict(node.step.columns) if isinstance(node.step, MapStep) else {}
            return self.over(node, (self.inner_joined(child, condition.substitute(given)),))
        if not isinstance(node, Join):
            return node
        inner = without_padding(node, [condition])
        return node if inner is node else self._inner(node, inner)

    def _inner(self, written: Join, inner: Node) -> Node:
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

    def pushed_below(self, node: Node, parts: Parts) -> tuple[Node, Parts]:
        """Return a node with conditions pushed below it, and the remaining ones. Most nodes let none pass."""
        if isinstance(node, BinaryNode):
            return self._into_sides(node, parts)
        if not node.lets_pass or (isinstance(node, Window) and not self.partners):
            return node, parts
        if node.gathers:
            return self._grouped(node, parts)
        # The conditions that sink in one input are put into all of them.
        tried = [self.pushed(child, over_input(node, at, parts)) for at, child in enumerate(node.inputs)]
        left = {at: part for at, part in parts.items() if all(at in rest for _, rest in tried)}
        inputs = [filtered_by(found, [part for at, part in rest.items() if at not in left]) for found, rest in tried]
        return self.over(node, inputs), left

    def _into_sides(self, node: BinaryNode, parts: Parts) -> tuple[Node, Parts]:
        """Apply conditions to the sides of a join: instead of to its result, or also to those on whose key they are."""
        written = node
        if isinstance(node, Join):
            node = without_padding(node, parts.values())
            node, parts = with_keys(node, parts) if self.crossed else (node, parts)
        inputs, left = list(node.inputs), dict(parts)
        for at, child in enumerate(node.inputs):
            instead = node.narrowed[at]
            if not instead and not (self.partners and node.partners_only and at == 1):
                continue
            columns = node.over_input(at)
            whole = {number: part for number, part in parts.items() if part.columns() <= columns.keys()}
            wanted = dict(whole)
            if not node.partners_only:
                some = {number: _implied(part, columns.keys()) for number, part in left.items() if number not in whole}
                wanted |= {number: part for number, part in some.items() if part is not None}
            wanted = {number: part.substitute(columns) for number, part in wanted.items()}
            inputs[at], rest = self.pushed_into_side(child, [pair[at] for pair in node.on], wanted)
            if instead:
                left = {number: part for number, part in left.items() if number not in whole or number in rest}
        found = self.over(node, inputs)
        return found if node is written or not isinstance(written, Join) else self._inner(written, found), left

    def _grouped(self, node: Node, parts: Parts) -> tuple[Node, Parts]:
        """Put conditions on a group's columns below the grouping, on its rows."""
        own = over_input(node, 0, parts)
        if not own:
            return node, parts
        found = self.with_conditions(node.inputs[0], own)
        return self.over(node, (found,)), {at: part for at, part in parts.items() if at not in own}


def over_input(node: Node, at: int, parts: Parts) -> Parts:
    """Return the conditions on a node's result that are conditions on an input's columns, over these."""
    columns = node.over_input(at)
    return {number: part.substitute(columns) for number, part in parts.items() if part.columns() <= columns.keys()}


def filtered_by(node: Node, conditions: Iterable[Expression]) -> Node:
    """Return the records of a node for which all conditions are true."""
    wanted = [*conditions]
    return logical.Apply((node,), node.schema, FilterStep(all_of(wanted))) if wanted else node


def _implied(condition: Expression, columns: KeysView[str]) -> Expression | None:
    """Return the condition on some columns that each alternative of a condition implies; None if one implies none."""
    found = []
    for each in alternatives(condition):
        own = [part for part in conjuncts(each) if part.columns() and part.columns() <= columns]
        if not own:
            return None
        found.append(all_of(own))
    return any_of(found) if len(found) > 1 else None
