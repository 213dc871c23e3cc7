"""The lowering of a reduction: the columns computed before it, the kernels or gathered rows of each call, the expressions after it.

Each aggregate call is computed as one or two *cells*, columns `$0`, `$0.n`, ... of the physical node; the reduction's
results are expressions over those. When every call is a sum or a count, the cells are the state and the input is not
kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.errors import Span, Text
from ddcli.expressions.scope import ColumnScope
from ddcli.expressions.steps import FilterStep
from ddcli.expressions.tree import Call, Cast, Column, Expression, Literal
from ddcli.expressions.types import MAX_PRECISION, POOLED, Schema, Type
from ddcli.plan import groupings, physical
from ddcli.plan.physical import ALL
from ddcli.plan.shape import arrange, is_not_null, linear, project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.plan.node import Node

INT64 = Type("int64")
WIDE = Type("decimal", precision=MAX_PRECISION)
"""The sum that a mean is taken of: it may leave the integers' type where the mean does not."""
RECORDS = "$records"


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


def lower_reduction(node: groupings.Reduce, child: Node, *, fuse: bool) -> Node:
    """Return the physical nodes of a reduction over `child`, with the columns of `node`; `fuse` if it has no other reader."""
    by = dict(node.by) or {ALL: Literal(0, INT64)}
    arguments = _Arguments(by)
    calls = tuple(arguments.rewritten(call) for call in node.calls)
    given = {name: expression.type for name, expression in arguments.columns.items()}
    prepared = project(child, arguments.columns, given, fuse=fuse)
    schema: Schema = {name: given[name] for name in by}
    key = tuple(by)
    bindings = {f"${at}": finished(at, call) for at, call in enumerate(calls)}
    reduced: Node
    if all(is_accumulable(call) for call in calls):
        schema |= {RECORDS: INT64}
        for at, call in accumulated(calls).items():
            schema |= cells(at, call)
        bindings |= {f"${at}": Column(RECORDS, INT64) for at in range(len(calls)) if at not in accumulated(calls)}
        reduced = physical.Accumulate((prepared,), schema, key, calls)
    else:
        for at, call in enumerate(calls):
            schema |= cells(at, call)
        reduced = physical.Group((arrange(prepared, key),), schema, key, calls)
    for at, call in enumerate(calls):
        some = has_value(at, call)
        if some is not None:
            reduced = linear(reduced, [FilterStep(some)], reduced.schema, fuse=True)
    results: dict[str, Expression] = {name: Column(name, given[name]) for name, _ in node.by}
    results |= {name: expression.substitute(bindings) for name, expression in node.results}
    return project(reduced, results, {name: expression.type for name, expression in results.items()}, fuse=True)


def grouped(child: Node, columns: Mapping[str, Expression], by: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
    """Return `child` with these columns, and the key to group it by: a constant where all of it is one group."""
    key = by or (ALL,)
    if not by:
        columns = {ALL: Literal(0, INT64), **columns}
    return project(child, columns, {name: expression.type for name, expression in columns.items()}, fuse=False), key


def ranked(child: Node, key: tuple[str, ...], order_by: tuple[tuple[str, bool], ...]) -> Node:
    """Return `child` with the lanes of its order columns in front of its values, inverted where the order descends."""
    lanes = tuple((physical.lane_column(at), name, descending) for at, (name, descending) in enumerate(order_by))
    schema = {name: child.schema[name] for name in key}
    for name, source, _ in lanes:
        schema |= physical.lane_columns(name, child.schema[source])
    schema |= child.schema
    return physical.OrderLanes((child,), schema, lanes)


class _Arguments:
    """The columns that the calls read, each computed once; a plain column keeps its name, so that arrangements are shared.

    An aggregated key is also a value: aggregates read only values.
    """

    def __init__(self, by: dict[str, Expression]):
        self.by = by
        self.columns: dict[str, Expression] = dict(by)

    def rewritten(self, call: AggregateCall) -> AggregateCall:
        """Return the call over columns alone. Constants (a separator, a fraction) stay."""
        given = [_narrow(arg) if call.function in ("sum", "avg") else arg for arg in call.values]
        args = (*(self._column(arg) for arg in given), *call.args[len(given) :])
        order = tuple((self._column(key), descending) for key, descending in call.order_by)
        return replace(call, args=args, order_by=order)

    def _column(self, expression: Expression) -> Column:
        for name, known in self.columns.items():
            if known == expression and name not in self.by:
                return Column(name, expression.type, span=expression.span)
        name = expression.name if isinstance(expression, Column) else f"$value{len(self.columns)}"
        if name in self.columns:
            name = f"$value{len(self.columns)}"
        self.columns[name] = expression
        return Column(name, expression.type, span=expression.span)


def _narrow(argument: Expression) -> Expression:
    """Return the argument without a widening to int64: the sum adds the same integers either way."""
    if isinstance(argument, Cast) and argument.type.kind == "int64" and not argument.try_:
        inner = argument.argument.type
        if inner.is_integer and inner.kind != "uint64":
            return argument.argument
    return argument
