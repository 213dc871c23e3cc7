"""Current tables: rows that set a key's value, or whole tables, become the updates of a collection with one value for each key, or of the last table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels.upsert import upsert_rows
from ddcli.engine.operators.base import Delta, StatefulOperator
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Trace


class KeyedTable(StatefulOperator):
    """A collection of one row for each key, which is its only state. At each of the `truncations`, pairs of time and order, all keys change.

    Time has one coordinate.
    """

    shared = True

    def __init__(self, trace: Trace, truncations: Sequence[tuple[int, int]]):
        assert trace.nt == 1, "upserts at times that are not ordered have no last one"
        super().__init__(trace)
        self.truncations = truncations

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Return the interval's only rounds where there are truncations: they change keys without new rows."""
        return [interval.rounds] if any(interval.has((time,)) for time, _ in self.truncations) else []

    def before(self, updates: np.ndarray) -> np.ndarray:
        """Return `[key | value | 1]` for each of the keys, as they are before the interval."""
        data = self.trace.nk + self.trace.nv
        keys = kernels.distinct_keys(updates, self.trace.nk)
        sources = self.trace.batches_for(keys)
        if not sources:
            return np.empty((0, data + 1), np.int64)
        found = kernels.gather_bounds(sources, kernels.locate(keys, sources)[0])
        return kernels.consolidate(kernels.take(found, [*range(data), data + 1]))


CORRECTS, NOTHING_LEFT = 2, 4
"""Values of `present` beside 0 and 1: see `OrderedUpsert`."""


class Upsert(KeyedTable):
    """Turn rows `[key | value | present | order | time | 1]` into the updates of a collection of one value for each key.

    At each time the row of a key with the greatest `order` decides the key's value from then on: the row's value, or none where
    `present` is 0. For different rows of one order, `tied` returns the error for one of them; without it their
    content decides. At each of the `truncations`, pairs of time and order in any interval, all keys lose their values. Time has one
    coordinate. The trace holds the result, and is the only state: a key's value before
    the interval is the sum of its updates there.
    """

    def __init__(
        self,
        trace: Trace,
        tied: Callable[[np.ndarray], Exception] | None = None,
        truncations: Sequence[tuple[int, int]] = (),
    ):
        super().__init__(trace, truncations)
        self.tied = tied
        nk, data = trace.nk, trace.nk + trace.nv
        present, order, time = range(data, data + 3)
        # The content of rows of one order decides: the result must not depend on the order in which they came.
        self._by = [*range(nk), time, order, present, *range(nk, data)]

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = deltas[0].updates
        if truncations := [each for each in self.truncations if interval.has((each[0],))]:
            updates = np.concatenate([updates, *self._truncated(updates, truncations)])
        updates = kernels.sort_by(updates, self._by)
        nk, nv = self.trace.nk, self.trace.nv
        if self.tied is not None:
            self._refuse_ties(updates, self.tied)
        before = self.before(updates)
        out = np.empty((2 * len(updates), nk + nv + 2), np.int64)
        rows = upsert_rows(updates, before, nk, nv, out)
        if rows < 0:
            row = updates[-1 - rows].tolist()
            raise EngineError(
                f"an upsert has diff {row[-1]}, or its key has several values already; its lanes are {row}",
                hint="upserts come once each, with diff 1; to take one back, delete the key or give it another value",
            )
        self.batch = kernels.consolidate(out[:rows])
        return Delta(self.batch, distinct=True)

    def _truncated(self, updates: np.ndarray, truncations: Sequence[tuple[int, int]]) -> Iterator[np.ndarray]:
        """Yield for each truncation a deletion for every key, which has no effect on keys without a value."""
        nk, data = self.trace.nk, self.trace.nk + self.trace.nv
        known = np.concatenate([np.ascontiguousarray(matrix[:, :nk]) for matrix in [updates, *self.trace.matrices()]])
        keys = kernels.distinct_keys(kernels.sort_by(known, range(nk)), nk)
        rows = np.zeros((len(keys), data + 4), np.int64)
        rows[:, :nk], rows[:, -1] = keys, 1
        for time, order in truncations:
            at = rows.copy()
            at[:, data + 1], at[:, data + 2] = order, time
            yield at

    def _refuse_ties(self, updates: np.ndarray, tied: Callable[[np.ndarray], Exception]) -> None:
        """Raise the error for the first row that differs from one of its order before it."""
        nk, data = self.trace.nk, self.trace.nk + self.trace.nv
        present, order, time = range(data, data + 3)
        same = np.ones(max(len(updates) - 1, 0), np.bool_)
        for lane in (*range(nk), time, order):
            same &= updates[1:, lane] == updates[:-1, lane]
        rows = np.flatnonzero(same) + 1
        for row in rows.tolist():
            now, before = updates[row], updates[row - 1]
            if now[present] != before[present] or (now[present] and (now[nk:data] != before[nk:data]).any()):
                raise tied(now)


class OrderedUpsert(KeyedTable):
    """Turn rows `[key | value | present | order | moment | sequence | time | 1]` into the updates of a collection of one row for each key.

    At each time a key's record is, among all its rows up to then, the one with the greatest `order`; among equal ones that with the
    latest `moment`, of those the last by `sequence`. The record has `present`, `order` and `moment`: a deletion
    is kept too, with its order, so an older row doesn't revive the key. For different rows with all three
    the same `tied` returns the error for one of them. At each of the `truncations`, pairs of time and order, all known keys
    get a deletion of that order. A row whose `present` has `CORRECTS` added states the newest of a key's earlier rows, in the place of the
    record so far; with `NOTHING_LEFT` there is none. Time has one coordinate. The trace holds the result, and
    is the only state.
    """

    def __init__(
        self,
        trace: Trace,
        tied: Callable[[np.ndarray], Exception],
        truncations: Sequence[tuple[int, int]] = (),
    ):
        super().__init__(trace, truncations)
        self.tied = tied
        self._data = trace.nk + trace.nv
        self._newer = [self._data - 2, self._data - 1]
        self._by = [*range(trace.nk), self._data + 1, *self._newer, self._data, *range(trace.nk, self._data - 2)]

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        nk, nv = self.trace.nk, self.trace.nv
        updates = deltas[0].updates
        if truncations := [each for each in self.truncations if interval.has((each[0],))]:
            updates = np.concatenate([updates, *(self._truncated(updates, *each) for each in truncations)])
        updates = kernels.sort_by(updates, self._by)
        self._refuse_ties(updates)
        before = self.before(updates)
        rows = self._newest(updates, before)
        out = np.empty((2 * len(rows), nk + nv + 2), np.int64)
        count = upsert_rows(rows, before, nk, nv, out)
        assert count >= 0, "a key has several records"
        self.batch = kernels.consolidate(out[:count])
        return Delta(self.batch, distinct=True)

    def _refuse_ties(self, updates: np.ndarray) -> None:
        """Raise the error for the first row that differs from one as new as it."""
        nk, data = self.trace.nk, self._data
        as_new = [*range(nk), *self._newer, data, data + 1]
        same = (updates[1:, as_new] == updates[:-1, as_new]).all(axis=1)
        for row in (np.flatnonzero(same) + 1).tolist():
            now, last = updates[row], updates[row - 1]
            if now[data - 3] != last[data - 3] or (now[data - 3] and (now[nk:data] != last[nk:data]).any()):
                raise self.tied(now)

    def _newest(self, updates: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Return the sorted rows that are not older than a row before them, in the form of the kernel of upserts: each present."""
        nk, data = self.trace.nk, self._data
        first = np.ones(len(updates), np.bool_)
        first[1:] = (updates[1:, :nk] != updates[:-1, :nk]).any(axis=1)
        key, starts = np.cumsum(first) - 1, np.flatnonzero(first)
        least = np.full((len(starts), 2), np.iinfo(np.int64).min)
        if len(before):
            bounds = kernels.locate(np.ascontiguousarray(updates[starts, :nk]), [before])[0]
            corrected = np.maximum.reduceat(updates[:, data - 3], starts) >= CORRECTS
            known = (bounds[:, 1] > bounds[:, 0]) & ~corrected
            least[known] = before[bounds[known, 0]][:, self._newer]
        # Ranks that ascend from key to key: so one running maximum serves all keys.
        ranks = _ranks(np.concatenate([least, updates[:, self._newer]]))
        floor, mine = ranks[: len(least)], ranks[len(least) :]
        spread = key * (len(ranks) + 1)
        newest = np.maximum.accumulate(np.maximum(spread + mine, spread + floor[key]))
        rows = updates[spread + mine == newest]
        found = np.empty((len(rows), data + 4), np.int64)
        found[:, :data] = rows[:, :data]
        found[:, data], found[:, data + 1] = rows[:, data - 3] != NOTHING_LEFT, 0
        found[:, data - 3] &= 1
        found[:, data + 2 :] = rows[:, data + 1 :]
        return found

    def _truncated(self, updates: np.ndarray, time: int, order: int) -> np.ndarray:
        """Return a deletion for each known key, at a time and with an order."""
        nk, data = self.trace.nk, self._data
        known = [np.ascontiguousarray(matrix[:, :data]) for matrix in [updates, *self.trace.matrices()]]
        every = kernels.sort_by(np.concatenate(known), range(nk))
        first = np.ones(len(every), np.bool_)
        first[1:] = (every[1:, :nk] != every[:-1, :nk]).any(axis=1)
        rows = np.zeros((int(first.sum()), data + 3), np.int64)
        rows[:, :data] = every[first]
        rows[:, data - 3], rows[:, data - 2], rows[:, data - 1] = 0, order, time
        rows[:, data + 1], rows[:, -1] = time, 1
        return rows


def _ranks(pairs: np.ndarray) -> np.ndarray:
    """Return the place of each pair among all different ones.

    >>> _ranks(np.array([[2, 1], [1, 5], [2, 1], [2, 0]])).tolist()
    [2, 0, 2, 1]
    """
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    rises = (pairs[order[1:]] != pairs[order[:-1]]).any(axis=1)
    ranks = np.zeros(len(pairs), np.int64)
    ranks[order[1:]] = np.cumsum(rises)
    return ranks


class Snapshots(StatefulOperator):
    """Turn rows `[key | value | time | 1]` into the differences between the tables of the `times`, which have one coordinate.

    A table's rows are inserted at its time and retracted at the next one's; rows of both tables cancel. The trace
    holds the result, so it accumulates to the last table of earlier intervals, which is retracted at the first time of this
    one. `times` are the times of all tables of any interval, also of tables without rows. `twice` returns the error for a row whose key is in one table
    twice, where keys must not be; `deleted` gets for each time the number of keys of the table before that are gone, and the number of its
    keys.
    """

    def __init__(
        self,
        trace: Trace,
        times: Sequence[int],
        twice: Callable[[np.ndarray], Exception] | None,
        deleted: Callable[[int, int, int], None],
    ):
        assert trace.nt == 1, "tables at times that are not ordered have none before"
        super().__init__(trace)
        self.every = times
        self.twice = twice
        self.deleted = deleted
        self._read = 0

    @property
    def rows_read(self) -> int:
        """The rows of the last tables."""
        return self._read

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        """Return the interval's only rounds: a table may have no rows in this shard, or none at all."""
        return [interval.rounds] if self._within(interval) else []

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        rows = deltas[0].updates
        self.times = np.array(self._within(interval), np.int64)
        if not len(self.times):
            assert not len(rows), "rows of a table whose time is unknown"
            return Delta(self.batch, distinct=True)
        data = self.trace.nk + self.trace.nv
        at = np.searchsorted(self.times, rows[:, data])
        before = self._before()
        self._read += len(before)
        self._compare(before, rows, at)
        ends = at + 1 < len(self.times)
        ended = rows[ends]
        ended[:, data] = self.times[at[ends] + 1]
        kernels.negate(ended)
        self.batch = kernels.consolidate(np.concatenate([before, rows, ended]))
        return Delta(self.batch, distinct=True)

    def _within(self, interval: Interval) -> list[int]:
        return [time for time in self.every if interval.has((time,))]

    def _before(self) -> np.ndarray:
        """Return the retraction of the last table at the first of the times."""
        data = self.trace.nk + self.trace.nv
        found = np.concatenate([np.empty((0, data + 2), np.int64), *self.trace.matrices()])
        found[:, data] = self.times[0]
        kernels.negate(found)
        return kernels.consolidate(found)

    def _compare(self, before: np.ndarray, rows: np.ndarray, at: np.ndarray) -> None:
        """Count the keys that are gone from one table to the next, and find keys that one table has twice."""
        nk, count = self.trace.nk, len(self.times)
        keys = np.empty((len(before) + len(rows), nk + 1), np.int64)
        keys[: len(before), :nk] = before[:, :nk]
        keys[: len(before), nk] = 0
        keys[len(before) :, :nk] = rows[:, :nk]
        keys[len(before) :, nk] = at + 1
        keys = kernels.sort_by(keys, range(nk + 1))
        same = (keys[1:] == keys[:-1]).all(axis=1)
        if self.twice is not None and (twice := np.flatnonzero(same)).size:
            key = keys[twice[0]]
            raise self.twice(np.array([*key[:nk], self.times[key[nk] - 1], 1]))
        keys = keys[np.flatnonzero(np.append(True, ~same))] if len(keys) else keys
        tables = np.bincount(keys[:, nk], minlength=count + 1)
        stays = (keys[1:, :nk] == keys[:-1, :nk]).all(axis=1) & (keys[1:, nk] == keys[:-1, nk] + 1)
        stayed = np.bincount(keys[:-1, nk][stays], minlength=count + 1)
        for index, time in enumerate(self.times.tolist()):
            self.deleted(time, int(tables[index] - stayed[index]), int(tables[index]))
