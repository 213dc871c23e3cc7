"""Estimates of the rows that each operator emits in a run: by the rows of its inputs, those of the state, and the counts of earlier runs.

For a join they use the share of all pairs of new rows with those of the other side that matched in earlier runs; for other operators the rows out for each
row in. Without measurements there are rules of thumb, the oldest of all planners': a condition `=` leaves a tenth, a comparison a third, and a
group has ten rows; in a join each row of the larger side has one partner, if no filter has dropped it. There are no estimates in loops, or behind them.
"""

from __future__ import annotations

import math
from dataclasses import field
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.steps import FilterStep
from ddcli.expressions.tree import Call, Literal
from ddcli.plan import loops, physical
from ddcli.plan.conditions import alternatives, conjuncts
from ddcli.plan.physical import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.node import Node
    from ddcli.plan.physical_graph import PhysicalGraph

Pair = tuple[float, float]
SHARES = {"=": 0.1, "is not distinct from": 0.1, "<>": 0.9, "is distinct from": 0.9, "is null": 0.0}
SHARES |= dict.fromkeys(("like", "ilike", "starts_with", "ends_with", "contains"), 0.1)
NONE = (0, 0)
OTHERS = 1 / 3
"""The share of rows for which a condition is expected to be true, by its function, and of all others."""


@dataclass(frozen=True)
class PastRun:
    """A run as it was: the rows that went into operators and came out, by fingerprint, and the rows that each had in the state before."""

    rows: Mapping[str, tuple[int, int]]
    held: Mapping[str, int]


def estimated_rows(
    graph: PhysicalGraph,
    taken: Mapping[str, float],
    held: Mapping[str, int],
    earlier: Sequence[PastRun] = (),
) -> dict[str, float]:
    """Return the rows that operators are expected to emit, by fingerprint, in a run that takes these numbers of rows from inputs, by name.

    `held` are the rows in the state before that run, by fingerprint. There are no estimates for an input that is not `taken`, nor for its readers.
    """
    estimator = _Estimator(taken, held, earlier)
    for node in graph.nodes:
        estimator.take(node)
    return estimator.found


@dataclass
class _Estimator:
    """The estimates of nodes so far, made from the rows taken from inputs, those held in the state, and earlier runs."""

    taken: Mapping[str, float]
    held: Mapping[str, int]
    earlier: Sequence[PastRun]
    found: dict[str, float] = field(default_factory=dict)
    unfiltered: dict[str, float] = field(default_factory=dict)
    """The known numbers of all rows, without any filter."""

    def take(self, node: Node) -> None:
        """Record the estimate of a node, if it has one."""
        rows = None if node.free else self.rows(node)
        if rows is not None:
            held = self.held.get(node.fingerprint, 0) if isinstance(node, physical.Arrangement) else 0
            self.found[node.fingerprint] = rows
            below = [self.unfiltered[child.fingerprint] for child in node.inputs]
            self.unfiltered[node.fingerprint] = max([held + rows, *below])

    def rows(self, node: Node) -> float | None:
        """Return the rows that a node emits; None if those of an input are not known."""
        if isinstance(node, physical.Scan):
            return self.taken.get(node.name)
        if isinstance(node, loops.OfLoop | loops.Leave):
            return None
        inputs = [self.found.get(child.fingerprint) for child in node.inputs]
        known = [each for each in inputs if each is not None]
        return self.emitted(node, known) if len(known) == len(inputs) else None

    @singledispatchmethod
    def emitted(self, node: Node, inputs: Sequence[float]) -> float:
        """Return the rows that a node emits for these numbers of rows of its inputs."""
        return sum(inputs) * self._measured(node, 1.0)

    @emitted.register(physical.Arrangement | physical.SignedSum | physical.DeltaJoin)
    def _(self, node: Node, inputs: Sequence[float]) -> float:
        return sum(inputs)

    @emitted.register(physical.Filtered)
    def _(self, node: physical.Filtered, inputs: Sequence[float]) -> float:
        return inputs[0] * self._measured(node, share_of_rows(node.conditions))

    @emitted.register(physical.Linear)
    def _(self, node: physical.Linear, inputs: Sequence[float]) -> float:
        conditions = [step.condition for step in node.steps if isinstance(step, FilterStep)]
        return inputs[0] * self._measured(node, share_of_rows(conditions))

    @emitted.register(physical.Accumulate | physical.Group | physical.PythonGroup)
    def _(self, node: physical.Accumulate | physical.Group | physical.PythonGroup, inputs: Sequence[float]) -> float:
        groups = float(self.held.get(node.fingerprint, 0))
        met = groups * -math.expm1(-inputs[0] / groups) if groups else 0.0
        found = max(2 * met, inputs[0] * self._measured(node, SHARES["="]))
        return found if [*node.by] != [ALL] else min(found, 2.0)

    @emitted.register(physical.EquiJoin)
    def _(self, node: physical.EquiJoin, inputs: Sequence[float]) -> float:
        left, right = (child.fingerprint for child in node.inputs)
        before = self.held.get(left, 0), self.held.get(right, 0)
        met = _pairs((inputs[0], inputs[1]), before)
        return met * self._matched(node, _pairs)

    @emitted.register(physical.HalfJoin)
    def _(self, node: physical.HalfJoin, inputs: Sequence[float]) -> float:
        def pairs(new: Pair, before: Pair) -> float:
            return new[0] * (before[1] + (new[1] if node.new else 0.0))

        held = self.held.get(node.arranged.fingerprint, 0)
        return pairs((inputs[0], inputs[1]), (0.0, held)) * self._matched(node, pairs)

    @emitted.register(physical.RowCount)
    def _(self, node: physical.RowCount, inputs: Sequence[float]) -> float:
        return inputs[0] if node.new or self.held.get(node.arranged.fingerprint) else 0.0

    def _matched(self, node: Node, pairs: Callable[[Pair, Pair], float]) -> float:
        """Return the share of pairs that matched in earlier runs; without one, that of one partner on the smaller side for each row, before any filter."""
        left, right = (child.fingerprint for child in node.inputs)
        matched = met = 0.0
        for run in self.earlier:
            if node.fingerprint in run.rows:
                new = run.rows.get(left, NONE)[1], run.rows.get(right, NONE)[1]
                met += pairs(new, (run.held.get(left, 0), run.held.get(right, 0)))
                matched += run.rows[node.fingerprint][1]
        return matched / met if met else 1 / max(1.0, min(self.unfiltered[left], self.unfiltered[right]))

    def _measured(self, node: Node, otherwise: float) -> float:
        """Return the rows emitted for each row read in earlier runs, or `otherwise` if there are none."""
        runs = [run.rows[node.fingerprint] for run in self.earlier if node.fingerprint in run.rows]
        into = sum(rows for rows, _ in runs)
        return sum(rows for _, rows in runs) / into if into else otherwise


def _pairs(new: Pair, before: Pair) -> float:
    """Return the number of pairs of rows that a join handles: new ones of one side with all of the other."""
    return new[0] * (before[1] + new[1]) + before[0] * new[1]


def share_of_rows(conditions: Sequence[Expression]) -> float:
    """Return the share of rows for which all conditions are expected to be true."""
    share = 1.0
    for condition in conditions:
        for part in conjuncts(condition):
            share *= _share(part)
    return share


def _share(condition: Expression) -> float:
    """Return the share of rows for which a condition is expected to be true."""
    others = alternatives(condition)
    if len(others) > 1:
        none = 1.0
        for each in others:
            none *= 1 - share_of_rows([each])
        return 1 - none
    if isinstance(condition, Call):
        if condition.function == "not":
            return 1 - share_of_rows([condition.args[0]])
        if condition.function == "in":
            return min(0.5, SHARES["="] * (len(condition.args) - 1))
        return SHARES.get(condition.function, OTHERS)
    return float(condition.value is True) if isinstance(condition, Literal) else OTHERS
