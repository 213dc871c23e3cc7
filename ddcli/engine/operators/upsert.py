"""Upserts: a stream of "this key has this value now" becomes the updates of a collection with one value a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels.upserting import upsert_rows
from ddcli.engine.operators.base import Delta, Keeping
from ddcli.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.operators.base import Interval


class Upsert(Keeping):
    """Turn rows `[key | value | present | order | time | 1]` into the updates of a collection of one value a key.

    At each time the row of a key with the greatest `order` says what the key has from then on: its value, or nothing where
    `present` is 0. Time has one coordinate. The trace holds the result, and that is all the state: what a key has before
    the interval is what its updates there sum up to.
    """

    def __init__(self, trace: Trace):
        assert trace.nt == 1, "upserts at times that are not ordered have no last one"
        super().__init__(trace)
        nk, data = trace.nk, trace.nk + trace.nv
        present, order, time = range(data, data + 3)
        # Rows of one order, which should not be, are decided by what they say: the result must not depend on how rows came.
        self._by = [*range(nk), time, order, present, *range(nk, data)]
        self._untimed = [*range(data), data + 1]

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates = kernels.sort_by(deltas[0].updates, self._by)
        nk, nv = self.trace.nk, self.trace.nv
        before = self._before(updates)
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

    def _before(self, updates: np.ndarray) -> np.ndarray:
        """Return `[key | value | 1]` for each of the keys, as they are before the interval."""
        keys = kernels.distinct_keys(updates, self.trace.nk)
        sources = self.trace.batches_for(keys)
        if not sources:
            return np.empty((0, self.trace.nk + self.trace.nv + 1), np.int64)
        found = kernels.gather_bounds(sources, kernels.locate(keys, sources)[0])
        return kernels.consolidate(kernels.take(found, self._untimed))
