"""Collections converted to one schema, so that their records may be added up: columns in one order, types that hold all values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import SpecError
from ddcli.expressions.steps import MapStep
from ddcli.expressions.types import Schema, Type
from ddcli.plan import logical
from ddcli.plan.relation import Relation
from ddcli.plan.shape import column_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.errors import Span
    from ddcli.plan.node import Node


def concat(relations: Sequence[Relation], span: Span, what: str) -> Relation:
    """Return the sum of relations that have the same columns, in any order, of types with a common one."""
    schema = dict(relations[0].schema)
    rule = f"`{what}` sums collections with the same columns"
    for relation in relations[1:]:
        places = ("in one collection", "in another")
        schema = common_schema(schema, relation.schema, rule, f"`{what}`", places, span)
    return Relation(logical.summed([with_schema(relation.node, schema) for relation in relations], schema))


def common_schema(one: Schema, other: Schema, rule: str, what: str, places: tuple[str, str], span: Span) -> Schema:
    """Return the columns of `one`, of types that hold the values of both; `other` has the same columns in any order.

    If it has others, a SpecError states the `rule`; if a column has types without a common one, in `what` and at which `places` it has them.
    """
    if set(one) != set(other):
        missing = ", ".join(sorted(set(one) ^ set(other)))
        raise SpecError(
            f"{rule}; these are not in all of them: {missing}",
            span=span,
            hint="`project`, `rename` or `map` them to the same columns first",
        )
    schema: Schema = {}
    for name, kind in one.items():
        common = _common_type(kind, other[name])
        if common is None:
            raise SpecError(
                f"{what}: column '{name}' is {kind} {places[0]} and {other[name]} {places[1]}",
                span=span,
                hint=f"cast one of them: `extend: {{{name}: cast({name} as ...)}}`",
            )
        schema[name] = common
    return schema


def with_schema(node: Node, schema: Schema) -> Node:
    """Return the node with its columns in the order and of the types of `schema`, which must hold all its values."""
    if list(node.schema.items()) == list(schema.items()):
        return node
    columns = tuple((name, column_as(name, node.schema[name], kind)) for name, kind in schema.items())
    return logical.Apply((node,), schema, MapStep(columns))


def _common_type(one: Type, other: Type) -> Type | None:
    nullable = one.nullable or other.nullable
    if one.required() == other.required():
        return one.or_null(nullable)
    if one.kind == "null" or other.kind == "null":
        return (other if one.kind == "null" else one).or_null()
    if one.is_integer and other.is_integer and "uint64" not in (one.kind, other.kind):
        return Type("int64", nullable)
    if one.is_float and other.is_float:
        return Type("float64", nullable)
    return None
