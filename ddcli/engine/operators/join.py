"""Arrangements and joins: the two halves of every equi-join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.operators.base import (
    Delta,
    Operator,
    StatefulOperator,
    concatenated,
    empty,
)
from ddcli.engine.operators.linear import permute

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ddcli.engine.kernels import Rows
    from ddcli.engine.operators.linear import Lane
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace


LANE = 8
"""Bytes of a number in a lane."""


class Arrange(StatefulOperator):
    """Index a collection by key: its delta is the sorted batch `[key | value | time | diff]`, its trace the batches before.

    Readers of the same key share it; the batch enters the trace when all of them have stepped. If an arrangement is `joined`, all readers
    are joins: batches of many rows that share time and diff are `Uniform`.
    """

    shared = True

    def __init__(self, lanes: Sequence[Lane], trace: Trace, *, joined: bool = False):
        super().__init__(trace)
        trace.shares_tails = joined
        self.lanes = tuple(lanes)
        self._lanes_taken = [lane for lane in lanes if isinstance(lane, int)]
        self._plain = len(self._lanes_taken) == len(self.lanes)
        self._order: np.ndarray | None = None

    def takes(self, width: int) -> tuple[int, ...] | None:
        order = (*self._lanes_taken, *range(width - self.trace.nt - 1, width))
        return order if self._plain and len(set(order)) == len(order) else None

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        few = len(deltas[0].updates) <= kernels.FEW
        if not few and not interval.rounds and (tail := self._shared_tail(deltas[0])) is not None:
            data = kernels.take(concatenated(deltas), self._lanes_taken)
            self.batch = cast("np.ndarray", kernels.consolidated_parts(data, tail))
            return Delta(self.batch, distinct=True, inserts=True)
        updates = deltas[0].updates
        if deltas[0].taken:
            self.batch = kernels.consolidate(updates, owned=deltas[0].owned)
        elif self._plain and few:
            if self._order is None:
                width = updates.shape[1]
                self._order = np.array([*self.lanes, *range(width - self.trace.nt - 1, width)], np.int64)
            self.batch = kernels.arranged(updates, self._order)
        else:
            del updates
            owned = deltas[0].owned
            given = concatenated(deltas)
            arranged = permute(given, self.lanes, self.trace.nt + 1)
            owned = owned or arranged is not given
            del given  # now its memory may be released: all other readers are done
            self.batch = kernels.consolidate(arranged, owned=owned)
        return Delta(self.batch, distinct=True)

    def _shared_tail(self, delta: Delta) -> np.ndarray | None:
        """Return the times and diff that all new updates have, if they are to be kept once.

        Those that were exchanged are in memory that is reused shard by shard: a copy of some lanes would only need more.
        """
        if not self.trace.shares_tails or not self._plain or delta.taken:
            return None
        return kernels.common_tail(delta.updates, self.trace.nt)


class Entered(Operator):
    """An arrangement from outside of a loop, read in place, in round 0 and every later one.

    Nothing is copied. Its new updates have no round and are fed in round 0; after that round they are read with the trace,
    which itself takes them in only when the loop is done.
    """

    seals = True

    def __init__(self, source: Readable):
        self.trace = EnteredTrace(source)
        self.batch = self.trace.fresh

    def restart(self) -> None:
        """Read the source as of before its new updates: the loop's next interval, or outer round, begins."""
        self.batch = self.trace.fresh = self.trace.none

    def resume(self, fresh: np.ndarray) -> None:
        """Read the source with its new updates: round 0 is over."""
        self.trace.fresh = fresh

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        self.batch = deltas[0].updates
        return deltas[0]

    def seal(self, interval: Interval) -> None:
        self.trace.fresh, self.batch = self.batch, self.trace.none


class EnteredTrace:
    """The view that a join has of an arrangement that entered a loop: its trace, and the updates that it will take in next."""

    def __init__(self, outer: Readable):
        self.outer = outer
        self.nk, self.nv, self.nt = outer.nk, outer.nv, outer.nt
        self.none = self.fresh = empty(outer.nk + outer.nv + outer.nt + 1)

    @property
    def rows(self) -> int:
        return self.outer.rows + len(self.fresh)

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> Sequence[Rows]:
        """Return rows that together hold each update whose key is in `updates`, sorted by key, exactly once; the `spared` lanes are not read."""
        found = self.outer.matching(updates, spared)
        return [*found, self.fresh] if len(self.fresh) else found


class Readable(Protocol):
    """The part of a trace's interface that joins use: `nk` key lanes, `nv` value lanes, `nt` time lanes, and the rows of given keys."""

    nk: int
    nv: int
    nt: int

    @property
    def rows(self) -> int:
        """Return the number of updates."""

    def matching(self, updates: np.ndarray, spared: Collection[int] = ()) -> Sequence[Rows]:
        """Return matrices, or `Uniform` rows, that together hold each update whose key is in `updates`, sorted by key, exactly once.

        The `spared` lanes are not read: they may have any content that leaves the rows sorted.
        """


class PairRoom:
    """The bytes of rows that joins emit at once: `each` shard a part of its rows, or all shards of a join together, all of theirs."""

    def __init__(self, size: int, *, each: bool) -> None:
        self.size = size
        self.each = each

    def rows(self, width: int) -> int:
        """Return the number of rows of some lanes for which there is room."""
        return max(1, self.size // (width * LANE))

    def note(self, found: np.ndarray) -> None:
        """Count rows that stay in memory."""
        if not self.each:
            self.size -= found.nbytes


class Join(Operator):
    """Join two arrangements by key: `dA join (B + dB)` and `A join dB`, with A and B as of the lower frontier.

    It is bilinear, so only the two traces are kept. `take` selects the lanes of the result from `[key | va | vb]`. A side that
    entered a loop has fewer time lanes than the other.
    """

    def __init__(self, left: Readable, right: Readable, take: Sequence[int], room: PairRoom | None = None):
        self.left = left
        self.right = right
        self.nk = left.nk
        self.nt = left.nt, right.nt
        self.take = np.array(take, np.int64)
        self.room = room
        self._pairs = kernels.JoinOfFew(self.nk, self.nt, self.take)
        data, taken = self.nk + left.nv, frozenset(take)
        self._spared = (
            [lane for lane in range(self.nk, data) if lane not in taken],
            [self.nk + at for at in range(right.nv) if data + at not in taken],
        )
        # Only where all lanes are kept do equal matches imply equal values on either side.
        self._keeps_all = set(take) == set(range(self.nk + left.nv + right.nv))

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        left, right, lefts, rights = self._sides(deltas)
        if not rights and not lefts:
            return Delta(empty(self._pairs.width), distinct=True)
        most = None if self.room is None else self.room.rows(self._pairs.width)
        try:
            found = self._pairs.join(left, rights, right, lefts, most)
        except kernels.ManyPairs:
            raise kernels.ManyPairs(pairs(left, rights, self.nk) + pairs(right, lefts, self.nk)) from None
        if self.room is not None:
            self.room.note(found)
        return Delta(found, distinct=self._keeps_all and len(rights) == 1 and not lefts and len(right) > 0)

    def parts(self, deltas: Sequence[Delta]) -> Iterator[Delta]:
        """Yield the updates of a step in parts; where one is distinct, no two rows of all parts share data and time."""
        left, right, lefts, rights = self._sides(deltas)
        distinct = self._keeps_all and not (lefts and rights)
        assert self.room is not None
        most = self.room.rows(self._pairs.width)
        for a, b in ([left], rights), (lefts, [right]):
            if a and b:
                # Rows of one batch each, so that no pair of values is in two parts.
                one, other = (
                    side[0] if len(side) == 1 else kernels.merge([*map(kernels.matrix, side)]) for side in (a, b)
                )
                for part in kernels.join_chunks(one, other, self.nk, self.nt, self.take, most):
                    yield Delta(part, distinct)

    def _sides(self, deltas: Sequence[Delta]) -> tuple[np.ndarray, np.ndarray, Sequence[Rows], Sequence[Rows]]:
        """Return the new rows of both sides, the rows before that the right ones meet, and all rows that the left ones meet."""
        left, right = deltas[0].updates, deltas[1].updates
        rights = self.right.matching(kernels.leading(left), self._spared[1]) if len(left) else []
        if len(left) and len(right):
            rights = [*rights, right]
        lefts = self.left.matching(kernels.leading(right), self._spared[0]) if len(right) else []
        return left, right, lefts, rights


class RowLookup(Operator):
    """New updates that are looked up in an arrangement: in its trace as of before the step and, with `new`, in the step's batch as well.

    `lanes` permutes the updates to [key | values]; without it they are [key | values] already, sorted and consolidated. The key may be longer than the
    arrangement's: it continues in the values of the rows, which are sorted by these, too.
    """

    def __init__(self, lanes: Sequence[int] | None, source: Readable, nk: int, *, new: bool):
        self.lanes = None if lanes is None else tuple(lanes)
        self.source = source
        self.nk = nk
        self.nt = source.nt
        self.new = new

    def found(self, deltas: Sequence[Delta]) -> tuple[np.ndarray, Sequence[Rows]]:
        """Return the updates, sorted, and matrices that have the rows of their keys; none where there are no updates."""
        updates, fresh = deltas[0].updates, deltas[1].updates
        own = self.new and len(fresh)
        if not len(updates) or not (own or self.source.rows):
            return updates, []
        if self.lanes is not None:
            updates = kernels.consolidate(permute(updates, self.lanes, self.nt + 1))
        others = self.source.matching(updates)
        return updates, [*others, fresh] if own else others


class HalfJoin(RowLookup):
    """Updates joined with the rows that they find; `take` is as in `Join`.

    A join of n collections is the sum of n chains of these: the updates of each meet the others one after the other, those that come before it
    with the step's updates and those that come after it without, so that each combination is found in one chain only, the chain of its last new row.
    """

    def __init__(
        self,
        lanes: Sequence[int] | None,
        source: Readable,
        nk: int,
        take: Sequence[int],
        *,
        new: bool,
        room: PairRoom | None = None,
    ):
        super().__init__(lanes, source, nk, new=new)
        self.take = np.array(take, np.int64)
        self.room = room
        self.width = len(take) + self.nt + 1

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates, others = self.found(deltas)
        if not others:
            return Delta(empty(self.width), distinct=True)
        if self.room is None:
            return Delta(kernels.join(updates, others, self.nk, self.nt, self.take))
        try:
            found = kernels.join(updates, others, self.nk, self.nt, self.take, self.room.rows(self.width))
        except kernels.ManyPairs:
            raise kernels.ManyPairs(pairs(updates, others, self.nk)) from None
        self.room.note(found)
        return Delta(found)

    def parts(self, deltas: Sequence[Delta]) -> Iterator[Delta]:
        """Yield the updates of a step in parts; several may have equal rows."""
        updates, others = self.found(deltas)
        assert self.room is not None
        if others:
            for part in kernels.join_chunks(updates, others, self.nk, self.nt, self.take, self.room.rows(self.width)):
                yield Delta(part)


class RowCount(RowLookup):
    """Updates that find rows, with one more data lane: the number of rows found, each row of a batch counted by itself."""

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates, others = self.found(deltas)
        tail = self.nt + 1
        if not others:
            return Delta(empty(deltas[0].updates.shape[1] + 1), distinct=True)
        counts = row_counts(updates, others, self.nk)
        rows = np.flatnonzero(counts)
        data = updates.shape[1] - tail
        out = kernels.take(updates, [*range(data), 0, *range(data, data + tail)], rows)
        out[:, data] = counts[rows]
        return Delta(out)


class FewerRows(Operator):
    """Select, of updates whose last two data lanes are numbers of rows, those where the second is smaller (`fewer`), or the others; drop these lanes.

    So each update takes, of two orders of joins, the one with fewer rows to read.
    """

    def __init__(self, nt: int, *, fewer: bool):
        self.tail = nt + 1
        self.fewer = fewer

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        (delta,) = deltas
        width = delta.updates.shape[1]
        data = width - self.tail - 2
        rows = np.flatnonzero((delta.updates[:, data + 1] < delta.updates[:, data]) == self.fewer)
        return Delta(kernels.take(delta.updates, [*range(data), *range(data + 2, width)], rows), delta.distinct)


def pairs(updates: Rows, others: Sequence[Rows], nk: int) -> int:
    """Return the number of pairs of updates and rows that have equal keys; all are sorted."""
    return int(row_counts(kernels.leading(updates), others, nk).sum()) if len(updates) and others else 0


def row_counts(updates: np.ndarray, others: Sequence[Rows], nk: int) -> np.ndarray:
    """Return how many other rows have the key of each update; all are sorted.

    >>> row_counts(np.array([[1, 0, 1], [2, 0, 1], [2, 1, 1]]), [np.array([[2, 0, 1]]), np.array([[2, 3, 1]])], 1).tolist()
    [0, 2, 2]
    """
    keys = kernels.distinct_keys(updates, nk)
    own, found = (kernels.locate(keys, [*map(kernels.leading, each)])[0] for each in ([updates], others))
    counts: np.ndarray = np.repeat((found[:, 1::2] - found[:, ::2]).sum(axis=1), own[:, 1] - own[:, 0])
    return counts
