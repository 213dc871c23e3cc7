"""What physical nodes are called: a word for what one does, and in short how, in the words of the pipeline file where there are any."""

from __future__ import annotations

import re
from functools import singledispatch
from typing import TYPE_CHECKING

from ddcli.expressions.steps import ExplodeStep, FilterStep, MapStep, PythonStep, UnnestStep
from ddcli.expressions.tree import Column, quoted
from ddcli.plan import loops, physical
from ddcli.plan.reductions import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.expressions.steps import Step
    from ddcli.plan.logical import Node

NOT_NULL = re.compile(r'not \(([\w.]+|"[^"]*") is null\)')
KINDS: dict[type[Node], str] = {
    physical.Scan: "input",
    physical.Contents: "contents",
    physical.Upserts: "upserts",
    physical.Snapshots: "snapshots",
    physical.Watched: "watch",
    physical.Consolidate: "consolidate",
    physical.Show: "inspect",
    physical.Arranged: "arrange",
    physical.Kept: "arrange",
    physical.Filtered: "filter on read",
    physical.EquiJoin: "join",
    physical.Accumulate: "reduce",
    physical.Group: "reduce",
    physical.PythonGroup: "reduce",
    physical.Top: "top_k",
    physical.OrderLanes: "order",
    physical.EnterAt: "enter",
    physical.Shift: "temporal_filter",
    physical.PythonShift: "join_function",
    physical.Delay: "delay",
    loops.Variable: "variable",
    loops.Iterate: "loop",
    loops.Leave: "leave",
}


def kind(node: Node) -> str:
    """Return the word for what a node does; of a fused chain, what stands out in it."""
    if isinstance(node, physical.Linear):
        return _linear(node.steps)
    if isinstance(node, physical.Sum):
        return "negate" if node.signs == (-1,) else "subtract" if -1 in node.signs else "concat"
    if isinstance(node, physical.Multiplicity):
        return "threshold" if node.function else "distinct"
    return KINDS[type(node)]


def _linear(steps: Iterable[Step]) -> str:
    words = [_step_kind(step) for step in steps]
    found = list(dict.fromkeys(word for word in words if word != "project")) or ["project"]
    return " + ".join(found)


def _step_kind(step: Step) -> str:
    if isinstance(step, MapStep):
        return "map" if any(not isinstance(expression, Column) for _, expression in step.columns) else "project"
    if isinstance(step, UnnestStep | PythonStep):
        return "flat_map"
    return "filter" if isinstance(step, FilterStep) else "explode"


@singledispatch
def says(_node: Node) -> list[str]:
    """Return how a node does what it does: lines of some words each, none where the kind says all."""
    return []


@says.register
def _(node: physical.Scan) -> list[str]:
    return [node.meaning] if node.meaning else []


@says.register(physical.Upserts)
@says.register(physical.Snapshots)
def _(node: physical.Upserts | physical.Snapshots) -> list[str]:
    return [f"key {', '.join(node.key)}"] if node.key else []


@says.register
def _(node: physical.Linear) -> list[str]:
    told = [_step(step) for step in node.steps]
    for name, call in _aggregates(node.inputs[0]).items():
        told = [line.replace(quoted(name), call) for line in told]
    return [line for line in told if line] or [f"to {', '.join(node.schema)}"]


def _aggregates(node: Node) -> dict[str, str]:
    """Return what the columns of a reduction's results are, which have names of ours until they are given the file's."""
    if isinstance(node, physical.Group):
        return {f"${at}": call.text() for at, call in enumerate(node.calls)}
    return {RECORDS: "count(*)"} if isinstance(node, physical.Accumulate) else {}


def _step(step: Step) -> str:
    """Return a step for people: of a map only the columns that are not as they were."""
    if isinstance(step, FilterStep):
        return f"where {_plain(step.condition.text())}"
    if isinstance(step, MapStep):
        made = [(name, expression) for name, expression in step.columns if expression.text() != quoted(name)]
        return ", ".join(f"{name}: {_plain(expression.text())}" for name, expression in made)
    if isinstance(step, UnnestStep):
        return f"{step.name}: {step.call.text()}"
    if isinstance(step, ExplodeStep):
        return f"times {_plain(step.weight.text())}"
    return step.function


@says.register
def _(node: physical.Show) -> list[str]:
    return [node.label]


@says.register
def _(node: physical.Arranged) -> list[str]:
    return [f"by {', '.join(node.key)}"]


@says.register
def _(node: physical.Filtered) -> list[str]:
    return [f"where {_plain(condition.text())}" for condition in node.conditions]


@says.register
def _(node: physical.EquiJoin) -> list[str]:
    left, right = node.inputs
    assert isinstance(left, physical.Arranged)
    assert isinstance(right, physical.Arranged)
    pairs = zip(left.key, right.key, strict=True)
    return ["on " + ", ".join(one if one == other else f"{one} = {other}" for one, other in pairs)]


@says.register(physical.Accumulate)
@says.register(physical.Group)
def _(node: physical.Accumulate | physical.Group) -> list[str]:
    return [f"by {_by(node.by)}", ", ".join(call.text() for call in node.calls)]


@says.register
def _(node: physical.PythonGroup) -> list[str]:
    return [f"by {_by(node.by)}", node.function]


@says.register
def _(node: physical.Multiplicity) -> list[str]:
    return [_plain(node.function.text())] if node.function else []


@says.register
def _(node: physical.Top) -> list[str]:
    order = ", ".join(f"{name} desc" if descending else name for name, descending in node.order_by)
    (arranged,) = node.inputs
    assert isinstance(arranged, physical.Arranged)
    return [f"{node.k} by {order}", f"of each {_by(arranged.key)}"]


@says.register
def _(node: physical.Shift) -> list[str]:
    return [" ".join(word for word, given in (("from", node.lower), ("until", node.upper)) if given)]


@says.register
def _(node: physical.PythonShift) -> list[str]:
    return [node.function]


@says.register
def _(node: loops.Iterate) -> list[str]:
    names = ", ".join(name.value for name in node.names)
    return [f"{names}, {node.bound} rounds" if node.bound is not None else names]


def _by(names: Iterable[str]) -> str:
    """Return the columns of a key; the one of a single group of all rows is ours, not the file's."""
    return ", ".join(name for name in names if not name.startswith("$")) or "all"


def _plain(text: str) -> str:
    """Return an expression as a person would write it, without the parentheses around all of it.

    >>> _plain("(a + b)"), _plain("(a) + (b)"), _plain("(not (x is null))")
    ('a + b', '(a) + (b)', 'x is not null')
    """
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            text = text[1:-1] if at and at == len(text) - 1 else text
            break
    return NOT_NULL.sub(r"\1 is not null", text)
