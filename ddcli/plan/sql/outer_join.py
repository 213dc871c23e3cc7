"""Left, right and full joins on any condition: the matches, and the records without any, padded with nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.tree import Column
from ddcli.plan.conditions import all_of, conjuncts
from ddcli.plan.sql import nodes
from ddcli.plan.sql.product import between

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node


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
