"""The rows of the inputs on which some records can depend: values of columns, pushed down from a collection to the inputs below.

Rows of an input with other values can't matter to the records in question. The restriction is sound, not sharp: below a loop, or a
Python function, any row may matter.
"""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any

from ddcli.expressions.steps import MapStep, PythonStep, UnnestStep
from ddcli.expressions.tree import Column
from ddcli.plan import groupings, logical, loops

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ddcli.expressions.steps import Step
    from ddcli.plan.node import Node

Values = dict[str, Any]
ALIKE = (logical.Passing, logical.Negate, logical.Concat, groupings.Threshold)
"""Nodes whose records change exactly as those of their inputs do."""
SAME = (*ALIKE, logical.Temporal, loops.Enter)
"""Nodes whose records are those of their inputs."""


class Restrictions:
    """The alternatives that each input's rows may match: a row matters only if it has the values of one. An empty one matches all rows."""

    def __init__(self, node: Node, values: Values) -> None:
        self.sources: dict[str, list[Values]] = {}
        self._left: list[tuple[Node, Values]] = [(node, values)]
        seen: set[tuple[str, str]] = set()
        while self._left:
            below, given = self._left.pop()
            values = {name: value for name, value in given.items() if not isinstance(value, list)}
            at = below.fingerprint, repr(sorted(values.items(), key=lambda item: item[0]))
            if at not in seen:
                seen.add(at)
                self._below(below, values)

    def alternatives(self, name: str) -> list[Values] | None:
        """Return the alternatives of which a row of an input must match one; None if all rows may matter."""
        found = self.sources.get(name, [])
        return None if any(not values for values in found) else found

    def _push(self, node: Node, values: Values) -> None:
        self._left.append((node, values))

    def _each(self, nodes: Iterable[Node], values: Values) -> None:
        for node in nodes:
            self._push(node, values)

    @singledispatchmethod
    def _below(self, node: Node, values: Values) -> None:
        """Push values through a node to its inputs: by default none, as through loops, nodes inside them, and Python functions."""
        self._each(node.inputs, values if isinstance(node, SAME) else {})

    @_below.register
    def _(self, node: logical.Source, values: Values) -> None:
        self.sources.setdefault(node.name, []).append(values)

    @_below.register
    def _(self, node: logical.Upsert, values: Values) -> None:
        self._each(node.inputs, _known_values(values, node.key))

    @_below.register
    def _(self, node: logical.Snapshots, values: Values) -> None:
        self._each(node.inputs, _known_values(values, node.key or values))

    @_below.register
    def _(self, node: logical.Apply, values: Values) -> None:
        self._each(node.inputs, before_step(node.step, values))

    @_below.register
    def _(self, node: groupings.Reduce, values: Values) -> None:
        self._each(node.inputs, renamed(values, node.by))

    @_below.register
    def _(self, node: groupings.Grouped, values: Values) -> None:
        self._each(node.inputs, _known_values(values, node.by))

    @_below.register
    def _(self, node: logical.Join, values: Values) -> None:
        """Push each side's values; to a side that may be missing, and is null then, only those of the key."""
        keys = {column: values[name] for name, side, column in node.columns if side == "key" and name in values}
        left = {c: values[name] for name, side, c in node.columns if side == "left" and name in values}
        right = {c: values[name] for name, side, c in node.columns if side == "right" and name in values}
        others = {other: keys[one] for one, other in node.on if one in keys}
        self._push(node.left, keys | (left if node.how in ("inner", "left") else {}))
        self._push(node.right, others | (right if node.how in ("inner", "right") else {}))

    @_below.register
    def _(self, node: logical.AsofJoin, values: Values) -> None:
        """Push the left record's values, and to the right only those of the key: the nearest record depends on all that have it."""
        left, right = node.sides(values)
        self._push(node.left, left)
        self._push(node.right, _known_values(right, [other for one, other in node.on if one in left]))

    @_below.register
    def _(self, node: logical.Semijoin, values: Values) -> None:
        left, right = node.inputs
        self._push(left, values)
        self._push(right, {other: values[one] for one, other in node.on if one in values})


def _known_values(values: Values, names: Iterable[str]) -> Values:
    return {name: values[name] for name in names if name in values}


def before_step(step: Step, values: Values) -> Values:
    """Return the values of a step's input that follow from those of its output."""
    if isinstance(step, MapStep):
        return renamed(values, step.columns)
    if isinstance(step, UnnestStep):
        return {name: value for name, value in values.items() if name != step.name}
    return {} if isinstance(step, PythonStep) else values


def renamed(values: Values, columns: Iterable[tuple[str, Any]]) -> Values:
    """Return the values of the input's columns, as far as columns are passed on unchanged."""
    return {
        expression.name: values[name]
        for name, expression in columns
        if isinstance(expression, Column) and name in values
    }
