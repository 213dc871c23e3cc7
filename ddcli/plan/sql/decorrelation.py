"""Decorrelation: a subquery computed without its outer rows, where only equalities tie it to them: its own columns then have the outer values.

A subquery is lowered over the distinct rows of the outer columns that it reads, joined with its tables. If a join by equality covers all of
these columns, then the other side's columns have their values, and the outer rows need not be read: the result for them is the same. It also has
rows for values that no outer row has, which the join back drops. So this is only done where no expression can fail on these additional rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.expressions.tree import Column, Expression
from ddcli.plan import joins, logical
from ddcli.plan.conditions import all_of, call, is_certain_step
from ddcli.plan.node import Graph
from ddcli.plan.sql import nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.plan.node import Node


def decorrelated(found: Node, around: Node) -> Node | None:
    """Return a subquery's rows computed without those of `around`, or None if that is not possible."""
    steps: list[Node] = []
    node = found
    while not (isinstance(node, joins.Join) and node.how == "inner" and node.left == around):
        if not (is_certain_step(node.step) if isinstance(node, logical.Apply) else _joins_more(node, around)):
            return None
        steps.append(node)
        node = node.inputs[0]
    partners = dict(reversed(node.on))
    left, right = node.inputs
    if partners.keys() != left.schema.keys() or _reads(right, around):
        return None
    if any(left.schema[one].required() != right.schema[other].required() for one, other in partners.items()):
        return None
    columns: dict[str, Expression] = {}
    for name, side, source in node.columns:
        own = source if side == "right" else partners[source]
        columns[name] = Column(own, node.schema[name] if own in partners.values() else right.schema[own])
    made = nodes.mapped(_present(right, partners.values()), columns)
    for step in reversed(steps):
        made = replace(step, inputs=(made, *step.inputs[1:]))
    return made


def _joins_more(node: Node, around: Node) -> bool:
    """Return whether a node joins its left input with rows that don't depend on `around`."""
    return isinstance(node, joins.Join) and node.how == "inner" and not _reads(node.right, around)


def _reads(node: Node, around: Node) -> bool:
    return any(each == around for each in Graph({"": node}).nodes())


def _present(node: Node, names: Iterable[str]) -> Node:
    """Return the records of a node that have no null in these columns, whose types are then not nullable."""
    missing = [name for name in dict.fromkeys(names) if node.schema[name].nullable]
    if not missing:
        return node
    there = [call("not", call("is null", nodes.column(node, name))) for name in missing]
    kept = nodes.filtered(node, all_of(there))
    return nodes.mapped(
        kept, {name: Column(name, kind.required() if name in missing else kind) for name, kind in node.schema.items()}
    )
