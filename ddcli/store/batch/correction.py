"""The correction of an arrangement at times that it has already: updates are added to the batches of their times, and these alone are written again.

That leaves no trace of records that the correction takes back: in each batch their rows cancel, as far as it has them. Rows that find no batch of
their time become one of their own. In loops times have rounds after the coordinates of frontiers.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.rounds import between
from ddcli.engine.times import Frontier
from ddcli.store.batch.compaction import Compaction, Fresh, compact_alone
from ddcli.store.batch.file import in_byte_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.store.batch.file import BatchLayout, Strings
    from ddcli.store.batch.stored_batch import StoredBatch


class Correction:
    """The correction of the batches of a shard by consolidated `updates`, whose values are in `pool`; `since` and `upper` are the arrangement's.

    `before` and `after` have the rows of the corrected records in all batches, of each batch by itself: found by their keys.
    """

    def __init__(
        self,
        layout: BatchLayout,
        stored: Sequence[StoredBatch],
        updates: Matrix,
        pool: Pool,
        since: Frontier,
        upper: Frontier,
    ) -> None:
        self.layout, self.stored = layout, stored
        self._pool, self._since, self._upper = pool, since, upper
        self._coordinates = len(upper.elements[0])
        width = layout.record.width
        self.records = kernels.distinct_keys(updates, width)
        keys = kernels.distinct_keys(updates, layout.key.width)
        self.before = [records_of(batch.for_keys(keys), self.records) for batch in stored]
        places = self._places(updates)
        self._own = [
            self._advanced(updates[places == at], stored[at].since if at < len(stored) else since)
            for at in range(len(stored) + 1)
        ]
        found = [*self.before, np.empty((0, layout.width), np.int64)]
        self.after = [kernels.consolidate(np.concatenate(pair)) for pair in zip(found, self._own, strict=True)]

    def _advanced(self, updates: Matrix, since: Frontier) -> Matrix:
        return advanced(updates, since, len(self.layout.times))

    def _places(self, updates: Matrix) -> Matrix:
        """Return the number of each update's batch, the number of batches for none.

        The batch has the update's time. Of several, one that has its record then counts, else one whose keys are around it, else any.
        """
        width = self.layout.record.width
        times = updates[:, width : width + self._coordinates]
        rows = in_byte_order(updates[:, :width]) if width else None
        none = len(self.stored)
        places = np.full(len(updates), none, np.int64)
        inside = [between(times, batch.lower or None, batch.upper) for batch in self.stored]
        ways = [[self._is_around(at, rows) & mask for at, mask in enumerate(inside)], inside]
        if np.sum(inside, axis=0).max(initial=0) > 1:  # merges, and tasks, leave batches with the same times
            ways.insert(0, [self._has(at, updates) & mask for at, mask in enumerate(inside)])
        for way in ways:
            for at, mask in enumerate(way):
                places[mask & (places == none)] = at
        return places

    def _is_around(self, at: int, rows: Strings | None) -> np.ndarray[Any, Any] | np.bool_:
        """Return whether a batch has keys around each of these records."""
        if rows is None:
            return np.True_
        first, last = self.stored[at].starts(self.layout.record.width)[[0, -1]]
        around: np.ndarray[Any, Any] = (rows >= first) & (rows <= last)
        return around

    def _has(self, at: int, updates: Matrix) -> np.ndarray[Any, Any]:
        """Return whether a batch has each record at the time to which it has advanced the update's."""
        since, width = self.stored[at].since, self.layout.record.width
        rows = updates[:, :-1].copy()
        if since:
            own = rows[:, width : width + len(since.as_time())]
            np.maximum(own, since.as_time(), out=own)
        return np.isin(in_byte_order(rows), in_byte_order(self.before[at][:, :-1]))

    @cached_property
    def compaction(self) -> Compaction:
        """The compaction that writes the batches with other rows again."""
        fresh: list[Fresh | None] = [
            Fresh(own, batch.lower, batch.upper, self._pool) if len(own) else None
            for own, batch in zip(self._own, self.stored, strict=False)
        ]
        rest = self._own[-1]
        if len(rest):
            width = self.layout.record.width
            lower = Frontier([tuple(rest[:, width : width + self._coordinates].min(axis=0).tolist())])
            fresh.append(Fresh(rest, lower, self._upper, self._pool))
        return compact_alone(self.layout, self.stored, fresh)

    def is_proved(self, old: Matrix, new: Matrix) -> bool:
        """Return whether the batches had just the rows `old` of the corrected records, have the rows `new` now, and none of records that are only in `old`."""
        there = records_of(new, self.records)
        pairs = ((self.before, records_of(old, self.records)), (self.after, there))
        if not all(
            np.array_equal(
                self._advanced(np.concatenate([wanted[:0], *found]), self._since), self._advanced(wanted, self._since)
            )
            for found, wanted in pairs
        ):
            return False
        left = kernels.distinct_keys(kernels.consolidate(there), self.layout.record.width)
        return all(len(records_of(rows, left)) == len(rows) for rows in self.after)


def advanced(updates: Matrix, since: Frontier, nt: int) -> Matrix:
    """Return updates with their times, of `nt` coordinates, advanced to a frontier, consolidated."""
    found = kernels.consolidate(updates)
    return kernels.advance(found, since.as_time(), nt) if since else found


def records_of(updates: Matrix, records: Matrix) -> Matrix:
    """Return the updates of some sorted, distinct records."""
    width = records.shape[1]
    if not width or not len(records):
        return updates if len(records) else updates[:0]
    wanted, rows = in_byte_order(records), in_byte_order(updates[:, :width])
    at = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
    return np.ascontiguousarray(updates[wanted[at] == rows])
