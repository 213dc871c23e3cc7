"""`union`, `intersect` and `except`, with and without `all`, as sums and as counts of each row's multiplicity on each side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from ddcli.errors import SpecError
from ddcli.expressions.aggregates import AggregateCall
from ddcli.expressions.coerce import INT64, Mismatch, convert, meet
from ddcli.expressions.statement import names_some
from ddcli.expressions.steps import ExplodeStep
from ddcli.expressions.tree import Column, Expression, Literal
from ddcli.plan import groupings, logical
from ddcli.plan.conditions import call
from ddcli.plan.sql import nodes
from ddcli.plan.sql.names import fresh, renamed
from ddcli.plan.sql.nodes import column

if TYPE_CHECKING:
    from ddcli.plan.node import Node
    from ddcli.plan.sql.context import Environment, QueryLowering, QueryResult

LEFT, RIGHT = "#left", "#right"


def set_operation(statement: QueryLowering, node: exp.SetOperation, environment: Environment) -> QueryResult:
    """Return the result of a set operation, with the left side's column names."""
    union = ("by_name",) if isinstance(node, exp.Union) else ()
    left, right, distinct = statement.tree.take(
        node, "this", "expression", "distinct", "with_", "order", "limit", "offset", *union
    )[:3]
    if isinstance(node, exp.Union) and statement.leaving:
        sides = [side for side in (left, right) if not names_some(side, statement.leaving)]
        if len(sides) == 1:
            return statement.query(sides[0], environment)
    both = [statement.query(left, environment), statement.query(right, environment)]
    if node.args.get("by_name"):
        for side in both:
            names = [name.lower() for name, _ in side.columns]
            if len(set(names)) < len(names):
                raise SpecError("a side of `by name` has two columns of one name", span=statement.tree.place(node))
        both = [padded(both[0], both[1]), padded(both[1], both[0])]
        order = {name.lower(): at for at, (name, _) in enumerate(both[0].columns)}
        both[1] = replace(both[1], columns=tuple(sorted(both[1].columns, key=lambda each: order[each[0].lower()])))
    one, other = aligned(statement, node, both, environment)
    return combined(node, one, other, distinct=bool(distinct))


def padded(side: QueryResult, other: QueryResult) -> QueryResult:
    """Return a side of a `union by name` with the columns that only the other side has added, null in all rows."""
    own = {name.lower() for name, _ in side.columns}
    missing = {name: each for name, each in other.columns if name.lower() not in own}
    names = dict(zip(missing, renamed(missing, side.node.schema).values(), strict=True))
    nulls = {names[name]: Literal(None, other.node.schema[each].or_null()) for name, each in missing.items()}
    return replace(side, node=nodes.extended(side.node, nulls), columns=(*side.columns, *names.items()))


def combined(node: exp.SetOperation, one: QueryResult, other: QueryResult, *, distinct: bool) -> QueryResult:
    """Return the set operation on two results with equal columns."""
    if isinstance(node, exp.Union):
        both = nodes.concat([one.node, other.node])
        return replace(one, node=groupings.distinct(both) if distinct else both)
    names = list(one.node.schema)
    left_, right_ = renamed([LEFT, RIGHT], names).values()
    sides = [
        nodes.extended(side.node, {left_: Literal(int(at == 0), INT64), right_: Literal(int(at == 1), INT64)})
        for at, side in enumerate((one, other))
    ]
    both = nodes.concat(sides)
    calls = [AggregateCall("sum", (column(both, name),), False, (), INT64) for name in (left_, right_)]
    counted = nodes.reduced(both, nodes.every(both, names), calls, [left_, right_])
    left, right, none = column(counted, left_), column(counted, right_), Literal(0, INT64)
    if distinct:
        is_there = call(">" if isinstance(node, exp.Intersect) else "<=", right, none)
        found = nodes.filtered(counted, call("and", call(">", left, none), is_there))
    else:
        wanted = (
            call("least", left, right)
            if isinstance(node, exp.Intersect)
            else call("greatest", call("-", left, right), none)
        )
        kept = nodes.filtered(counted, call(">", wanted, none))
        found = logical.Apply((kept,), kept.schema, ExplodeStep(wanted))
    return replace(one, node=nodes.projected(found, names))


def aligned(
    statement: QueryLowering, node: exp.Expr, sides: list[QueryResult], environment: Environment
) -> list[QueryResult]:
    """Return results with the same columns, in the same order, of common types, and with all outer columns as keys."""
    from ddcli.plan.sql.context import QueryResult

    counts = [len(side.columns) for side in sides]
    if len(set(counts)) > 1:
        problem = f"the sides have {counts[0]} and {counts[1]} columns"
        raise SpecError(problem, span=statement.tree.place(node), hint="list as many columns on both sides")
    keys = tuple(environment.outer.node.schema) if environment.outer is not None else ()
    names: list[str] = []
    for name, _ in sides[0].columns:  # a list may have the same name twice
        names.append(fresh(name, {*keys, *names}))
    expressions: list[list[Expression]] = [[column(side.node, each) for _, each in side.columns] for side in sides]
    for at, (name, _) in enumerate(sides[0].columns):
        common = expressions[0][at].type
        for other in expressions[1:]:
            found = meet(common, other[at].type)
            if found is None:
                problem = (
                    f"column `{name}` is {common.required()} on one side and {other[at].type.required()} on the other"
                )
                raise SpecError(problem, span=statement.tree.place(node), hint="cast one of them")
            common = found
        for each in expressions:
            each[at] = converted(each[at], common)
    made = []
    for side, own in zip(sides, expressions, strict=True):
        whole, renames = spread(side, environment)
        bound = {old: Column(new, whole.schema[new]) for old, new in renames.items()}
        columns: dict[str, Expression] = {key: column(whole, key) for key in keys}
        columns |= {name: each.substitute(bound) for name, each in zip(names, own, strict=True)}
        made.append(nodes.mapped(whole, columns))
    columns_ = tuple((name, given) for (name, _), given in zip(sides[0].columns, names, strict=True))
    return [QueryResult(each, keys, columns_) for each in made]


def converted(expression: Expression, kind: object) -> Expression:
    """Return an expression converted to the common type `kind`, which holds all its values."""
    from ddcli.expressions.types import Type

    assert isinstance(kind, Type)
    if expression.type.kind == "null":
        return Literal(None, kind.or_null())
    try:
        return convert(expression, kind)
    except Mismatch as mismatch:  # pragma: no cover - `meet` found the type
        raise SpecError(mismatch.problem, hint=mismatch.hint) from None


def spread(side: QueryResult, environment: Environment) -> tuple[Node, dict[str, str]]:
    """Return a result's node with all outer columns, one copy for each outer row, and the new names of its columns."""
    if environment.outer is None or len(side.keys) == len(environment.outer.node.schema):
        return side.node, {name: name for name in side.node.schema}
    around = environment.outer.node
    result, keys = side.apart(around.schema)
    renames = dict(zip(side.node.schema, result.node.schema, strict=True))
    return nodes.joined(around, result.node, nodes.same(keys, around, result.node)), renames
