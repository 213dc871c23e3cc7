"""Upserts: a stream of "this key has this value now" becomes the updates of a collection with one value for each key."""

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
