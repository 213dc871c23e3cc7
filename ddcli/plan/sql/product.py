"""The join of the items of a `from` by the conditions on them: equalities become keys, the other conditions filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.tree import Call, Cast, Column, Expression
from ddcli.plan.conditions import all_of, conjuncts, is_certain
from ddcli.plan.joins import comparable
from ddcli.plan.sql import nodes
from ddcli.plan.sql.nodes import Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.plan.node import Node


def product(items: Sequence[Node], conditions: Sequence[Expression], crossed: Callable[[], None]) -> Node:
    """Return the combinations of the items' records for which all conditions are true; `crossed` is called for a join without a key.

    Conditions that could fail are applied last, in the written order: to no more records than as written.
    """
    parts = [part for condition in conditions for part in conjuncts(condition)]
    early = [part for part in parts if is_certain(part)]
    late = [part for part in parts if not is_certain(part)]
    left = [_kept(item, early) for item in items]
    early = [
        part for part in early if not any(part.columns() <= item.schema.keys() for item in left) or not part.columns()
    ]
    constants = [part for part in early if not part.columns()]
    early = [part for part in early if part.columns()]
    node = left.pop(0)
    while left:
        at, pairs = _next(node, left, early)
        if not pairs:
            at, pairs = _next(node, left, late)
            if not pairs:
                crossed()
        other = left.pop(at)
        node = nodes.joined(node, other, [pair for _, pair in pairs])
        used = {id(part) for part, _ in pairs}
        early = [part for part in early if id(part) not in used]
        late = [part for part in late if id(part) not in used]
        covered = [part for part in early if part.columns() <= node.schema.keys()]
        early = [part for part in early if not part.columns() <= node.schema.keys()]
        if covered:
            node = nodes.filtered(node, all_of(covered))
    if rest := [*constants, *early, *late]:
        node = nodes.filtered(node, all_of(rest))
    return node


def equal(condition: Expression) -> Pair | None:
    """Return the two sides of a condition that is an equality, else None."""
    if isinstance(condition, Call) and condition.function in ("=", "is not distinct from"):
        left, right = (_bare(arg) for arg in condition.args)
        if not comparable(left.type, right.type):
            left, right = condition.args
        return Pair(left, right, null_safe=condition.function != "=", span=condition.span)
    return None


def between(condition: Expression, left: Node, right: Node) -> Pair | None:
    """Return the sides of an equality between an expression over the left's columns and one over the right's; else None."""
    pair = equal(condition)
    if pair is None or not pair.left.columns() or not pair.right.columns():
        return None
    if pair.left.columns() <= left.schema.keys() and pair.right.columns() <= right.schema.keys():
        return pair
    if pair.right.columns() <= left.schema.keys() and pair.left.columns() <= right.schema.keys():
        return Pair(pair.right, pair.left, pair.null_safe, pair.span)
    return None


def _next(
    node: Node, items: Sequence[Node], conditions: Sequence[Expression]
) -> tuple[int, list[tuple[Expression, Pair]]]:
    """Return the index of the first item that equalities connect with a node, and these equalities; 0 and none if there is no such item."""
    for at, item in enumerate(items):
        pairs = [(part, pair) for part in conditions if (pair := between(part, node, item)) is not None]
        if pairs:
            return at, pairs
    return 0, []


def _kept(item: Node, conditions: Sequence[Expression]) -> Node:
    """Return an item filtered by the conditions that read only its columns."""
    own = [part for part in conditions if part.columns() and part.columns() <= item.schema.keys()]
    return nodes.filtered(item, all_of(own)) if own else item


def _bare(expression: Expression) -> Expression:
    """Return the expression without a widening cast that keeps the value's lanes."""
    if isinstance(expression, Cast) and not expression.try_:
        inner, kind = expression.argument.type, expression.type
        if (inner.is_integer and kind.kind == "int64" and inner.kind != "uint64") or (inner.is_float and kind.is_float):
            return expression.argument
    return expression


def outer_joined(
    left: Node, right: Node, conditions: Sequence[Expression], side: str, filter_matches: Callable[[Node], Node]
) -> Node:
    """Return the outer join of two nodes; `filter_matches` keeps the matches for which further conditions are true.

    A condition on the padding side alone filters that side before the join: a row that it drops matches nothing. A condition that is neither
    that nor an equality filters the pairs with equal keys; a record whose pairs are all dropped has no match.
    """
    parts = [part for condition in conditions for part in conjuncts(condition)]
    pairs, rest = [], []
    for part in parts:
        pair = between(part, left, right)
        if pair is not None:
            pairs.append(pair)
        elif side == "left" and part.columns() and part.columns() <= right.schema.keys():
            right = nodes.filtered(right, part)
        elif side == "right" and part.columns() and part.columns() <= left.schema.keys():
            left = nodes.filtered(left, part)
        else:
            rest.append(part)
    matches = nodes.joined(left, right, pairs)
    inner = filter_matches(nodes.filtered(matches, all_of(rest)) if rest else matches)
    if inner is matches and pairs:
        if side == "right":
            swapped = [nodes.Pair(pair.right, pair.left, pair.null_safe, pair.span) for pair in pairs]
            return nodes.projected(nodes.joined(right, left, swapped, "left"), matches.schema)
        return nodes.joined(left, right, pairs, side)
    schema = {
        name: kind.or_null() if (name in right.schema) == (side == "left") or side == "full" else kind
        for name, kind in matches.schema.items()
    }
    schema |= {name: left.schema[name] for name in left.schema if side == "left"}
    schema |= {name: right.schema[name] for name in right.schema if side == "right"}
    schema |= {
        name: kind.or_null()
        for name, kind in (left.schema | right.schema).items()
        if side == "full" or name in (right if side == "left" else left).schema
    }
    found = [nodes.mapped(inner, {name: Column(name, kind) for name, kind in schema.items()})]
    if side in ("left", "full"):
        found.append(nodes.padded(nodes.without(left, inner), schema))
    if side in ("right", "full"):
        found.append(nodes.padded(nodes.without(right, inner), schema))
    return nodes.concat(found)
