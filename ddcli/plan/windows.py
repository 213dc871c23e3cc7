"""Window calls as logical nodes, and their lowering: their arguments are computed before them, the expressions around them after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.errors import SpecError
from ddcli.expressions.coerce import Mismatch
from ddcli.expressions.order import keys_of, stored
from ddcli.expressions.steps import MapStep
from ddcli.expressions.tree import Column
from ddcli.expressions.types import POOLED
from ddcli.plan import groupings, logical, physical, reductions
from ddcli.plan.error_path import noting, raise_all
from ddcli.plan.reductions import grouped, ranked
from ddcli.plan.shape import arrange, project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.errors import DdError
    from ddcli.expressions.order import Key
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema, Type
    from ddcli.expressions.window_calls import OrderedBy
    from ddcli.expressions.windows import WindowCall
    from ddcli.plan.node import Node
    from ddcli.plan.relation import Relation
    from ddcli.spec import operator_model


def windowed(
    node: Node, by: Sequence[Expression], order: OrderedBy, calls: Mapping[str, WindowCall], prefix: str = "$"
) -> Node:
    """Return a node with the values of calls in additional columns, over one partition and order. Names must not be taken.

    Values that are computed only for them are in columns that begin with the prefix, which are dropped after it.
    """
    hidden: dict[str, Expression] = {}

    def column(expression: Expression, stem: str, kind: Type | None = None) -> Column:
        kind = kind or expression.type
        if isinstance(expression, Column) and expression.type == kind and expression.name not in keys:
            return Column(expression.name, kind)
        if expression.type != kind:  # differs in nulls alone: the same values, in lanes that may have null
            expression = replace(expression, type=kind)  # type: ignore[type-var]
        for name, known in hidden.items():
            if known == expression and known.type == kind and name not in keys:
                return Column(name, kind)
        name = f"{prefix}{stem}{len(hidden)}"
        hidden[name] = expression
        return Column(name, kind)

    keys: set[str] = set()
    partition = tuple(dict.fromkeys(column(each, "partition").name for each in by))
    keys |= set(partition)
    ordered = tuple((column(stored(each), "sort").name, descending) for each, descending in order.keys)
    made = []
    for name, call in calls.items():
        aggregate = call.aggregate
        if aggregate is not None:
            empty = call.frame is not None and call.frame.may_be_empty
            args: tuple[Expression, ...] = tuple(
                column(arg, "argument", arg.type.or_null(empty and not at)) for at, arg in enumerate(aggregate.values)
            )
            args += aggregate.args[len(args) :]
            own = tuple((column(key, "argument"), descending) for key, descending in aggregate.order_by)
            aggregate = replace(aggregate, args=args, order_by=own)
        args = tuple(column(arg, "argument", call.type) for arg in call.args)
        made.append((name, replace(call, args=args, aggregate=aggregate)))
    schema = {name: call.type for name, call in made}
    prepared = node
    if hidden:
        columns: dict[str, Expression] = {name: Column(name, kind) for name, kind in node.schema.items()} | hidden
        types = node.schema | {name: expression.type for name, expression in hidden.items()}
        prepared = logical.Apply((node,), types, MapStep(tuple(columns.items())))
    found = groupings.Window((prepared,), prepared.schema | schema, partition, ordered, tuple(made))
    if not hidden:
        return found
    kept = {name: Column(name, kind) for name, kind in (node.schema | schema).items()}
    return logical.Apply((found,), node.schema | schema, MapStep(tuple(kept.items())))


def apply_window(relation: Relation, operator: operator_model.Window) -> Relation:
    """Return a relation with the columns of the operator `window`."""
    from ddcli.expressions.window_calls import CALLED, OrderedBy, parse_frame

    errors: list[DdError] = []
    by: list[Expression] = []
    for text in operator.by:
        with noting(errors):
            name = relation.column(text)
            by.append(Column(name, relation.schema[name]))
    keys: list[Key] = []
    for item in operator.order_by:
        with noting(errors):
            key = relation.scalar(item.expression)
            try:
                keys += keys_of(key, item.descending, item.nulls_first)
            except Mismatch as mismatch:
                raise SpecError(mismatch.problem, span=item.expression.span) from None
    raise_all(errors)
    order = OrderedBy(tuple(keys), len(operator.order_by))
    frame = parse_frame(operator.frame, order) if operator.frame is not None else None
    calls: list[WindowCall] = []
    results: list[tuple[str, Expression]] = []
    for name_text, text in operator.columns:
        with noting(errors):
            found = relation.windowed(text, order, frame)
            places: dict[str, Expression] = {}
            for at, call in enumerate(found.calls):
                if call not in calls:
                    calls.append(call)
                places[f"{CALLED}{at}"] = Column(f"{CALLED}{calls.index(call)}", call.type)
            results.append((name_text.value, found.result.substitute(places)))
    raise_all(errors)
    node = windowed(relation.node, by, order, {f"{CALLED}{at}": call for at, call in enumerate(calls)})
    columns: dict[str, Expression] = {name: Column(name, kind) for name, kind in relation.schema.items()}
    columns |= dict(results)
    schema = {name: expression.type for name, expression in columns.items()}
    return relation.over(logical.Apply((node,), schema, MapStep(tuple(columns.items()))))


def cells(at: int, call: WindowCall) -> Schema:
    """Return the columns of a call in the physical node, in order."""
    if call.aggregate is None:
        return {f"${at}": call.type}
    found = reductions.cells(at, call.aggregate)
    if reductions.is_gathered(call.aggregate):
        return dict.fromkeys(found, call.type)
    return found


def finished(at: int, call: WindowCall) -> Expression:
    """Return the call's value as an expression over its cells."""
    if call.aggregate is None or reductions.is_gathered(call.aggregate):
        return Column(f"${at}", call.type)
    return reductions.finished(at, call.aggregate)


def lower_window(node: groupings.Window, wanted: Schema, child: Node) -> Node:
    """Return the physical nodes of a window over `child`, which has the columns that it reads, with the `wanted` columns of `node`."""
    calls = [(name, call) for name, call in node.calls if name in wanted]
    columns = {name: Column(name, kind) for name, kind in child.schema.items()}
    prepared, key = grouped(child, columns, node.by)
    kinds = [child.schema[name].kind for name, _ in node.order_by]
    ordered = bool(kinds) and not POOLED.intersection(kinds)
    near = all(call.reach is not None for _, call in calls)
    ways = {way(call) for _, call in calls}
    running = ordered and not near and len(ways) == 1 and 0 not in ways
    if running:
        prepared = ranked(prepared, key, tuple((name, descending ^ (-1 in ways)) for name, descending in node.order_by))
    elif ordered and near:
        prepared = ranked(prepared, key, node.order_by)
    carried = {name: kind for name, kind in wanted.items() if name in child.schema}
    schema: Schema = {name: prepared.schema[name] for name in key} | carried
    results: dict[str, Expression] = {name: Column(name, kind) for name, kind in carried.items()}
    for at, (name, call) in enumerate(calls):
        schema |= cells(at, call)
        results[name] = finished(at, call)
    given = (arrange(prepared, key),), schema, node.order_by, tuple(call for _, call in calls)
    found = physical.RunningGroup(*given, -1 in ways) if running else physical.WindowedGroup(*given)
    return project(found, results, {name: expression.type for name, expression in results.items()}, fuse=True)


def way(call: WindowCall) -> int:
    """Return the direction in which a call continues from its state at the row before: 1 from the first row, -1 from the last, 0 neither.

    Sums of floats don't: their kept state is rounded.
    """
    if call.function in ("row_number", "rank", "dense_rank"):
        return 1
    aggregate = call.aggregate
    if aggregate is not None:
        extreme = aggregate.function in ("min", "max", "bool_and", "bool_or") and not reductions.is_gathered(aggregate)
        if not extreme and not reductions.is_accumulable(aggregate):
            return 0
    found = call.frame.way if call.frame is not None else 0
    return 0 if found < 0 and call.function == "nth_value" else found
