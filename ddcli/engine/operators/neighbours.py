"""Windows that look at few rows to either side: of a change, the rows around it are evaluated as they were and as they are.

For totally ordered time outside of loops. Rows that are further from a change than the window reaches see the same rows before and after it, so
they are none of its updates; and what a window makes of the rows before follows from the input, so no output is kept. At both ends of
what is looked at, rows see too little: the same before and after, so that it cancels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels.neighbours import NEAR, rows_around
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.engine.operators.reduce_aggregates import Gathered
from ddcli.engine.operators.reduce_evaluate import checked

if TYPE_CHECKING:
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.operators.reduce_aggregates import Gather
    from ddcli.engine.operators.reduce_instances import Lanes


class Neighbours:
    """A window over the groups of an arrangement with `nk` key and `nv` value lanes, which looks at most `reach` rows around both ways.

    The first `deciding` lanes of a value say where it stands; with fewer than `nv`, others than lanes decide among rows that these leave equal.
    """

    def __init__(self, nk: int, nv: int, window: Gather, reach: int, deciding: int):
        self.nk, self.nv, self.reach, self.deciding = nk, nv, reach, deciding
        self.window = window
        self.rows_read = 0
        """How many rows were looked at, those of changes among them."""

    def step(self, delta: Lanes, inputs: Reader) -> Lanes:
        """Return the window's updates [key | lanes | time | diff] for new updates, sorted by all lanes; `inputs` is the trace before them."""
        nk, width = self.nk, self.window.width
        if not len(delta):
            return np.empty((0, nk + width + 2), np.int64)
        sources = [*inputs.batches_for(kernels.distinct_keys(delta, nk)), delta]
        changes, bounds = self._changes(delta, sources)
        around = self._rows_around(sources, bounds, changes)
        self.rows_read += len(around)
        opens = np.flatnonzero(np.diff(around[:, 0], prepend=-1))
        segment = np.cumsum(np.diff(around[:, 0], prepend=-1) != 0) - 1
        seen = np.empty((2 * len(around), self.nv + 2), np.int64)
        for after in (0, 1):
            part = seen[after * len(around) : (after + 1) * len(around)]
            part[:, 0] = 2 * segment + after
            part[:, 1:-1] = around[:, 1:-2]
            part[:, -1] = around[:, -2 + after]
        seen = seen[seen[:, -1] > 0]
        seen = np.ascontiguousarray(seen[np.argsort(seen[:, 0], kind="stable")])
        of = changes[np.repeat(around[opens, 0], 2)]
        found = self.window.function(Gathered(of[:, :nk], of[:, -1:], seen))
        out = np.empty((len(found), nk + width + 2), np.int64)
        change = of[found[:, 0]]
        out[:, :nk], out[:, nk:-2], out[:, -2] = change[:, :nk], found[:, 1:-1], change[:, -1]
        out[:, -1] = np.where(found[:, 0] % 2, found[:, -1], -found[:, -1])
        return kernels.consolidate(out)

    def _changes(self, delta: Lanes, sources: list[Lanes]) -> tuple[Lanes, Lanes]:
        """Return the changes [key | value | time], by key, time and value, and where the rows of each one's key are."""
        keys = kernels.distinct_keys(delta, self.nk)
        bounds, _ = kernels.locate(keys, sources)
        group = np.repeat(np.arange(len(keys)), bounds[:, -1] - bounds[:, -2])
        order = np.lexsort((np.arange(len(delta)), delta[:, -2], group))
        return np.ascontiguousarray(delta[order, :-1]), np.ascontiguousarray(bounds[group[order]])

    def _rows_around(self, sources: list[Lanes], bounds: Lanes, changes: Lanes) -> Lanes:
        """Return rows [segment | value | count before | count after]."""
        room = len(changes) * (2 * min(self.reach, 8) + 2) + 64
        cursor = np.empty((3, max(len(sources), 2)), np.int64)
        times = sources[-1][:, -2]
        near, far = (np.minimum.reduceat(times, np.arange(0, len(times), each)) for each in (NEAR, NEAR * NEAR))
        while True:
            out = np.empty((room, self.nv + 3), np.int64)
            lanes = (self.nk, self.nv, self.deciding, self.reach)
            count = rows_around(sources, bounds, changes, *lanes, near, far, cursor, out)
            if count != NO_ROOM:
                return out[: checked(count)]
            room *= 4
