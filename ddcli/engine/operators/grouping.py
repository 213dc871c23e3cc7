"""Operators over groups and multiplicities as nodes of a dataflow: the reduction of `reduce`, with its traces around it.

In a loop a reduction reads working traces, in which rounds are dropped (see `sweep`); its own are written behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, Keeping, Stateless
from ddcli.engine.operators.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.operators.base import Interval
    from ddcli.engine.operators.join import Arrange
    from ddcli.engine.operators.reduce import Reader, Reduce
    from ddcli.engine.operators.threshold import Threshold


class Group(Keeping):
    """A reduction that reads the rows of its groups from an arrangement, in a loop of `depth`. Its trace holds its output."""

    def __init__(self, reduce: Reduce | Threshold, arranged: Arrange | None, trace: Trace, depth: int = 0):
        super().__init__(trace)
        self.reduce = reduce
        self.arranged = arranged
        self.sweep = Sweep(arranged.trace if arranged else None, trace, depth) if depth else None
        if self.sweep:
            self.wakes = self.sweep.wakes

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        def evaluate(
            delta: np.ndarray, output: Reader, inputs: Reader, seeds: np.ndarray | None, *, ahead: bool
        ) -> tuple[np.ndarray, np.ndarray]:
            upper = interval.upper.elements
            return self.reduce.step(delta, output=output, inputs=inputs, seeds=seeds, upper=upper, ahead=ahead)

        updates = deltas[0].updates
        if self.sweep:
            self.batch, _ = self.sweep.step(evaluate, updates, interval)
        else:
            inputs = self.arranged.trace if self.arranged else self.trace
            self.batch, _ = evaluate(updates, self.trace, inputs, None, ahead=False)
        return Delta(self.batch, distinct=True)


class Accumulate(Group):
    """Counts and sums of groups. Its trace holds them, `[key | number of records | sums | time | diff]`, and no input."""

    def __init__(self, reduce: Reduce, trace: Trace, depth: int = 0):
        super().__init__(reduce, None, trace, depth)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = kernels.sort_by(deltas[0].updates, range(self.trace.nk))
        return super().step([Delta(updates)], interval)


class Multiplicity(Stateless):
    """Records as often as a function of their multiplicity says. Reads an arrangement whose key is the whole record.

    For totally ordered time outside of loops, where what the output was follows from the input; else `Group` keeps it.
    """

    def __init__(self, threshold: Threshold, arranged: Arrange):
        self.threshold = threshold
        self.arranged = arranged

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return Delta(self.threshold.step(deltas[0].updates, self.arranged.trace).updates, distinct=True)
