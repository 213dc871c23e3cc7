"""Upserts whose order decides across times: a late row that is older than its key's current one changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels.upsert import upsert_rows
from ddcli.engine.operators.base import Delta
from ddcli.engine.operators.upsert import KeyedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace


class OrderedUpsert(KeyedTable):
    """Turn rows `[key | value | present | order | moment | sequence | time | 1]` into the updates of a collection of one row for each key.

    At each time a key's record is, among all its rows up to then, the one with the greatest `order`; among equal ones that with the
    latest `moment`, of those the last by `sequence`. The record has `present`, `order` and `moment`: a deletion
    is kept too, with its order, so an older row doesn't revive the key. For different rows with all three
    the same `tied` returns the error for one of them. At each of the `truncations`, pairs of time and order, all known keys
    get a deletion of that order. Time has one coordinate. The trace holds the result, and
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
            known = bounds[:, 1] > bounds[:, 0]
            least[known] = before[bounds[known, 0]][:, self._newer]
        # Ranks that ascend from key to key: so one running maximum serves all keys.
        ranks = _ranks(np.concatenate([least, updates[:, self._newer]]))
        floor, mine = ranks[: len(least)], ranks[len(least) :]
        spread = key * (len(ranks) + 1)
        newest = np.maximum.accumulate(np.maximum(spread + mine, spread + floor[key]))
        rows = updates[spread + mine == newest]
        found = np.empty((len(rows), data + 4), np.int64)
        found[:, :data] = rows[:, :data]
        found[:, data], found[:, data + 1] = 1, 0
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
