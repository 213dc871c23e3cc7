"""Operators over groups and multiplicities as nodes of a dataflow: the reduction of `reduce`, with its traces around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, Keeping, Stateless

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.operators.base import Interval
    from ddcli.engine.operators.join import Arrange
    from ddcli.engine.operators.reduce import Reduce
    from ddcli.engine.operators.threshold import Threshold


class Accumulate(Keeping):
    """Counts and sums of groups. Its trace holds them, `[key | number of records | sums | time | diff]`, and no input."""

    def __init__(self, reduce: Reduce, trace: Trace):
        super().__init__(trace)
        self.reduce = reduce

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = kernels.sort_by(deltas[0].updates, range(self.reduce.nk))
        self.batch = self.reduce.step(updates, self.trace).updates
        return Delta(self.batch, distinct=True)


class Group(Keeping):
    """A reduction that reads the rows of its groups from an arrangement. Its trace holds its output."""

    def __init__(self, reduce: Reduce, arranged: Arrange, trace: Trace):
        super().__init__(trace)
        self.reduce = reduce
        self.arranged = arranged

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        self.batch = self.reduce.step(deltas[0].updates, self.trace, self.arranged.trace).updates
        return Delta(self.batch, distinct=True)


class Multiplicity(Stateless):
    """Records as often as a function of their multiplicity says. Reads an arrangement whose key is the whole record."""

    def __init__(self, threshold: Threshold, arranged: Arrange):
        self.threshold = threshold
        self.arranged = arranged

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return Delta(self.threshold.step(deltas[0].updates, self.arranged.trace).updates, distinct=True)
