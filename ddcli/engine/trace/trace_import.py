"""Traces that are not a dataflow's own: one that another dataflow keeps, one without the records that a predicate drops, and one read near some keys alone.

Nothing is copied or sorted again, and each dataflow proceeds at its own pace. The importing dataflow has taken the trace's updates up to some frontier. Its operators must see these and
no others, however far the trace has advanced; next they take the trace's updates beyond the frontier. Batches that reach beyond it are
neither merged nor advanced (a hold ensures that), so in them the times show which updates were taken.

Of large batches in files only the rows near some *places* are read. A place is a row's first lanes, the key and some more. Ranges of places, one for each key, are inclusive at both ends;
the least and the greatest integers in the lanes behind the key span the whole key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, Operator
from ddcli.engine.rounds import before, times_of
from ddcli.engine.times import LEAST, Frontier
from ddcli.engine.trace.spine import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.join import Readable
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Batch


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


LOWEST, HIGHEST = -(2**63), 2**63 - 1


@runtime_checkable
class RangedBatch(Protocol):
    """A batch from which a part of a key can be read: one of the store, which the engine doesn't import."""

    def limits(self, first: Lanes, last: Lanes, nk: int) -> tuple[Lanes, Lanes] | None:
        """Return wider ranges of places that are cheap to read; None where the whole batch is in memory."""

    def in_ranges(self, first: Lanes, last: Lanes, nk: int) -> Lanes:
        """Return a sorted matrix with every update in some ranges of places, of ascending keys; others may be in it too."""


class Nearby(NamedTuple):
    """Matrices that together hold each update from `low` to `high` exactly once: a row for each key, ascending; other updates may be in them too."""

    matrices: list[Lanes]
    low: Lanes
    high: Lanes

    def bounds(self, sources: Sequence[Lanes]) -> Lanes:
        """Return the bounds of these rows in the matrices, or in further sources, as `kernels.locate` does."""
        found, _ = kernels.locate(self.low, sources)
        found[:, 1::2] = kernels.locate(self.high, sources)[0][:, 1::2]
        return found

    def edges(self, nk: int) -> Lanes:
        """Return for each key 1 if it may have rows before these, 2 behind them, 3 for both."""
        found: Lanes = (self.low[:, nk:] != LOWEST).any(axis=1) + 2 * (self.high[:, nk:] != HIGHEST).any(axis=1)
        return found


def nearby(trace: object, first: Lanes, last: Lanes, nk: int) -> Nearby | None:
    """Return the rows near ranges of places, one for each key; None if a read of whole keys costs no more."""
    if not isinstance(trace, Trace):
        return None
    ranged = [batch for batch in trace.batches if isinstance(batch, RangedBatch)]
    limits = [found for batch in ranged if (found := batch.limits(first, last, nk)) is not None]
    if not limits:
        return None
    low, high = limits[0]
    for lower, upper in limits[1:]:
        low = np.where(_before(low, lower)[:, None], lower, low)
        high = np.where(_before(upper, high)[:, None], upper, high)
    return within(trace, np.ascontiguousarray(low), np.ascontiguousarray(high), nk)


def within(trace: object, low: Lanes, high: Lanes, nk: int) -> Nearby:
    """Return the rows in ranges of places, of a trace for which `nearby` returned rows."""
    assert isinstance(trace, Trace)
    keys = np.ascontiguousarray(low[:, :nk])
    matrices = [
        batch.in_ranges(low, high, nk) if isinstance(batch, RangedBatch) else batch.for_keys(keys)
        for batch in trace.batches
    ]
    return Nearby([*matrices, *trace.runs], low, high)


def _before(one: Lanes, other: Lanes) -> NDArray[np.bool_]:
    """Return for each pair of rows whether the first matrix's row is before the second's."""
    less, same = np.zeros(len(one), np.bool_), np.ones(len(one), np.bool_)
    for lane in range(one.shape[1]):
        less |= same & (one[:, lane] < other[:, lane])
        same &= one[:, lane] == other[:, lane]
    return less


class Imported(Operator):
    """Pass on the input, the updates of the trace beyond those taken so far; count them as taken when all readers are done."""

    shared = True

    def __init__(self, trace: ImportedTrace | FilteredImport | UnitedImport):
        self.trace = trace

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return deltas[0]

    def close(self, interval: Interval) -> None:
        self.trace.take(interval.upper)


class Filtered(Operator):
    """Pass on the rows of an arrangement's batch that `keep` keeps, which reads the lanes `asked`, in their order; its trace is filtered the same way."""

    def __init__(self, source: Readable, keep: Callable[[np.ndarray], np.ndarray], asked: Collection[int]):
        self.trace = FilteredTrace(source, keep, asked)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        return Delta(self.trace.keep(deltas[0].updates), distinct=True)
