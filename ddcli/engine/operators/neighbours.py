"""Windows that read few rows to either side: the rows around a change are evaluated as before it and as after it.

For totally ordered time outside of loops. A row further from a change than the window reaches sees the same rows before and after it, so
it has no update; and the output before follows from the input, so no output is kept. At both ends of
the evaluated range rows see too little, but the same before and after, so their wrong values cancel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels.neighbours import NEAR, rows_around
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.engine.operators.reduce_aggregates import Gathered
from ddcli.engine.operators.reduce_replay import checked
from ddcli.engine.trace.key_ranges import nearby

if TYPE_CHECKING:
    from ddcli.engine.columns import Lanes
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.operators.reduce_aggregates import Gather


class Neighbours:
    """A window over the groups of an arrangement with `nk` key and `nv` value lanes, which reads at most `reach` rows to either side.

    The first `deciding` lanes of a value are its place; with fewer than `nv`, ranks and not lanes decide among rows with one place.
    """

    def __init__(self, nk: int, nv: int, window: Gather, reach: int, deciding: int):
        self.nk, self.nv, self.reach, self.deciding = nk, nv, reach, deciding
        self.window = window
        self.rows_read = 0
        """The number of rows read, including the changes."""

    def step(self, delta: Lanes, inputs: Reader) -> Lanes:
        """Return the window's updates [key | lanes | time | diff] for new updates, sorted by all lanes; `inputs` is the trace before them."""
        nk, width = self.nk, self.window.width
        if not len(delta):
            return np.empty((0, nk + width + 2), np.int64)
        changes, around = self._around(delta, inputs)
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

    def _around(self, delta: Lanes, inputs: Reader) -> tuple[Lanes, Lanes]:
        """Return the changes [key | value | time], by key, time and value, and the rows around them: see `rows_around`.

        For large partitions in files only the nearby rows are read, and all if these are not enough.
        """
        keys = kernels.distinct_keys(delta, self.nk)
        of, _ = kernels.locate(keys, [delta])
        group = np.repeat(np.arange(len(keys)), of[:, 1] - of[:, 0])
        order = np.lexsort((np.arange(len(delta)), delta[:, -2], group))
        changes, group = np.ascontiguousarray(delta[order, :-1]), group[order]
        lanes = self.nk + self.deciding
        for near in (nearby(inputs, delta[of[:, 0], :lanes], delta[of[:, 1] - 1, :lanes], self.nk), None):
            matrices = inputs.batches_for(keys) if near is None else near.matrices
            sources = [*matrices, delta]
            bounds = kernels.locate(keys, sources)[0] if near is None else near.bounds(sources)
            edges = np.zeros(len(changes), np.int64)
            around = self._rows_around(sources, np.ascontiguousarray(bounds[group]), changes, edges)
            if near is None or not (near.edges(self.nk)[group] & edges).any():
                break
        return changes, around

    def _rows_around(self, sources: list[Lanes], bounds: Lanes, changes: Lanes, edges: Lanes) -> Lanes:
        """Return rows [segment | value | count before | count after], and write the changes at which the partition ends."""
        room = len(changes) * (2 * min(self.reach, 8) + 2) + 64
        cursor = np.empty((3, max(len(sources), 2)), np.int64)
        near, far = least_times(sources)
        while True:
            out = np.empty((room, self.nv + 3), np.int64)
            lanes = (self.nk, self.nv, self.deciding, self.reach)
            count = rows_around(sources, bounds, changes, *lanes, near, far, cursor, edges, out)
            if count != NO_ROOM:
                return out[: checked(count)]
            edges[:] = 0
            room *= 4


def least_times(sources: list[Lanes]) -> tuple[Lanes, Lanes]:
    """Return the least time of each NEAR, and of each NEAR * NEAR, rows of the last source."""
    times = sources[-1][:, -2]
    near, far = (np.minimum.reduceat(times, np.arange(0, len(times), each)) for each in (NEAR, NEAR * NEAR))
    return near, far
