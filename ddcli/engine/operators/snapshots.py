"""Snapshots: whole tables, one for each time, become the updates of one collection that equals each table at its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, StatefulOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.trace.spine import Trace


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
        ended[:, -1] *= -1
        self.batch = kernels.consolidate(np.concatenate([before, rows, ended]))
        return Delta(self.batch, distinct=True)

    def _within(self, interval: Interval) -> list[int]:
        return [time for time in self.every if interval.has((time,))]

    def _before(self) -> np.ndarray:
        """Return the retraction of the last table at the first of the times."""
        data = self.trace.nk + self.trace.nv
        found = np.concatenate([np.empty((0, data + 2), np.int64), *self.trace.matrices()])
        found[:, data] = self.times[0]
        found[:, -1] *= -1
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
