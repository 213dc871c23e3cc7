"""Constructors of logical nodes for SQL: joins on expressions, null-safe joins, products, and padding with nulls."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.errors import SpecError
from ddcli.expressions.coerce import BOOL, INT64, Mismatch, meet, unify
from ddcli.expressions.operators import has_list
from ddcli.expressions.tree import Call, Column, Expression, FilterStep, Literal, MapStep
from ddcli.expressions.types import Type, fresh
from ddcli.plan import asof, groupings, joins, logical
from ddcli.plan.conditions import call
from ddcli.plan.joins import comparable
from ddcli.plan.shape import is_same, picked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.errors import Span
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Node


TRUE = Literal(True, BOOL)
ONE = Literal(1, INT64)


def tie(one: Column, other: Column) -> Expression:
    """Return the condition that two columns are equal, null being equal to null; for types with lists it can only be the key of a join."""
    if has_list(one.type):
        return Call("is not distinct from", (one, other), BOOL)
    return call("is not distinct from", one, other)


def column(node: Node, name: str) -> Column:
    """Return a column of a node."""
    return Column(name, node.schema[name])


def every(node: Node, names: Iterable[str] | None = None) -> dict[str, Expression]:
    """Return columns of a node, by default all, by their names."""
    return {name: column(node, name) for name in (node.schema if names is None else names)}


def mapped(node: Node, columns: Mapping[str, Expression]) -> Node:
    """Return a node with just these columns."""
    if is_same(columns, node.schema):
        return node
    renamed = renaming(node)
    if renamed is not None:
        (below,) = node.inputs
        return mapped(below, {name: over_renamed(each, renamed) for name, each in columns.items()})
    schema = {name: each.type for name, each in columns.items()}
    return logical.Apply((node,), schema, MapStep(tuple(columns.items())))


def renaming(node: Node) -> dict[str, str] | None:
    """Return the input's column names by a node's own, if the node only drops, reorders and renames columns; else None.

    A reader of such a node reads the node's input instead: so a table under several names is kept in one arrangement.
    """
    return picked(node.step, node.inputs[0].schema) if isinstance(node, logical.Apply) else None


def over_renamed(expression: Expression, renamed: Mapping[str, str]) -> Expression:
    """Return an expression over a node that renames columns as an expression over the node's input."""
    types = {each.name: each.type for each in expression.walk() if isinstance(each, Column)}
    return expression.substitute({name: Column(renamed[name], kind) for name, kind in types.items()})


def _below(node: Node, expressions: Sequence[Expression]) -> tuple[Node, dict[str, str], list[Expression]]:
    """Return the input of a node that only renames columns, else the node itself; its columns by the node's names, and the expressions over it."""
    renamed = renaming(node)
    if renamed is None:
        return node, {name: name for name in node.schema}, list(expressions)
    (below,) = node.inputs
    return below, renamed, [over_renamed(each, renamed) for each in expressions]


def extended(node: Node, added: Mapping[str, Expression]) -> Node:
    """Return a node with more columns."""
    return mapped(node, every(node) | dict(added)) if added else node


def projected(node: Node, names: Iterable[str]) -> Node:
    """Return a node with these of its columns, in this order."""
    return mapped(node, every(node, names))


def filtered(node: Node, condition: Expression) -> Node:
    """Return the records for which a condition is true."""
    below, renamed, (over,) = _below(node, [condition])
    kept = logical.Apply((below,), below.schema, FilterStep(over))
    return kept if below is node else mapped(kept, {name: column(kept, old) for name, old in renamed.items()})


def concat(nodes: Sequence[Node]) -> Node:
    """Return the sum of nodes with columns of the same names, whose types may differ in nullability."""
    if len(nodes) == 1:
        return nodes[0]
    schema: Schema = {}
    for name, kind in nodes[0].schema.items():
        schema[name] = kind.or_null(any(node.schema[name].nullable for node in nodes))
    alike = [
        mapped(node, {name: Column(name, kind) for name, kind in schema.items()})
        if list(node.schema.items()) != list(schema.items())
        else node
        for node in nodes
    ]
    return logical.summed(alike, schema)


# --- joins ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Expressions over the left and the right side that must be equal; with `null_safe` null equals null."""

    left: Expression
    right: Expression
    null_safe: bool = False
    span: Span | None = None


def zero(kind: Type) -> Expression | None:
    """Return a value of a type as the placeholder for null, beside a column that marks the nulls; None if the type has no constant."""
    required = kind.required()
    values: dict[str, object] = {
        "bool": False,
        "string": "",
        "date": dt.date(1970, 1, 1),
        "time": dt.time(0),
        "duration": dt.timedelta(0),
        "decimal": Decimal(0),
    }
    if required.kind == "list":
        return Call("array", (), required)
    if required.kind == "struct":
        fields = [Literal(None, kind.or_null()) for _, kind in required.fields]
        nullable = tuple((name, kind.or_null()) for name, kind in required.fields)
        return Call("named_struct", tuple(fields), Type("struct", fields=nullable))
    if required.is_integer:
        return Literal(0, required)
    if required.is_float:
        return Literal(0.0, required)
    if required.kind == "datetime":
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if required.zone else None)
        return Literal(moment, required)
    return Literal(values[required.kind], required) if required.kind in values else None  # type: ignore[arg-type]


class _Sides:
    """The two sides of a join with the columns that it compares, some of them computed and added.

    A side that only renames columns is replaced by its input: `lefts` and `rights` are the input's columns by the side's names.
    Equal pairs are dropped, but the `first` pairs stay as they are.
    """

    def __init__(self, left: Node, right: Node, pairs: Sequence[Pair], first: int = 0):
        self.left, self.lefts, one = _below(left, [pair.left for pair in pairs])
        self.right, self.rights, other = _below(right, [pair.right for pair in pairs])
        self.added: tuple[dict[str, Expression], dict[str, Expression]] = ({}, {})
        self.on: list[tuple[str, str]] = []
        for pair, a, b in zip(pairs, one, other, strict=True):
            for value, partner in _compared(Pair(a, b, pair.null_safe, pair.span)):
                self.on.append((self._named(value, 0), self._named(partner, 1)))
        if not self.on:  # all records meet
            self.on.append((self._named(ONE, 0), self._named(ONE, 1)))
        self.on = [*self.on[:first], *dict.fromkeys(self.on[first:])]

    def _named(self, expression: Expression, side: int) -> str:
        node, added = (self.left, self.right)[side], self.added[side]
        if isinstance(expression, Column):
            return expression.name
        for name, known in added.items():
            if known == expression:
                return name
        name = fresh("#left" if side == 0 else "#right", node.schema.keys() | added.keys())
        added[name] = expression
        return name

    @property
    def nodes(self) -> tuple[Node, Node]:
        return extended(self.left, self.added[0]), extended(self.right, self.added[1])


def _compared(pair: Pair) -> list[tuple[Expression, Expression]]:
    """Return pairs of expressions of comparable types; the join compares their values, and null equals nothing there."""
    left, right = pair.left, pair.right
    if not comparable(left.type, right.type):
        try:
            (left, right), _ = unify([left, right], "`=`")
        except Mismatch as mismatch:
            raise SpecError(mismatch.problem, span=pair.span, hint=mismatch.hint) from None
    if not (pair.null_safe and left.type.nullable and right.type.nullable):
        return [(left, right)]
    kind = meet(left.type, right.type) or left.type
    nothing = zero(kind)
    if nothing is None:
        problem = f"a {kind.required()} that may be null can't be compared here, where null equals null"
        raise SpecError(problem, span=pair.span, hint="leave the column out of what subqueries and outer joins compare")
    return [
        (call("is null", left), call("is null", right)),
        (call("coalesce", left, nothing), call("coalesce", right, nothing)),
    ]


def same(names: Mapping[str, str], left: Node, right: Node) -> list[Pair]:
    """Return pairs of columns of both sides that must be equal, null being equal to null."""
    return [Pair(column(left, one), column(right, other), null_safe=True) for one, other in names.items()]


def joined(left: Node, right: Node, pairs: Sequence[Pair], how: str = "inner") -> Node:
    """Return the pairs of records with equal values, with all columns of both sides, whose names must differ; `how` is `inner`, `left` or `full`."""
    assert not left.schema.keys() & right.schema.keys(), "columns of joined relations have different names"
    sides = _Sides(left, right, pairs)
    one, other = sides.nodes
    inner = how == "inner"
    keys = {a for a, _ in sides.on}
    partners = {b: a for a, b in reversed(sides.on)}
    schema: Schema = {}
    columns = []
    copies: dict[str, Expression] = {}
    for name, source in sides.lefts.items():
        kind = left.schema[name]
        schema[name] = kind.required() if inner and source in keys else kind.or_null(how == "full")
        columns.append((name, "left", source))
    for name, source in sides.rights.items():
        kind = right.schema[name]
        schema[name] = (kind.required() if source in partners else kind) if inner else kind.or_null()
        if source not in partners:
            columns.append((name, "right", source))
        elif inner and one.schema[partners[source]].required() == kind.required():
            columns.append((name, "left", partners[source]))
        else:  # for a key, the joined record has the left side's value
            copy = fresh(f"#{name}", [*other.schema, *copies])
            copies[copy] = column(other, source)
            columns.append((name, "right", copy))
    return joins.Join((one, extended(other, copies)), schema, tuple(sides.on), how, tuple(columns))


def asof_joined(left: Node, right: Node, pairs: Sequence[Pair], nearest: Pair, sign: str, how: str) -> Node:
    """Return the left records, each with the nearest right record with equal values, to which it compares by `sign`."""
    sides = _Sides(left, right, [nearest, *pairs], first=1)
    at, *on = sides.on
    schema = left.schema | {name: kind.or_null(how == "left") for name, kind in right.schema.items()}
    columns = [(name, "left", sides.lefts[name]) for name in left.schema]
    columns += [(name, "right", sides.rights[name]) for name in right.schema]
    forward, strict = sign.startswith("<"), not sign.endswith("=")
    return asof.AsofJoin(sides.nodes, schema, tuple(on), at, how, forward, strict, tuple(columns))


def semijoined(left: Node, right: Node, pairs: Sequence[Pair], *, anti: bool = False) -> Node:
    """Return the left records that have a partner, or with `anti` those that have none."""
    sides = _Sides(left, right, pairs)
    one, other = sides.nodes
    kept = joins.Semijoin((one, other), one.schema, tuple(sides.on), anti)
    return mapped(kept, {name: column(kept, source) for name, source in sides.lefts.items()})


def without(left: Node, found: Node) -> Node:
    """Return the left records that are not among those `found`, which have all columns of the left."""
    right = groupings.distinct(projected(found, left.schema))
    return semijoined(left, right, same({name: name for name in left.schema}, left, right), anti=True)


def padded(node: Node, schema: Schema) -> Node:
    """Return a node with the columns of a schema, null where it has none."""
    columns: dict[str, Expression] = {}
    for name, kind in schema.items():
        columns[name] = Column(name, kind) if name in node.schema else Literal(None, kind.or_null())
    return mapped(node, columns)


def reduced(node: Node, by: Mapping[str, Expression], calls: Sequence[AggregateCall], names: Sequence[str]) -> Node:
    """Return one record for each group: its key, and the values of `calls` under `names`."""
    results = tuple(
        (name, Column(f"${at}", each.type)) for at, (name, each) in enumerate(zip(names, calls, strict=True))
    )
    schema = {name: each.type for name, each in [*by.items(), *results]}
    return groupings.Reduce((node,), schema, tuple(by.items()), tuple(calls), results)
