"""As-of joins: the operator as a logical node, and its lowering to one arrangement of both sides' rows, in the order of the compared columns."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ddcli.errors import SpecError
from ddcli.expressions.coerce import meet
from ddcli.expressions.steps import FilterStep, MapStep, Step
from ddcli.expressions.tree import Call, Column, Literal
from ddcli.expressions.types import POOLED, Type
from ddcli.plan import logical, physical
from ddcli.plan.join import comparable, joined_columns, match_keys
from ddcli.plan.physical import ALL
from ddcli.plan.reductions import INT64
from ddcli.plan.relation import Relation
from ddcli.plan.shape import arrange, column_as, is_not_null, linear, project

if TYPE_CHECKING:
    from ddcli.expressions.tree import Expression
    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Node
    from ddcli.spec import operator_model


def asof_join(left: Relation, right: Relation, operator: operator_model.AsofJoin, name: str | None) -> Relation:
    """Return the as-of join of two relations, with the columns that a join would have."""
    pairs = match_keys(left, right, operator.on)
    ((one, other),) = operator.at
    at = left.column(one), right.column(other)
    kinds = left.schema[at[0]], right.schema[at[1]]
    for kind in kinds:
        if not is_ordered(kind):
            problem = f"`at` compares numbers, dates and times, not {kind.required()}"
            raise SpecError(problem, span=one.span, hint="cast it to one of these before")
    if not comparable(*kinds):
        raise SpecError(
            f"`at` compares '{at[0]}', which is {kinds[0]}, with '{at[1]}', which is {kinds[1]}",
            span=one.span,
            hint=f"cast one side first: `extend: {{{at[0]}: cast({at[0]} as {kinds[1].required()})}}`",
        )
    schema, columns, qualified, aliases = joined_columns(left, right, pairs, operator.how, name, operator.span)
    forward = operator.direction == "forward"
    node = logical.AsofJoin(
        (left.node, right.node), schema, pairs, at, operator.how, forward, operator.strict, tuple(columns)
    )
    return Relation(node, qualified, aliases)


def is_ordered(kind: Type) -> bool:
    """Return whether values of a type have lanes in their order."""
    return kind.kind not in POOLED and kind.kind not in ("null", "months")


def lower_asof(node: logical.AsofJoin, left: Node, right: Node, wanted: Schema) -> Node:
    """Return the physical nodes of an as-of join over its sides, with the `wanted` columns.

    Rows with a null in a compared column have no partner: none of them is arranged.
    """
    on: dict[str, tuple[str, str]] = {}
    for one, other in sorted(node.on):
        on[one if one not in on else f"{one}${len(on)}"] = (one, other)
    keys: Schema = {name: _common(left.schema[one], right.schema[other]) for name, (one, other) in on.items()}
    keys = keys or {ALL: INT64}
    given: dict[str, tuple[int, str, Type]] = {}  # the value columns of rows, by their names in the result
    for name, side, source in node.columns:
        if side == "right":
            given[name] = (1, source, right.schema[source])
        elif name in wanted and source not in on:
            given[name] = (0, source, left.schema[source])
    values: Schema = {name: kind.or_null() for name, (_, _, kind) in given.items()}
    ordered = physical.lane_columns(physical.lane_column(0), left.schema[node.at[0]].required())

    def rows(child: Node, side: int) -> Node:
        """Return one side's rows: the key, the side, the lanes of the order, and the columns of both sides, null for the other side's."""
        sources = [(name, pair[side]) for name, pair in on.items()]
        columns: dict[str, Expression] = {
            name: column_as(source, child.schema[source].required(), keys[name]) for name, source in sources
        } or {ALL: Literal(0, INT64)}
        at = child.schema[node.at[side]].required()
        columns |= {physical.SIDE: Literal(side, INT64), physical.AT: Column(node.at[side], at)}
        for name, (of, source, kind) in given.items():
            here = column_as(source, kind, values[name])
            columns[name] = here if of == side else Literal(None, values[name])
        steps: list[Step] = [FilterStep(is_not_null(each)) for each in compared(child, side)]
        steps.append(MapStep(tuple(columns.items())))
        schema = {name: expression.type for name, expression in columns.items()}
        prepared = linear(child, steps, schema, fuse=False)
        shown = keys | {physical.SIDE: INT64} | ordered | values
        return physical.OrderLanes((prepared,), shown, ((physical.lane_column(0), physical.AT, node.forward),))

    def compared(child: Node, side: int) -> list[Expression]:
        """Return the compared columns of a side that may be null."""
        names = dict.fromkeys([*(pair[side] for pair in on.values()), node.at[side]])
        return [Column(name, child.schema[name]) for name in names if child.schema[name].nullable]

    inner = node.how == "inner"
    both = physical.SignedSum((rows(left, 0), rows(right, 1)), keys | {physical.SIDE: INT64} | ordered | values, (1, 1))
    rights = tuple(name for name, (side, _, _) in given.items() if side)
    found = physical.AsofGroup(
        (arrange(both, keys),), keys | values, len(ordered), rights, inner, node.strict, node.condition
    )
    named = {one: name for name, (one, _) in reversed(on.items())}
    results: dict[str, Expression] = {}
    for name, side, source in node.columns:
        if name in wanted:
            own = name if side == "right" or source not in named else named[source]
            results[name] = column_as(own, found.schema[own], wanted[name])
    matched = project(found, results, wanted, fuse=True)
    without = compared(left, 0)
    if inner or not without:
        return matched
    columns = tuple(
        (name, Literal(None, wanted[name]) if side == "right" else column_as(source, left.schema[source], wanted[name]))
        for name, side, source in node.columns
        if name in wanted
    )
    missing = reduce(_either, [Call("is null", (each,), Type("bool")) for each in without])
    alone = linear(left, [FilterStep(missing), MapStep(columns)], wanted, fuse=False)
    return physical.SignedSum((matched, alone), wanted, (1, 1))


def _either(one: Call, other: Call) -> Call:
    return Call("or", (one, other), Type("bool"))


def _common(one: Type, other: Type) -> Type:
    """Return the type in whose lanes values of two comparable types are compared."""
    found = meet(one.required(), other.required())
    assert found is not None, "comparable types have one"
    return found
