"""The columns of physical nodes: renamed, dropped, reordered and computed, with as few nodes as possible; and the cells of aggregate and window calls.

The engine computes each call as one or two *cells*, columns `$0`, `$0.n`, ... of the physical node; results are expressions over those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.errors import Span, Text
from ddcli.expressions.tree import Call, Cast, Column, Expression, FilterStep, Literal, MapStep, Step
from ddcli.expressions.types import MAX_PRECISION, POOLED, ColumnScope, Schema, Type
from ddcli.plan import physical
from ddcli.plan.physical import EquiJoin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.lower import GraphLowering
    from ddcli.plan.node import Node


def column_as(name: str, have: Type, want: Type) -> Expression:
    """Return the column under a type that holds all its values; one that differs in nulls alone needs no cast."""
    return Column(name, want) if have.required() == want.required() else Cast(Column(name, have), want)


def is_same(columns: Mapping[str, Expression], schema: Schema) -> bool:
    """Return whether computing these columns keeps the columns of a schema as they are, in its order."""
    return [*columns.items()] == [(name, Column(name, kind)) for name, kind in schema.items()]


def project(child: Node, columns: Mapping[str, Expression], schema: Schema, *, fuse: bool) -> Node:
    """Return a node with these computed columns on `child`; `fuse` it into `child` if that has no other reader."""
    if is_same(columns, child.schema):
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
    if isinstance(child, EquiJoin) and len(steps) == 1 and (columns := picked(steps[0], child.schema)) is not None:
        given = {name: (side, source) for name, side, source in child.columns}
        chosen = tuple((name, *given[source]) for name, source in columns.items())
        return EquiJoin(child.inputs, schema, chosen)
    return physical.Linear((child,), schema, tuple(steps))


def picked(step: Step, schema: Schema) -> dict[str, str] | None:
    """Return the column that each column is after a map that only renames, drops and reorders them; None for any other step."""
    if not isinstance(step, MapStep):
        return None
    found = {
        name: each.name for name, each in step.columns if isinstance(each, Column) and each.type == schema[each.name]
    }
    return found if len(found) == len(step.columns) else None


def is_choice(node: Node) -> bool:
    """Return whether a node only renames, drops and reorders columns, which costs nothing to repeat."""
    return (
        isinstance(node, physical.Linear)
        and len(node.steps) == 1
        and picked(node.steps[0], node.inputs[0].schema) is not None
    )


def conform(child: Node, schema: Schema, *, fuse: bool = False) -> Node:
    """Return `child` with just the columns of `schema`, in its order and of its types (which hold all its values)."""
    if list(child.schema.items()) == list(schema.items()):
        return child
    columns = tuple((name, column_as(name, child.schema[name], kind)) for name, kind in schema.items())
    return linear(child, [MapStep(columns)], schema, fuse=fuse)


def with_columns(lowering: GraphLowering, node: Node, added: Mapping[str, Expression]) -> Node:
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


INT64 = Type("int64")
WIDE = Type("decimal", precision=MAX_PRECISION)
"""The sum that a mean is taken of: it may leave the integers' type where the mean does not."""
RECORDS = "$records"
"""The cell with the number of a group's records."""


def is_accumulable(call: AggregateCall) -> bool:
    """Return whether a call is a sum over records, so that its number is all that has to be kept.

    Sums of floats are not: taking one away again would leave the rounding behind.
    """
    if call.distinct:
        return False
    if call.function == "count":
        return True
    return call.function in ("sum", "avg") and not call.args[0].type.is_float


def is_gathered(call: AggregateCall) -> bool:
    """Return whether a call has no kernel: its groups' rows are gathered and handed to polars."""
    if is_accumulable(call):
        return False
    kinds = [argument.type.kind for argument in call.args]
    if call.function == "count":
        return False
    if call.function in ("sum", "avg"):
        return call.distinct or not call.args[0].type.is_float
    if call.function in ("min", "max", "bool_and", "bool_or"):
        return kinds[0] in POOLED
    if call.function in ("first", "last"):
        order = [key.type.kind for key, _ in call.order_by]
        return any(descending for _, descending in call.order_by) or any(k in POOLED for k in [*kinds, *order])
    return True


def cells(at: int, call: AggregateCall) -> Schema:
    """Return the columns of a call in a physical reduction, in order."""
    name = f"${at}"
    if call.function == "avg" and not is_gathered(call):
        kind = call.args[0].type
        total = Type("float64") if kind.is_float else WIDE if kind.kind in ("int64", "uint64") else INT64
        if kind.kind == "duration":
            total = kind.required()
        elif kind.kind == "decimal":
            total = replace(WIDE, scale=kind.scale)
        return {name: total, f"{name}.n": INT64}
    if call.function == "sum" and not is_gathered(call):
        return {name: call.type.required()} | ({f"{name}.n": INT64} if call.type.nullable else {})
    # For a group with retractions only, gathered values are null, for all types.
    return {name: call.type.or_null() if is_gathered(call) else call.type}


def accumulated(calls: Sequence[AggregateCall]) -> dict[int, AggregateCall]:
    """Return, by position, the calls that an accumulation computes beside the number of records, which it always has."""
    return {at: call for at, call in enumerate(calls) if call.function != "count" or call.args}


def finished(at: int, call: AggregateCall) -> Expression:
    """Return the call's value as an expression over its cells."""
    columns = cells(at, call)
    name = f"${at}"
    if len(columns) == 1:
        return Column(name, call.type)
    from ddcli.expressions.parse import parse_scalar

    value = f'"{name}"'
    if call.function == "avg":
        if call.args[0].type.kind in ("duration", "decimal"):
            value = f'"{name}" / "{name}.n"'
        else:
            value = f'cast("{name}" as float64) / cast("{name}.n" as float64)'
    text = f'case when "{name}.n" <> 0 then {value} end' if call.type.nullable else value
    return parse_scalar(Text(text, Span("<plan>", 1, 1, len(text), text)), ColumnScope(columns))


def has_value(at: int, call: AggregateCall) -> Expression | None:
    """Return the condition, over its cells, that a call has a value; None where it always has one, if only null.

    Only a group with retractions may lack it, and is then left out: no value of its type exists.
    """
    if call.type.nullable:
        return None
    if is_gathered(call):
        return is_not_null(Column(f"${at}", call.type.or_null()))
    if call.function == "avg":
        return Call("<>", (Column(f"${at}.n", INT64), Literal(0, INT64)), Type("bool"))
    return None


def window_cells(at: int, call: WindowCall) -> Schema:
    """Return the columns of a call in the physical node, in order."""
    if call.aggregate is None:
        return {f"${at}": call.type}
    found = cells(at, call.aggregate)
    if is_gathered(call.aggregate):
        return dict.fromkeys(found, call.type)
    return found


def window_finished(at: int, call: WindowCall) -> Expression:
    """Return the call's value as an expression over its cells."""
    if call.aggregate is None or is_gathered(call.aggregate):
        return Column(f"${at}", call.type)
    return finished(at, call.aggregate)


def way(call: WindowCall) -> int:
    """Return the direction in which a call continues from its state at the row before: 1 from the first row, -1 from the last, 0 neither.

    Sums of floats don't: their kept state is rounded.
    """
    if call.function in ("row_number", "rank", "dense_rank"):
        return 1
    aggregate = call.aggregate
    if aggregate is not None:
        extreme = aggregate.function in ("min", "max", "bool_and", "bool_or") and not is_gathered(aggregate)
        if not extreme and not is_accumulable(aggregate):
            return 0
    found = call.frame.way if call.frame is not None else 0
    return 0 if call.function == "nth_value" and (found < 0 or call.ignores_nulls) else found
