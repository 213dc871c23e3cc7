"""The class of work of each physical node, one of `WORK_CLASSES`: the bound of its work for a change.

A class bounds the rows that an operator reads for a change, by its kind, not the time that this takes. Only the work of a person's
Python functions has no bound here.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from ddcli.expressions.steps import FilterStep, MapStep
from ddcli.expressions.tree import Column, Literal
from ddcli.plan import loops, physical
from ddcli.plan.reductions import ALL

if TYPE_CHECKING:
    from ddcli.plan.node import Node


@singledispatch
def work(_node: Node) -> str | None:
    """Return the class of a node; None for one that computes nothing: inputs, loops, and the nodes at which collections enter or leave these."""
    return "change"


@work.register(physical.Scan | physical.KeptArrangement | loops.LoopVariable | loops.Iterate | loops.Leave)
def _(_node: Node) -> None:
    return None


@work.register
def _(_node: physical.SnapshotTable) -> str:
    return "everything"


@work.register
def _(node: physical.EquiJoin) -> str:
    left, right = node.inputs
    assert isinstance(left, physical.Arrangement)
    assert isinstance(right, physical.Arrangement)
    alike = all(
        is_constant(left, one) or is_constant(right, other) for one, other in zip(left.key, right.key, strict=True)
    )
    return "everything" if alike else "output"


@work.register
def _(_node: physical.RowLookup) -> str:
    return "output"


@work.register
def _(node: physical.AsofGroup) -> str:
    return "output" if in_order_of_time(node) else _of_all(node) or "groups"


@work.register(physical.Group | physical.PythonGroup | physical.Top)
def _(node: physical.Group | physical.PythonGroup | physical.Top) -> str:
    return _of_all(node) or "groups"


@work.register
def _(node: physical.WindowedGroup) -> str:
    bounded = "output" if isinstance(node, physical.RunningGroup) else None if node.reach is None else "change"
    return (bounded if in_order_of_time(node) else None) or _of_all(node) or "partition"


def in_order_of_time(node: Node) -> bool:
    """Return whether the times of a node are totally ordered: one coordinate, outside of loops. Elsewhere windows and as-of joins read whole groups."""
    if node.free:
        return False
    while node.inputs:
        node = node.inputs[0]
    return not isinstance(node, physical.Scan) or node.nt == 1


def _of_all(node: Node) -> str | None:
    """Return the class of an operator with a single group, of all rows."""
    (arranged,) = node.inputs
    assert isinstance(arranged, physical.Arrangement)
    return "everything" if all(is_constant(arranged, name) for name in arranged.key) else None


def is_constant(node: Node, column: str) -> bool:
    """Return whether a column has one value only, as far as its expression shows."""
    while isinstance(node, physical.Linear | physical.Arrangement | physical.OrderLanes):
        for step in reversed(node.steps) if isinstance(node, physical.Linear) else ():
            if isinstance(step, MapStep):
                found = dict(step.columns).get(column)
                if not isinstance(found, Column):
                    return isinstance(found, Literal)
                column = found.name
            elif not isinstance(step, FilterStep) and column not in node.inputs[0].schema:
                return False
        (node,) = node.inputs
    return column == ALL
