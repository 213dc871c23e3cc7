"""The trace of an arrangement: a spine of logarithmically many batches, merged a little with each insertion.

Sealed batches are only ever replaced by their merge, which accumulates to the same at every time at or after
`since`; so the batches that a reader took from a trace stay right after any merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.times import Frontier
from ddcli.engine.trace import policy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy as np

    from ddcli.engine.kernels import Rows
    from ddcli.engine.lanes import Layout


class Batch(Protocol):
    """The interface of batches: an interval, a size and rows."""

    @property
    def lower(self) -> Frontier:
        """Return the frontier that every time in the batch is at or after."""

    @property
    def upper(self) -> Frontier:
        """Return the frontier that no time in the batch is at or after, before compaction moved it."""

    @property
    def rows(self) -> int:
        """Return the number of updates."""

    def matrix(self) -> np.ndarray:
        """Return all updates, `[key | value | time | diff]`, sorted by all lanes but the last."""

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        """Return a sorted matrix with every update of the sorted, distinct `keys`; others may be in it too.

        The `spared` lanes are not read: they may have any content that leaves the rows sorted.
        """

    def release(self) -> None:
        """Release loaded rows that can be loaded again."""


@dataclass(slots=True, eq=False)
class MemoryBatch:
    """A batch whose updates are in memory, as a matrix or `Uniform`. Immutable."""

    updates: kernels.Rows
    lower: Frontier
    upper: Frontier

    @property
    def rows(self) -> int:
        return len(self.updates)

    def matrix(self) -> np.ndarray:
        return kernels.matrix(self.updates)

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        return self.updates.of(keys).matrix() if isinstance(self.updates, kernels.Uniform) else self.updates

    def release(self) -> None:
        """Do nothing: the updates are only in memory."""


@dataclass(slots=True, eq=False)
class _MergeInProgress:
    """A merge under way: its two batches stay readable until it is done."""

    older: MemoryBatch
    younger: MemoryBatch
    merge: kernels.Merge


class Trace:
    """The updates of an arrangement with `nk` key, `nv` value and `nt` time lanes.

    `since` is the read frontier: no reader reads a time before it, so times may be advanced to it. It is the meet of the frontiers of the
    operators that read the trace and of all holds. `through` is the meet of the holds' physical frontiers: batches that reach
    beyond it are not merged. `upper` is where the next batch begins. All are over the input's coordinates of time; in a loop, time
    lanes for the rounds follow those. `layout` holds the types of the lanes of key and value, which writing rows to disk needs.
    """

    def __init__(
        self,
        nk: int,
        nv: int,
        nt: int,
        *,
        since: Frontier,
        batches: Sequence[Batch] = (),
        layout: Layout | None = None,
    ):
        self.nk = nk
        self.nv = nv
        self.nt = nt
        self.layout = layout
        self.since = since
        self.through = Frontier()
        self._own = since
        self._holds: list[TraceHold] = []
        self.upper = batches[-1].upper if batches else since
        self.batches: list[Batch] = list(batches)
        self._merges: list[_MergeInProgress] = []
        self._runs: list[np.ndarray] = []
        self._fresh: list[np.ndarray] | None = None
        self._resident = sum(isinstance(batch, MemoryBatch) for batch in self.batches)
        self._settled = 0
        self._uneven = True
        """True: adjacent batches may be due to be merged."""
        self._fuel = 0
        self._waiting = 0
        """The number of the youngest batches, which wait to be merged together."""
        self.fetch: Callable[[Sequence[Batch], np.ndarray, Collection[int]], None] | None = None
        """Called with the batches, the keys and the spared lanes of a lookup before it: where each batch is a request, it may send these together."""
        self.shares_tails = False
        """True: batches whose updates share times and diff are `Uniform`, as all readers of `matching` can read these."""
        self._settle()

    @property
    def rows(self) -> int:
        """Return the number of updates held."""
        return sum(batch.rows for batch in self.batches) + sum(len(run) for run in self._runs)

    @property
    def in_memory(self) -> bool:
        """Return whether all batches are in memory."""
        return self._resident == len(self.batches)

    def matrices(self) -> list[np.ndarray]:
        """Return the whole matrix of every batch."""
        if self.shares_tails or self._resident != len(self.batches):
            return [batch.matrix() for batch in self.batches] + self._runs
        # Many traces of a loop are read in each of its rounds: a call for each batch would be noticed.
        return [batch.updates for batch in self.batches] + self._runs  # type: ignore[attr-defined]

    def batches_for(self, keys: np.ndarray, spared: Collection[int] = ()) -> list[np.ndarray]:
        """Return matrices that together hold each update of the sorted, distinct `keys` exactly once; the `spared` lanes are not read."""
        if self.fetch is not None:
            self.fetch(self.batches, keys, spared)
        return [*(batch.for_keys(keys, spared) for batch in self.batches), *self._runs]

    def histories_for(self, keys: np.ndarray) -> list[np.ndarray]:
        """Return the result of `batches_for` without the runs of this interval: it does not change until the interval is closed."""
        if self.fetch is not None:
            self.fetch(self.batches, keys, ())
        return [batch.for_keys(keys) for batch in self.batches]

    @property
    def runs(self) -> list[np.ndarray]:
        """Return the matrices that were appended in this interval."""
        return self._runs

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> Sequence[Rows]:
        """Return matrices, or rows by their parts, that together hold each update whose key is in `updates`, sorted by key, exactly once.

        The `spared` lanes are not read.
        """
        if self._resident != len(self.batches):
            return self.batches_for(kernels.distinct_keys(updates, self.nk), spared)
        # In memory a whole batch costs nothing, and a reader finds keys in a large one quicker for all of them at once.
        found: list[Rows] = [batch.updates for batch in self.batches]  # type: ignore[attr-defined]
        found += self._runs
        if len(updates) <= kernels.FEW:
            return found
        large = [at for at, rows in enumerate(found) if len(rows) > policy.LARGE * (len(updates) + 1)]
        if large:
            keys = kernels.distinct_keys(updates, self.nk)
            bounds, _ = kernels.locate(keys, [kernels.leading(found[at]) for at in large])
            for place, at in enumerate(large):
                found[at] = kernels.rows_within(found[at], bounds[:, 2 * place : 2 * place + 2].copy())
        return found

    def resident(self) -> list[Rows]:
        """Return the updates of the batches that are only in memory."""
        return [batch.updates for batch in self.batches if isinstance(batch, MemoryBatch)]

    def release(self) -> None:
        """Release the loaded rows of batches in files."""
        for batch in self.batches:
            batch.release()

    def set_logical_compaction(self, since: Frontier) -> None:
        """Allow times before `since` to be advanced to it, as far as the operators are concerned; it only ever moves forward."""
        self._own = since
        if self._holds:
            self.claim()
        else:
            self.since = since

    def hold(self, since: Frontier, through: Frontier) -> TraceHold:
        """Return a new claim: times from `since` on, which is not before the trace's, stay distinct, and batches beyond `through` stay unmerged."""
        found = TraceHold(self, since, through)
        self._holds.append(found)
        self.claim()
        return found

    def unhold(self, hold: TraceHold) -> None:
        """Forget a claim."""
        self._holds = [other for other in self._holds if other is not hold]
        self.claim()

    def claim(self) -> None:
        """Compute `since` and `through` again, and merge the batches that were held apart and no longer are.

        They are merged at once, because pair by pair it would take long: their merging was paid for when they came, and not done then.
        """
        held = len(self.batches) - self._free()
        self.since = Frontier(time for since in (self._own, *(hold.since for hold in self._holds)) for time in since)
        self.through = Frontier(time for hold in self._holds for time in hold.through)
        self._uneven, self._waiting = True, 0
        free = self._free()
        first = max(len(self.batches) - held, self._settled)
        if free - first > 1:
            self._unite(first, free)

    def _free(self) -> int:
        """Return how many batches, from the oldest on, may be merged."""
        free = len(self.batches)
        while self.through and free and not self.batches[free - 1].upper.dominates(self.through):
            free -= 1
        return free

    def insert(self, updates: Rows, upper: Frontier) -> None:
        """Append the consolidated `updates` of [self.upper, upper) and pay for merging in proportion to them."""
        self._take_in([updates], upper)

    def _take_in(self, runs: Sequence[Rows], upper: Frontier) -> None:
        """Append the sum of consolidated runs of [self.upper, upper), and pay for merging in proportion to them.

        Batches of a few rows wait for each other. They, and those that are due and small enough, are merged with the next insertion.
        """
        lower, self.upper = self.upper, upper
        rows = len(runs[0]) if len(runs) == 1 else sum(map(len, runs))
        if policy.waits(rows, self._waiting) and not self._holds:
            updates = _sum_of(runs)
            if len(updates):
                self.batches.append(MemoryBatch(updates, lower, upper))
                self._resident += 1
                self._waiting += 1
            return
        if not rows:
            return
        batches, fuel = self.batches, policy.fuel(rows)
        if self._holds:
            # A reader's claim may have changed by now.
            self._append(_sum_of(runs), lower, upper)
            self._uneven = True
            self._fold(fuel)
        else:
            waited = len(batches) - self._waiting
            fuel += self._waiting * policy.LEAST_FUEL
            self._waiting = 0
            first = self._first_due(waited, rows + sum(batch.rows for batch in batches[waited:]), fuel)
            if first < len(batches):
                self._unite(first, len(batches), runs)
            else:
                self._append(_sum_of(runs), lower, upper)
            # Only the youngest pair can have become due.
            last = len(batches) - 2
            if last >= self._settled and batches[last].rows < policy.RATIO * batches[last + 1].rows:
                self._uneven = True
        if self._merges or self._uneven:
            self._work(fuel)

    def _append(self, updates: Rows, lower: Frontier, upper: Frontier) -> None:
        if len(updates):
            self.batches.append(MemoryBatch(updates, lower, upper))
            self._resident += 1

    def append(self, updates: np.ndarray) -> None:
        """Append the consolidated updates of one round of a loop unmerged, to be read from now on; `advance_frontier` ends the interval."""
        if len(updates):
            self._runs.append(updates)
            if self._fresh is not None:
                self._fresh.append(updates)
            if len(self._runs) > policy.MOST_RUNS:
                self._runs = _join_smallest(self._runs, len(self._runs) // 2)

    def fold_runs(self, keys: int) -> None:
        """Merge the smallest runs if to look up `keys` keys in each of them takes longer than the merge."""
        count = policy.to_fold([len(run) for run in self._runs], keys)
        if count > 1:
            self._runs = _join_smallest(self._runs, count)

    def resume(self, runs: Sequence[np.ndarray]) -> None:
        """Take over runs that were appended elsewhere in this interval; from now on `fresh` has the runs added to them."""
        self._runs = list(runs)
        if len(runs) > policy.MOST_RUNS:
            self._runs = _join_smallest(self._runs, len(runs) // 2)
        self._fresh = []

    @property
    def fresh(self) -> list[np.ndarray]:
        """Return the runs that were appended since the trace was resumed."""
        return self._fresh or []

    def advance_frontier(self, upper: Frontier) -> None:
        """Turn the appended runs into the batches of [self.upper, upper).

        Few rows are merged at once. Of many rows, only the smaller runs are: later insertions merge the others.
        """
        if not self._runs:
            return
        runs, self._runs = self._runs, []
        count = policy.to_join([len(run) for run in runs])
        if count == len(runs):
            self._take_in(runs, upper)
            return
        runs = _join_smallest(runs, count)
        self._waiting = 0
        self.batches.extend(MemoryBatch(run, self.upper, upper) for run in runs)
        self.upper = upper
        self._resident += len(runs)
        self._start_merges()

    def _fold(self, fuel: int) -> None:
        """Merge the youngest batches that are due and small enough to be merged at once."""
        free = self._free()
        if free - self._settled < 2:
            return
        first = self._first_due(free - 1, self.batches[free - 1].rows, fuel)
        if first < free - 1:
            self._unite(first, free)

    def _first_due(self, end: int, rows: int, fuel: int) -> int:
        """Return the first batch before `end` to merge at once with `rows` younger rows: from it on all are unsettled."""
        first, limit = end, max(fuel, policy.AT_ONCE * policy.LEAST_FUEL)
        while first > self._settled and policy.joins(size := self.batches[first - 1].rows, rows, limit):
            first -= 1
            rows += size
        return first

    def _work(self, fuel: int) -> None:
        """Continue the merges of larger batches, `fuel` rows each, and begin those that are due."""
        if self._uneven:
            self._start_merges()
        self._fuel += fuel
        if self._fuel < policy.TOGETHER * policy.LEAST_FUEL:
            return
        fuel, self._fuel = self._fuel, 0
        while self._merges:
            finished = [merging for merging in self._merges if merging.merge.work(fuel)]
            if not finished:
                return
            for merging in finished:
                self._merges.remove(merging)
                at = next(at for at, batch in enumerate(self.batches) if batch is merging.older)
                self._replace(at, at + 2, merging.merge.result, self.batches[at + 1].upper, owned=True)
            self._start_merges()

    def _start_merges(self) -> None:
        while (at := policy.next_merge(self._sizes())) is not None:
            older, younger = self.batches[self._settled + at : self._settled + at + 2]
            assert isinstance(older, MemoryBatch)
            assert isinstance(younger, MemoryBatch)
            self._merges.append(_MergeInProgress(older, younger, kernels.Merge(older.matrix(), younger.matrix())))
            self._settle()
        self._uneven = False

    def _sizes(self) -> list[int]:
        """Return the rows of the batches that may be merged."""
        return [batch.rows for batch in self.batches[self._settled : self._free()]]

    def _unite(self, start: int, stop: int, runs: Sequence[Rows] = ()) -> None:
        """Replace adjacent batches by their merge, with runs of [their upper, self.upper) behind the youngest."""
        matrices = [*(batch.matrix() for batch in self.batches[start:stop]), *map(kernels.matrix, runs)]
        merged = kernels.merge(matrices)
        upper = self.upper if runs else self.batches[stop - 1].upper
        self._replace(start, stop, merged, upper, owned=id(merged) not in map(id, matrices))

    def _replace(self, start: int, stop: int, merged: np.ndarray, upper: Frontier, *, owned: bool) -> None:
        """Replace adjacent batches by a merge, which may also have rows up to `upper`; an `owned` one has no other reader."""
        # Advance after merging: an update and its retraction at a later time become equal only then, and cancel. A merge that reaches
        # beyond a hold (it was under way already) is not advanced: its holder knows by time which rows were read.
        if self.since.elements and (not self.through.elements or upper.dominates(self.through)):
            merged = kernels.advance(merged, self._oldest(), self.nt, owned=owned)
        lower = self.batches[start].lower
        rows = kernels.shared(merged, self.nt) if self.shares_tails else merged
        self.batches[start:stop] = [MemoryBatch(rows, lower, upper)] if len(merged) else []
        self._resident += bool(len(merged)) - (stop - start)
        self._settle()

    def _oldest(self) -> tuple[int, ...]:
        """Return the time to advance to. `since` has no rounds, so rounds are never advanced."""
        time = self.since.as_time()
        return time + (0,) * (self.nt - len(time))

    def _settle(self) -> None:
        """Compute how many of the oldest batches stay unmerged: those in files, and those up to the last merge under way."""
        if not self._merges and self._resident == len(self.batches):
            self._settled = 0
            return
        busy = {id(merging.younger) for merging in self._merges}
        alone = [at for at, batch in enumerate(self.batches) if id(batch) in busy or not isinstance(batch, MemoryBatch)]
        self._settled = alone[-1] + 1 if alone else 0


class TraceHold:
    """A claim: the trace keeps times from `since` on distinct, and merges no batch that reaches beyond `through`.

    A closed frontier claims nothing. Both only move forward. Where two readers hold a trace, the meet of their claims counts.
    """

    __slots__ = ("since", "through", "trace")

    def __init__(self, trace: Trace, since: Frontier, through: Frontier):
        self.trace = trace
        self.since = since
        self.through = through

    def advance(self, since: Frontier, through: Frontier) -> None:
        """Claim less."""
        self.since, self.through = since, through
        self.trace.claim()

    def release(self) -> None:
        """End the claim."""
        self.trace.unhold(self)


def _sum_of(runs: Sequence[Rows]) -> Rows:
    """Return the sum of consolidated updates; a single one as it is."""
    return runs[0] if len(runs) == 1 else kernels.merge([*map(kernels.matrix, runs)])


def _join_smallest(runs: list[np.ndarray], count: int) -> list[np.ndarray]:
    """Merge the `count` smallest of sorted matrices, taken out of `runs`, so that merged ones are released; return all, the largest first."""
    runs.sort(key=len, reverse=True)
    if count < 2:
        return runs
    small = runs[-count:]
    del runs[-count:]
    runs.append(kernels.merge_out_of(small))
    runs.sort(key=len, reverse=True)
    return runs
