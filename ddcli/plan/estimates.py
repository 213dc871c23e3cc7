"""Estimates of the rows that each operator emits in a run: by the rows of its inputs and of the state, and the counts of earlier runs.

For a join they use the share of all pairs of new rows with the other side's rows that matched in earlier runs; for other operators the rows out for each
row in. Without measurements there are rules of thumb, the oldest of all planners': a condition `=` leaves a tenth, a comparison a third, and a
group has ten rows; in a join each row of the larger side has one partner, if no filter has dropped it. There are no estimates in loops, or behind them.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.expressions.tree import Call, Literal
from ddcli.plan import loops
from ddcli.plan.conditions import alternatives, conjuncts
from ddcli.plan.physical import Arrangement, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ddcli.expressions.tree import Expression
    from ddcli.plan.physical import PhysicalGraph


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


def pairs_met(new: Pair, before: Pair) -> float:
    """Return the number of pairs of rows that a join handles: new ones of one side with all of the other."""
    return new[0] * (before[1] + new[1]) + before[0] * new[1]


@dataclass(frozen=True)
class PastRows:
    """The rows that nodes, by fingerprint, hold in the state, and held in earlier runs.

    `unfiltered` are the known numbers of all rows, without any filter.
    """

    held: Mapping[str, int]
    earlier: Sequence[PastRun] = ()
    unfiltered: dict[str, float] = field(default_factory=dict)

    def measured(self, node: str, otherwise: float) -> float:
        """Return the rows that a node emitted for each row that it read in earlier runs, or `otherwise` if there are none."""
        runs = [run.rows[node] for run in self.earlier if node in run.rows]
        into = sum(rows for rows, _ in runs)
        return sum(rows for _, rows in runs) / into if into else otherwise

    def passing(self, node: str, conditions: Sequence[Expression]) -> float:
        """Return the share of rows that pass a node's conditions."""
        return self.measured(node, share_of_rows(conditions))

    def joined(
        self, node: str, left: str, right: str, new: Sequence[float], pairs: Callable[[Pair, Pair], float] = pairs_met
    ) -> float:
        """Return the rows that a join of two nodes emits for `new` rows of theirs; `pairs` has the pairs of new rows, and of those before, that it handles."""
        before = self.held.get(left, 0), self.held.get(right, 0)
        return pairs((new[0], new[1]), before) * self._matched(node, left, right, pairs)

    def _matched(self, node: str, left: str, right: str, pairs: Callable[[Pair, Pair], float]) -> float:
        """Return the share of pairs that matched in earlier runs; without one, the share with one partner on the smaller side for each row, before any filter."""
        matched = met = 0.0
        for run in self.earlier:
            if node in run.rows:
                new = run.rows.get(left, NONE)[1], run.rows.get(right, NONE)[1]
                met += pairs(new, (run.held.get(left, 0), run.held.get(right, 0)))
                matched += run.rows[node][1]
        return matched / met if met else 1 / max(1.0, min(self.unfiltered[left], self.unfiltered[right]))

    def groups(self, node: str, rows: float) -> float:
        """Return the rows that a reduction emits for these rows: two for each group that they meet, at least one for each new group."""
        groups = float(self.held.get(node, 0))
        met = groups * -math.expm1(-rows / groups) if groups else 0.0
        return max(2 * met, rows * self.measured(node, SHARES["="]))


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


def estimated_rows(
    graph: PhysicalGraph,
    taken: Mapping[str, float],
    held: Mapping[str, int],
    earlier: Sequence[PastRun] = (),
) -> dict[str, float]:
    """Return the rows that operators are expected to emit, by fingerprint, in a run that takes these numbers of rows from inputs, by name.

    `held` are the rows in the state before that run, by fingerprint. There are no estimates for an input that is not `taken`, nor for
    its readers; none in loops, or behind them.
    """
    past = PastRows(held, earlier)
    found: dict[str, float] = {}
    for node in graph.nodes:
        inputs = [found.get(child.fingerprint) for child in node.inputs]
        known = [each for each in inputs if each is not None]
        if node.free or isinstance(node, loops.OfLoop | loops.Leave) or len(known) < len(inputs):
            continue
        rows = taken.get(node.name) if isinstance(node, Scan) else node.emitted(known, past)
        if rows is not None:
            found[node.fingerprint] = rows
            before = held.get(node.fingerprint, 0) if isinstance(node, Arrangement) else 0
            below = [past.unfiltered[child.fingerprint] for child in node.inputs]
            past.unfiltered[node.fingerprint] = max([before + rows, *below])
    return found
