"""The row that exists from the first row of some inputs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.coerce import INT64
from ddcli.expressions.steps import FilterStep, MapStep
from ddcli.expressions.tree import Call, Column, Literal
from ddcli.expressions.types import Type
from ddcli.plan import logical
from ddcli.plan.node import Graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.plan.node import Node

NAME = "#one"


def once(nodes: Sequence[Node]) -> Node:
    """Return one record, 1, from the first row of the inputs below these nodes on. It depends on raw rows, which no later row takes back."""
    sources = {
        each.fingerprint: each
        for node in nodes
        for each in Graph({"": node}).nodes()
        if isinstance(each, logical.Source)
    }
    parts: list[Node] = []
    for each in sources.values():
        rows: Node = each
        if logical.PRESENT in each.schema:
            there = Call("=", (Column(logical.PRESENT, INT64), Literal(1, INT64)), Type("bool"))
            rows = logical.Apply((each,), each.schema, FilterStep(there))
        parts.append(logical.Apply((rows,), {NAME: INT64}, MapStep(((NAME, Literal(1, INT64)),))))
    found = parts[0] if len(parts) == 1 else logical.summed(parts, {NAME: INT64})
    return logical.Once((found,), {NAME: INT64})
