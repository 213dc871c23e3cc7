"""The trace of one dataflow read in another: nothing is copied or sorted again, and each dataflow proceeds at its own pace.

The importing dataflow has taken the trace's updates up to some frontier. Its operators must see these and no others, however far
the trace has advanced; next they take the trace's updates beyond the frontier. Batches that reach beyond it are
neither merged nor advanced (a hold ensures that), so in them the times show which updates were taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.rounds import before, times_of
from ddcli.engine.times import LEAST, Frontier

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ddcli.engine.operators.join import Readable
    from ddcli.engine.trace.spine import Batch, Trace


class ImportedTrace:
    """The updates of `source` before `taken`, for readers at or after `since`.

    Older updates are advanced to `since`: the import begins with the contents as of then.
    """

    def __init__(self, source: Trace, since: Frontier, taken: Frontier):
        self.source = source
        self.nk, self.nv, self.nt = source.nk, source.nv, source.nt
        self._begin = since.as_time()
        self._taken = taken
        self._reach = self._whole_before(taken)
        self._hold = source.hold(since, self._reach)
        self._known: list[tuple[Batch, np.ndarray]] = []

    @property
    def rows(self) -> int:
        return sum(map(len, self.matrices()))

    def matrices(self) -> list[np.ndarray]:
        """Return matrices that together hold each update once."""
        found = []
        for batch, matrix in self._advanced():
            if batch.upper.dominates(self._reach):
                found.append(matrix)
            elif not self._taken.dominates(batch.lower):
                found.append(matrix[before(times_of(matrix, self.nt), self._taken)])
        return [matrix for matrix in found if len(matrix)]

    def batches_for(self, keys: np.ndarray) -> list[np.ndarray]:
        """Return matrices that together hold each update of the sorted, distinct `keys` exactly once."""
        return self.matrices()

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> list[np.ndarray]:
        """Return matrices that together hold each update whose key is in `updates`, sorted by key, exactly once."""
        return self.matrices()

    def next_before(self, upper: Frontier) -> np.ndarray:
        """Return the updates before `upper` that were not taken yet, consolidated."""
        found = []
        for batch, matrix in self._advanced():
            if not batch.upper.dominates(self._reach):
                times = times_of(matrix, self.nt)
                due = before(times, upper) & ~before(times, self._taken)
                found.append(matrix if due.all() else matrix[due])
        found = [matrix for matrix in found if len(matrix)]
        if len(found) < 2:
            return found[0] if found else np.empty((0, self.nk + self.nv + self.nt + 1), np.int64)
        return kernels.merge(found)

    def take(self, upper: Frontier) -> None:
        """Count the updates before `upper` as taken, and reduce the hold accordingly."""
        self._taken = upper
        self._reach = self._whole_before(upper)
        self._hold.advance(upper.join(Frontier([self._begin])), self._reach)

    def release(self) -> None:
        """Release the hold: there are no more readers."""
        self._hold.release()

    def _advanced(self) -> list[tuple[Batch, np.ndarray]]:
        """Return the source's batches with their updates, none before the beginning. A batch never changes."""
        known = {id(batch): (batch, matrix) for batch, matrix in self._known}
        self._known = [
            known.get(id(batch)) or (batch, kernels.advance(batch.matrix(), self._begin, self.nt))
            for batch in self.source.batches
        ]
        return self._known

    def _whole_before(self, taken: Frontier) -> Frontier:
        """Return the frontier F such that a batch has been taken wholly if its upper is at or before F.

        A time t is imported at t join the beginning. That is at or after an element of `taken` if t is, in those coordinates in
        which the beginning is not already: F has the least such t.
        """
        return Frontier(
            tuple(LEAST if start >= x else x for x, start in zip(element, self._begin, strict=True))
            for element in taken
        )


class FilteredTrace:
    """The rows of `source` that `keep` keeps, which reads the lanes `asked`, in their order. It is evaluated only for the keys that are looked up."""

    def __init__(self, source: Readable, keep: Callable[[np.ndarray], np.ndarray], asked: Collection[int]):
        self.source = source
        self.keep = keep
        self.asked = asked
        self.nk, self.nv, self.nt = source.nk, source.nv, source.nt

    @property
    def rows(self) -> int:
        """Return an upper bound of the number of updates."""
        return self.source.rows

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> list[np.ndarray]:
        """Return matrices that together hold each update whose key is in `updates`, sorted by key, exactly once; the `spared` lanes are not read."""
        keys = kernels.distinct_keys(updates, self.nk)
        found = self.source.matching(updates, [lane for lane in spared if lane not in self.asked])
        return self.kept([*map(kernels.matrix, found)], keys)

    def kept(self, matrices: list[np.ndarray], keys: np.ndarray) -> list[np.ndarray]:
        """Return the rows of the sorted, distinct `keys` that stay."""
        found = [kernels.gather(matrix, self.nk, keys) for matrix in matrices]
        return [self.keep(matrix) for matrix in found if len(matrix)]


class FilteredImport(FilteredTrace):
    """An imported trace without the records that a predicate drops."""

    def __init__(self, source: ImportedTrace, keep: Callable[[np.ndarray], np.ndarray]):
        super().__init__(source, keep, range(source.nk + source.nv))
        self._import = source

    def batches_for(self, keys: np.ndarray) -> list[np.ndarray]:
        """Return matrices that together hold each update of the sorted, distinct `keys` exactly once."""
        return self.kept(self._import.batches_for(keys), keys)

    def next_before(self, upper: Frontier) -> np.ndarray:
        """Return the updates before `upper` that were not taken yet, consolidated."""
        return self.keep(self._import.next_before(upper))

    def take(self, upper: Frontier) -> None:
        """Count the updates before `upper` as taken."""
        self._import.take(upper)

    def release(self) -> None:
        """Release the hold."""
        self._import.release()


class UnitedImport:
    """All shards of an imported arrangement as one."""

    def __init__(self, shards: Sequence[ImportedTrace | FilteredImport]):
        first = shards[0]
        self.shards = shards
        self.nk, self.nv, self.nt = first.nk, first.nv, first.nt

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    def batches_for(self, keys: np.ndarray) -> list[np.ndarray]:
        """Return matrices that together hold each update of the sorted, distinct `keys` exactly once."""
        return [matrix for shard in self.shards for matrix in shard.batches_for(keys)]

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> list[np.ndarray]:
        """Return matrices that together hold each update whose key is in `updates`, sorted by key, exactly once."""
        return [matrix for shard in self.shards for matrix in shard.matching(updates, spared)]

    def take(self, upper: Frontier) -> None:
        """Count the updates before `upper` as taken."""
        for shard in self.shards:
            shard.take(upper)
