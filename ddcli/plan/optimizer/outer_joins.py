"""Left joins with a condition above that drops every padded record: they are inner joins.

A condition that is null, or false, where all columns of the right side are null keeps no record without a partner. An inner join returns the others
in fewer operators, and lets conditions sink into both of its sides. So that the same records fail, the condition must not fail on padded ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.expressions.steps import MapStep
from ddcli.expressions.tree import Call, Cast, Column, Expression, Literal
from ddcli.plan import joins, logical
from ddcli.plan.conditions import CERTAIN, STRICT_AND_CERTAIN, is_certain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from ddcli.expressions.types import Schema
    from ddcli.plan.node import Node

ARITHMETIC = {"+", "-", "*", "/", "//", "%"}
STRICT = ARITHMETIC | STRICT_AND_CERTAIN
"""Functions that are null where an argument is."""


def without_padding(node: joins.Join, conditions: Iterable[Expression]) -> joins.Join:
    """Return a left join as an inner one, if one of the conditions on its columns drops padded records; else the join itself."""
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
