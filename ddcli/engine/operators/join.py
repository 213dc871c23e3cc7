"""Arranging and joining: the two halves of every equi-join."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, Keeping, Stateless, empty
from ddcli.engine.operators.linear import permute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.operators.base import Interval
    from ddcli.engine.operators.linear import Lane


class Arrange(Keeping):
    """Index a collection by key: its delta is the sorted batch `[key | value | time | diff]`, its trace the batches before.

    Readers of the same key share it; the batch enters the trace when all of them have stepped.
    """

    def __init__(self, lanes: Sequence[Lane], trace: Trace):
        super().__init__(trace)
        self.lanes = tuple(lanes)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = permute(deltas[0].updates, self.lanes, self.trace.nt + 1)
        self.batch = kernels.consolidate(updates)
        return Delta(self.batch, distinct=True)


class Join(Stateless):
    """Join two arrangements by key: `dA join (B + dB)` and `A join dB`, with A and B as of the lower frontier.

    Bilinear, so nothing but the two traces is kept. `take` selects the lanes of the result from `[key | va | vb]`.
    """

    def __init__(self, left: Arrange, right: Arrange, take: Sequence[int]):
        self.left = left
        self.right = right
        self.nk = left.trace.nk
        self.nt = left.trace.nt
        self.take = np.array(take, np.int64)
        # Two matches with equal data come of equal values on either side only where all lanes are kept.
        self._keeps_all = set(take) == set(range(self.nk + left.trace.nv + right.trace.nv))

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        left, right = deltas[0].updates, deltas[1].updates
        parts = []
        if len(left):
            others = self.right.trace.matching(left)
            if len(right):
                others = [*others, right]
            if others:
                parts.append(kernels.join(left, others, self.nk, self.nt, self.take))
        if len(right) and self.left.trace.batches:
            parts.append(kernels.join(self.left.trace.matching(right), right, self.nk, self.nt, self.take))
        if len(parts) == 1:
            return Delta(parts[0], distinct=self._keeps_all and not self.left.trace.batches + self.right.trace.batches)
        return Delta(np.concatenate(parts)) if parts else Delta(empty(len(self.take) + self.nt + 1), distinct=True)
