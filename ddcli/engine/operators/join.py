"""Arranging and joining: the two halves of every equi-join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, Keeping, Stateless, empty
from ddcli.engine.operators.linear import permute

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ddcli.engine.operators.linear import Lane
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace


class Arrange(Keeping):
    """Index a collection by key: its delta is the sorted batch `[key | value | time | diff]`, its trace the batches before.

    Readers of the same key share it; the batch enters the trace when all of them have stepped.
    """

    shared = True

    def __init__(self, lanes: Sequence[Lane], trace: Trace):
        super().__init__(trace)
        self.lanes = tuple(lanes)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = permute(deltas[0].updates, self.lanes, self.trace.nt + 1)
        self.batch = kernels.consolidate(updates)
        return Delta(self.batch, distinct=True)


class Entered(Stateless):
    """An arrangement from outside of a loop, read in it as it stands, in round 0 and every later one.

    Nothing is copied. Its new updates have no round and are fed in round 0; after that round they are read with the trace,
    which itself takes them in only when the loop is done.
    """

    def __init__(self, source: Joinable):
        self.source = source
        self.trace = EnteredTrace(source.trace)
        self.batch = self.trace.fresh

    def restart(self) -> None:
        """Read the source as of before its new updates: the loop's next interval, or outer round, begins."""
        self.batch = self.trace.fresh = self.trace.fresh[:0]

    def go_on(self, fresh: np.ndarray) -> None:
        """Read the source with its new updates: round 0 is over."""
        self.trace.fresh = fresh

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        self.batch = deltas[0].updates
        return deltas[0]

    def seal(self, interval: Interval) -> None:
        self.trace.fresh, self.batch = self.batch, self.batch[:0]


class EnteredTrace:
    """What a join reads of an arrangement that entered a loop: its trace, and the updates that it will take in next."""

    def __init__(self, outer: Readable):
        self.outer = outer
        self.nk, self.nv, self.nt = outer.nk, outer.nv, outer.nt
        self.fresh = empty(outer.nk + outer.nv + outer.nt + 1)

    @property
    def rows(self) -> int:
        return self.outer.rows + len(self.fresh)

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> list[np.ndarray]:
        """Return matrices that together hold each update whose key is in `updates`, sorted by key, exactly once; `spared` lanes are not looked at."""
        found = self.outer.matching(updates, spared)
        return [*found, self.fresh] if len(self.fresh) else found


class Readable(Protocol):
    """What a join needs of a trace: `nk` key lanes, `nv` value lanes, `nt` time lanes, and the rows of given keys."""

    nk: int
    nv: int
    nt: int

    @property
    def rows(self) -> int:
        """Return the number of updates."""

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> list[np.ndarray]:
        """Return matrices that together hold each update whose key is in `updates`, sorted by key, exactly once.

        Nobody looks at lanes that are `spared`: they may hold anything by which the rows are still sorted.
        """


class Joinable(Protocol):
    """An operator that a join can read: an arrangement, of this scope or from outside."""

    @property
    def trace(self) -> Readable:
        """Return the trace as of before the step."""


class Join(Stateless):
    """Join two arrangements by key: `dA join (B + dB)` and `A join dB`, with A and B as of the lower frontier.

    Bilinear, so nothing but the two traces is kept. `take` selects the lanes of the result from `[key | va | vb]`. A side that
    entered a loop has fewer time lanes than the other.
    """

    def __init__(self, left: Joinable, right: Joinable, take: Sequence[int]):
        self.left = left
        self.right = right
        self.nk = left.trace.nk
        self.nt = left.trace.nt, right.trace.nt
        self.take = np.array(take, np.int64)
        data, taken = self.nk + left.trace.nv, frozenset(take)
        self._spared = (
            [lane for lane in range(self.nk, data) if lane not in taken],
            [self.nk + at for at in range(right.trace.nv) if data + at not in taken],
        )
        # Two matches with equal data come of equal values on either side only where all lanes are kept.
        self._keeps_all = set(take) == set(range(self.nk + left.trace.nv + right.trace.nv))

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        left, right = deltas[0].updates, deltas[1].updates
        parts = []
        if len(left):
            others = self.right.trace.matching(left, self._spared[1])
            if len(right):
                others = [*others, right]
            if others:
                parts.append(kernels.join(left, others, self.nk, self.nt, self.take))
        if len(right) and self.left.trace.rows:
            parts.append(
                kernels.join(self.left.trace.matching(right, self._spared[0]), right, self.nk, self.nt, self.take)
            )
        if len(parts) == 1:
            alone = not self.left.trace.rows and not self.right.trace.rows
            return Delta(parts[0], distinct=self._keeps_all and alone)
        return Delta(np.concatenate(parts)) if parts else Delta(empty(len(self.take) + max(self.nt) + 1), distinct=True)
