"""The shape of physical nodes: columns renamed, dropped, reordered, computed, with as few nodes as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.steps import FilterStep, MapStep, Step
from ddcli.expressions.tree import Call, Cast, Column
from ddcli.expressions.types import Type
from ddcli.plan import physical
from ddcli.plan.physical_joins import EquiJoin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Lowering, Node


def column_as(name: str, have: Type, want: Type) -> Expression:
    """Return the column under a type that holds all its values; one that differs in nulls alone needs no cast."""
    return Column(name, want) if have.required() == want.required() else Cast(Column(name, have), want)


def project(child: Node, columns: Mapping[str, Expression], schema: Schema, *, fuse: bool) -> Node:
    """Return a node with these computed columns on `child`; `fuse` it into `child` if that has no other reader."""
    if list(schema) == list(child.schema) and all(
        isinstance(expression, Column) and expression.name == name and expression.type == child.schema[name]
        for name, expression in columns.items()
    ):
        return child
    return linear(child, [MapStep(tuple(columns.items()))], schema, fuse=fuse)


def linear(child: Node, steps: Sequence[Step], schema: Schema, *, fuse: bool) -> Node:
    """Return `child` with linear steps on it, in one node with those below if `fuse`, as `child` has no other reader.

    A projection on a join becomes the join's own choice of lanes.
    """
    if not fuse:
        return physical.Linear((child,), schema, tuple(steps))
    if isinstance(child, physical.Linear):
        return physical.Linear(child.inputs, schema, (*child.steps, *steps))
    if isinstance(child, EquiJoin) and len(steps) == 1 and (columns := _plain(steps[0], child.schema)) is not None:
        given = {name: (side, source) for name, side, source in child.columns}
        chosen = tuple((name, *given[source]) for name, source in columns)
        return EquiJoin(child.inputs, schema, chosen)
    return physical.Linear((child,), schema, tuple(steps))


def _plain(step: Step, schema: Schema) -> list[tuple[str, str]] | None:
    """Return (name, column) for each column of a map that only renames, drops and reorders, or None."""
    if not isinstance(step, MapStep):
        return None
    pairs = []
    for name, expression in step.columns:
        if not isinstance(expression, Column) or expression.type != schema[expression.name]:
            return None
        pairs.append((name, expression.name))
    return pairs


def is_choice(node: Node) -> bool:
    """Return whether a node only renames, drops and reorders columns, which costs nothing to repeat."""
    return (
        isinstance(node, physical.Linear)
        and len(node.steps) == 1
        and _plain(node.steps[0], node.inputs[0].schema) is not None
    )


def conform(child: Node, schema: Schema, *, fuse: bool = False) -> Node:
    """Return `child` with just the columns of `schema`, in its order and of its types (which hold all its values)."""
    if list(child.schema.items()) == list(schema.items()):
        return child
    columns = tuple((name, column_as(name, child.schema[name], kind)) for name, kind in schema.items())
    return linear(child, [MapStep(columns)], schema, fuse=fuse)


def with_columns(lowering: Lowering, node: Node, added: Mapping[str, Expression]) -> Node:
    """Return the physical node of a node's input with the node's columns and, last, the added ones. Records where one of these is null stay out."""
    (child,) = node.inputs
    columns: dict[str, Expression] = {name: Column(name, kind) for name, kind in lowering.schema(node).items()}
    columns |= added
    steps: list[Step] = [MapStep(tuple(columns.items()))]
    nullable = [name for name, expression in added.items() if expression.type.nullable]
    steps += [FilterStep(is_not_null(Column(name, added[name].type))) for name in nullable]
    schema = {name: expression.type for name, expression in columns.items()}
    if nullable:
        schema |= {name: schema[name].required() for name in nullable}
        steps.append(MapStep(tuple((name, Column(name, kind)) for name, kind in schema.items())))
    return linear(lowering.node(child), steps, schema, fuse=lowering.read_once(child))


def arrange(child: Node, key: Iterable[str]) -> physical.Arrangement:
    """Return the arrangement of `child` by `key`, all other columns its values. Equal ones are one node."""
    key = tuple(key)
    schema = {name: child.schema[name] for name in key} | {n: kind for n, kind in child.schema.items() if n not in key}
    return physical.Arrangement((child,), schema, key)


def is_not_null(expression: Expression) -> Expression:
    """Return the condition that an expression has a value."""
    return Call("not", (Call("is null", (expression,), Type("bool")),), Type("bool"))


def not_null_column(step: FilterStep) -> str | None:
    """Return the column of a filter that is just `column is not null`, else None."""
    match step.condition:
        case Call("not", (Call("is null", (Column() as column,)),)):
            return column.name
    return None
