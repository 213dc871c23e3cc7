"""The trace of an arrangement: a spine of logarithmically many batches, merged a little with each insertion.

Sealed batches are only ever replaced by their merge, which holds the same accumulations at every time at or after
`since`; so a reader that took the batches of a trace keeps a true picture whatever is merged afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.arrangement import policy
from ddcli.engine.arrangement.batch import Batch, MemoryBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ddcli.engine.times import Frontier


@dataclass(slots=True)
class _Merging:
    """A merge under way: its two batches stay readable until it is done."""

    older: MemoryBatch
    younger: MemoryBatch
    merge: kernels.Merge


class Trace:
    """The readable whole of an arrangement with `nk` key, `nv` value and `nt` time lanes.

    `since` is the read frontier: no reader asks for a time before it, so times may be advanced to it. `upper` is where
    the next batch begins.
    """

    def __init__(self, nk: int, nv: int, nt: int, *, since: Frontier, batches: Sequence[Batch] = ()):
        self.nk = nk
        self.nv = nv
        self.nt = nt
        self.since = since
        self.upper = batches[-1].upper if batches else since
        self.batches: list[Batch] = list(batches)
        self._merges: list[_Merging] = []

    @property
    def rows(self) -> int:
        """Return the number of updates held."""
        return sum(batch.rows for batch in self.batches)

    def matrices(self) -> list[np.ndarray]:
        """Return every batch whole."""
        return [batch.matrix() for batch in self.batches]

    def batches_for(self, keys: np.ndarray) -> list[np.ndarray]:
        """Return matrices that together hold each update of the sorted, distinct `keys` exactly once."""
        return [batch.for_keys(keys) for batch in self.batches]

    def set_logical_compaction(self, since: Frontier) -> None:
        """Let times before `since` become equal; it only ever moves forward."""
        self.since = since

    def insert(self, updates: np.ndarray, upper: Frontier) -> None:
        """Append the consolidated `updates` of [self.upper, upper) and pay for merging in proportion to them."""
        lower, self.upper = self.upper, upper
        if len(updates):
            self.batches.append(MemoryBatch(updates, lower, upper))
            self._work(policy.fuel(len(updates)))

    def _work(self, fuel: int) -> None:
        self._start_merges()
        while self._merges:
            finished = [merging for merging in self._merges if merging.merge.work(fuel)]
            for merging in finished:
                self._merges.remove(merging)
                self._replace(merging)
            if not finished:
                return
            self._start_merges()

    def _start_merges(self) -> None:
        while True:
            under_way = {id(batch) for merging in self._merges for batch in (merging.older, merging.younger)}
            busy = frozenset(
                at
                for at, batch in enumerate(self.batches)
                if id(batch) in under_way or not isinstance(batch, MemoryBatch)
            )
            at = policy.next_merge([batch.rows for batch in self.batches], busy)
            if at is None:
                return
            older, younger = self.batches[at], self.batches[at + 1]
            assert isinstance(older, MemoryBatch)
            assert isinstance(younger, MemoryBatch)
            self._merges.append(_Merging(older, younger, kernels.Merge(older.updates, younger.updates)))

    def _replace(self, merging: _Merging) -> None:
        at = next(at for at, batch in enumerate(self.batches) if batch is merging.older)
        # Advance after merging: an update and its retraction at a later time become equal only then, and cancel.
        merged = (
            kernels.advance(merging.merge.result, self.since.as_time(), self.nt) if self.since else merging.merge.result
        )
        whole = MemoryBatch(merged, merging.older.lower, merging.younger.upper)
        self.batches[at : at + 2] = [whole] if len(merged) else []
