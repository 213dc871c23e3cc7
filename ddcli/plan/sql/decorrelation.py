"""A subquery without the rows around it: if equalities alone tie it to them, its own columns have the same values.

A subquery is lowered over the distinct rows of the columns around it that it reads, joined with its tables. If a join by equality covers all of
these columns, then the other side's columns have their values, and the rows around need not be read: it returns the same for them, and more for
other values, which find no partner when it is joined back. So this is only done if no expression can fail on more rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.expressions.tree import Column, Expression
from ddcli.plan import logical
from ddcli.plan.conditions import all_of, call, is_certain_step
from ddcli.plan.node import Graph
from ddcli.plan.sql import nodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.plan.node import Node


def decorrelated(found: Node, around: Node) -> Node | None:
    """Return a subquery's rows made without those of `around`; None where that doesn't do."""
    steps: list[Node] = []
    node = found
    while not (isinstance(node, logical.Join) and node.how == "inner" and node.left == around):
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
    """Return whether a node joins the rows below with others that don't read those around."""
    return isinstance(node, logical.Join) and node.how == "inner" and not _reads(node.right, around)


def _reads(node: Node, around: Node) -> bool:
    return any(each == around for each in Graph({"": node}).nodes())


def _present(node: Node, names: Iterable[str]) -> Node:
    """Return the records of a node that have values in these columns, which are so typed."""
    missing = [name for name in dict.fromkeys(names) if node.schema[name].nullable]
    if not missing:
        return node
    there = [call("not", call("is null", nodes.column(node, name))) for name in missing]
    kept = nodes.filtered(node, all_of(there))
    return nodes.mapped(
        kept, {name: Column(name, kind.required() if name in missing else kind) for name, kind in node.schema.items()}
    )
