"""Windows that continue from row to row: numbers and running sums, computed from the first change on, up to the row where they are as before.

Such a window's value at a row follows from its state at the row before. For some of the places, which a hash of
their order picks, a trace keeps the state: its *marks*. A change is evaluated from the last mark before it, over the rows as before
and as at each time, block after block, each twice as large, until the states before and after are equal and no change is left. So
the rows read are those that change, some before them, and as many again behind them; never the partition's history. The output before follows from the input: it is not kept.

They are for totally ordered time outside of loops. A mark holds the state as of the frontier, not of the times of the step that made it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels import reduce_rows
from ddcli.engine.operators.base import Delta, StatefulOperator
from ddcli.engine.operators.reduce_instances import Instances, ends, new_instances
from ddcli.engine.operators.reduce_instances import sizes as row_counts
from ddcli.engine.operators.reduce_replay import Replay, spread
from ddcli.engine.times import LEAST
from ddcli.engine.trace.trace_import import nearby, within

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.operators.reduce_aggregates import GatheredGroups
    from ddcli.engine.rounds import Interval
    from ddcli.engine.trace.spine import Trace

    Mask = NDArray[np.bool_]

BLOCK = 1024
"""Rows of a source that are evaluated first; each further block has twice as many."""
TOGETHER = 500_000
"""Rows, each as often as there are times, that are evaluated together."""
FEW = 4096
"""Rows, each as often as there are times, up to which several times of a partition are evaluated together."""
MOST_TIMES = 64
PROBED = 8
"""The number of a source's marks among which a valid one is sought first."""
NEVER = 2**63 - 1
FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)
ONE_IN = 56
"""Bits of a hash that are ignored: one place in 256 has zeros in the others."""


class Carry(NamedTuple):
    """A window's state before the current rows, for each instance; zeros where it has seen no rows (`known` is 0)."""

    lanes: Lanes
    known: Lanes


class RunningCalls(Protocol):
    """The calls of a window: `width` lanes for each row, and `carried` lanes of its state after the row. `circuit` implements them."""

    @property
    def width(self) -> int: ...

    @property
    def carried(self) -> int: ...

    def over(self, given: GatheredGroups, before: Carry) -> tuple[Lanes, Lanes]:
        """Return the window's result over rows of instances, each continued from its state before, and the states; by instance, then in order.

        The result are rows [instance | lanes | 1], the states those after the last row of each place, [instance | order | state].
        """


class Running:
    """A running window over an arrangement with `nk` key and `nv` value lanes, the first `order` are a row's place."""

    def __init__(self, nk: int, nv: int, order: int, calls: RunningCalls):
        self.nk, self.nv, self.place, self.calls = nk, nv, nk + order, calls

    def step(self, delta: Lanes, inputs: Reader, marks: Reader) -> tuple[Lanes, Lanes]:
        """Return the window's updates [key | lanes | time | diff] for new updates, sorted by all lanes, and its marks' updates.

        Marks are rows [key | order | the window's state]. `inputs` and `marks` are the traces before the new updates.
        """
        updates = [np.empty((0, self.nk + self.calls.width + 2), np.int64)]
        made = [np.empty((0, self.place + self.calls.carried + 2), np.int64)]
        if not len(delta):
            return updates[0], made[0]
        keys = kernels.distinct_keys(delta, self.nk)
        kept = _Sources(marks.batches_for(keys))
        turn = _Turn(self, delta, [*kept])
        if len(turn.times) == 2 * len(keys) and turn.run_near(inputs):
            updates += turn.updates
            made += turn.made
            return kernels.consolidate(np.concatenate(updates)), kernels.consolidate(np.concatenate(made))
        rows = _Sources(inputs.batches_for(keys))
        for part in self._turns(delta, keys, rows):
            turn = _Turn(self, part, [*kept])
            turn.run([*rows, part])
            updates += turn.updates
            made += turn.made
            rows.add(part)
            kept.add(kernels.consolidate(np.concatenate(turn.made)))
        return kernels.consolidate(np.concatenate(updates)), kernels.consolidate(np.concatenate(made))

    def _turns(self, delta: Lanes, keys: Lanes, rows: _Sources) -> Iterator[Lanes]:
        """Yield the new updates in parts, sorted: each key's first time, or first few times, then the next."""
        at = self.nk + self.nv
        bounds, _ = kernels.locate(keys, [delta])
        group = np.repeat(np.arange(len(keys)), bounds[:, 1] - bounds[:, 0])
        order = np.lexsort((delta[:, at], group))
        times = delta[order, at]
        opens = np.ones(len(delta), np.bool_)
        opens[1:] = (times[1:] != times[:-1]) | (group[1:] != group[:-1])
        first = np.flatnonzero(opens)
        limits = np.searchsorted(group[first], np.arange(len(keys) + 1))
        if len(first) == len(keys):
            yield delta
            return
        first = np.append(first, len(delta))
        done, end = limits[:-1].copy(), limits[1:]
        while len(left := np.flatnonzero(done < end)):
            until = np.minimum(done[left] + MOST_TIMES, end[left])
            several = np.flatnonzero(until - done[left] > 1)
            if len(several):
                some = left[several]
                numbers, sizes = _ranges(first[done[some]], first[until[several]])
                # Updates are sorted: the least number has the first place.
                least = np.minimum.reduceat(order[numbers], ends(sizes)[:-1])
                tail = sizes + _rest(np.ascontiguousarray(delta[least, : self.place]), keys[some], rows)
                until[several] = done[some] + np.clip(FEW // tail, 1, until[several] - done[some])
            numbers, _ = _ranges(first[done[left]], first[until])
            yield np.ascontiguousarray(delta[np.sort(order[numbers])])
            done[left] = until


class _Turn:
    """New updates of each partition at one time or few, evaluated over `sources`; they are the last of these."""

    def __init__(self, window: Running, part: Lanes, marks: list[Lanes]):
        self.nk, self.nv, self.place, self.calls = window.nk, window.nv, window.place, window.calls
        self.part, self.marks, self.sources = part, marks, [part]
        new = new_instances(part, self.nk, self.nk + self.nv, 1)
        self.keys = new.keys
        self.first = new.first + np.arange(len(new.first))
        self.times = np.insert(new.times[:, 0], new.first[:-1], LEAST)  # each key's first instance is the state before
        self.own, _ = kernels.locate(self.keys, [part])
        self.begin, self.end = self.own[:, :1].copy(), self.own[:, 1:].copy()
        self.block = np.maximum(self.own[:, 1] - self.own[:, 0], BLOCK)  # its own new rows must be read anyway
        self.carry = Carry(
            np.zeros((len(self.times), self.calls.carried), np.int64), np.zeros(len(self.times), np.int64)
        )
        self.updates: list[Lanes] = []
        self.made: list[Lanes] = []

    def run(self, sources: list[Lanes]) -> None:
        """Evaluate all changes over whole partitions."""
        self.sources = sources
        self._within(np.arange(len(self.keys)), kernels.locate(self.keys, sources)[0])
        self._evaluate_all(np.arange(len(self.keys)), np.ones(len(self.keys), np.bool_))

    def run_near(self, inputs: Reader) -> bool:
        """Try to evaluate all changes over the rows around them and behind, as far as they reach; return False if whole partitions would be cheaper to read.

        Rows before a partition's first change are unchanged, and so are their marks.
        """
        places = np.ascontiguousarray(self.part[self.own[:, 0], : self.place])
        last = np.ascontiguousarray(self.part[self.own[:, 1] - 1, : self.place])
        found, marks = self._last_marks(places)
        places[:, self.nk :] = LEAST
        places[found] = marks[:, : self.place]
        near = nearby(inputs, places, last, self.nk)
        if near is None:
            return False
        every = np.arange(len(self.keys))
        self.sources = [*near.matrices, self.part]
        self._within(every, near.bounds(self.sources))
        left = self._evaluate_all(every, np.ones(len(every), np.bool_))
        left = left[near.edges(self.nk)[left] >= 2]
        if len(left):
            low, high = near.high[left], near.high[left]
            low[:, -1] += 1
            high[:, self.nk :] = NEVER
            rest = within(inputs, low, high, self.nk)
            self.sources = [*rest.matrices, self.part]
            self._within(left, rest.bounds(self.sources))
            self._evaluate_all(left, np.zeros(len(self.keys), np.bool_))
        return True

    def _within(self, some: Lanes, bounds: Lanes) -> None:
        """Restrict the sources' rows of some partitions to those in bounds."""
        if self.begin.shape[1] != len(self.sources):
            self.begin, self.end = np.zeros((2, len(self.keys), len(self.sources)), np.int64)
        self.begin[some], self.end[some] = bounds[:, 0::2], bounds[:, 1::2]

    def _evaluate_all(self, left: Lanes, fresh: Mask) -> Lanes:
        """Evaluate all changes of some partitions, from the last mark before each on, or from the end of the block before.

        Those that are `fresh` begin with a change. Returns those whose states before and after differ at the end of their rows.
        """
        unsettled = [left[:0]]
        while len(left):
            most = np.minimum((self.end[left] - self.begin[left]).sum(axis=1), self.block[left] * len(self.sources))
            work = np.cumsum(most * np.diff(self.first)[left])
            some = left[: max(1, int(np.searchsorted(work, TOGETHER, "right")))]
            self._look_for_marks(some[fresh[some]])
            settled = self._evaluate(some)
            over = (self.begin[some] == self.end[some]).all(axis=1)
            unsettled.append(some[over & ~settled])
            # Where the states are equal, only further changes remain.
            over |= settled & (self.begin[some, -1] == self.end[some, -1])
            fresh[some] = settled
            self.block[some] = np.where(settled, BLOCK, np.minimum(2 * self.block[some], TOGETHER))
            left = np.concatenate([some[~over], left[len(some) :]])
        return np.sort(np.concatenate(unsettled))

    def _look_for_marks(self, some: Lanes) -> None:
        """Move the beginning of some partitions to the last mark before their next change, if one is behind it."""
        if not len(some):
            return
        found, rows = self._last_marks(np.ascontiguousarray(self.part[self.begin[some, -1], : self.place]))
        some = some[found]
        if not len(some):
            return
        at, _ = kernels.locate(np.ascontiguousarray(rows[:, : self.place]), self.sources)
        later = (at[:, 1::2] >= self.begin[some]).all(axis=1)
        some, rows = some[later], rows[later]
        self.begin[some] = at[later, 1::2]
        numbers, sizes = _ranges(self.first[some], self.first[some + 1])
        self.carry.lanes[numbers] = np.repeat(rows[:, self.place :], sizes, axis=0)
        self.carry.known[numbers] = 1

    def _last_marks(self, places: Lanes) -> tuple[Mask, Lanes]:
        """Return which of some places (n, key and order), ascending, have a mark of their key before them, and the last such mark of these."""
        found, out = np.zeros(len(places), np.bool_), np.zeros((len(places), self.place + self.calls.carried), np.int64)
        left = np.arange(len(places) if self.marks else 0)
        probed = PROBED
        while len(left):
            keys, these = np.ascontiguousarray(places[left, : self.nk]), np.ascontiguousarray(places[left])
            begin, end = kernels.locate(keys, self.marks)[0], kernels.locate(these, self.marks)[0]
            bounds = np.stack([begin[:, 0::2], end[:, 0::2]], axis=2)
            far = np.flatnonzero((bounds[:, :, 1] - bounds[:, :, 0]).max(axis=1) > probed)
            if len(far):
                # All marks of all sources from one place on.
                most = (bounds[far, :, 1] - bounds[far, :, 0]).argmax(axis=1)
                cut = self._places(self.marks, most, bounds[far, most, 1] - probed)
                bounds[far, :, 0] = kernels.locate(cut, self.marks)[0][:, 0::2]
            rows = kernels.gather_bounds(self.marks, bounds.reshape(len(left), -1))
            rows[:, -2] = 0
            rows = kernels.consolidate(rows)
            rows = rows[rows[:, -1] > 0]
            owned, _ = kernels.locate(keys, [rows])
            group = np.repeat(np.arange(len(left)), owned[:, 1] - owned[:, 0])
            last = np.flatnonzero(np.diff(group, append=-1))
            found[left[group[last]]] = True
            out[left[group[last]]] = rows[last, :-2]
            again = np.zeros(len(left), np.bool_)
            again[far] = True
            left = left[again & ~found[left]]
            probed *= 8
        return found, out[found]

    def _places(self, sources: Sequence[Lanes], which: Lanes, rows: Lanes) -> Lanes:
        """Return key and order of rows, each of one of the sources."""
        out = np.empty((len(which), self.place), np.int64)
        for number, source in enumerate(sources):
            mine = which == number
            out[mine] = source[rows[mine], : self.place]
        return out

    def _evaluate(self, some: Lanes) -> Mask:
        """Evaluate the next block of some partitions, and move behind it; return which of them have the same state there as before."""
        begin, end = self.begin[some], self.end[some].copy()
        far = np.flatnonzero((end - begin).max(axis=1) > self.block[some])
        if len(far):
            most = (end[far] - begin[far]).argmax(axis=1)
            last = self._places(self.sources, most, begin[far, most] + self.block[some[far]] - 1)
            end[far] = kernels.locate(last, self.sources)[0][:, 1::2]  # peers are never parted
        numbers, sizes = _ranges(self.first[some], self.first[some + 1])
        instances = Instances(self.keys[some], ends(sizes), self.times[numbers][:, None])
        given = spread(self._replay(instances, np.stack([begin, end], axis=2).reshape(len(some), -1)))
        rows, places = self.calls.over(given, Carry(self.carry.lanes[numbers], self.carry.known[numbers]))
        self.updates.append(_differences(instances, rows))
        marked = places[is_marked(places[:, 1 : 1 + self.place - self.nk])]
        self.made.append(_differences(instances, np.column_stack([marked, np.ones(len(marked), np.int64)])))
        last = np.flatnonzero(np.diff(places[:, 0], append=-1))
        at = numbers[places[last, 0]]
        self.carry.lanes[at], self.carry.known[at] = places[last, 1 + self.place - self.nk :], 1
        self.begin[some] = end
        origin = np.repeat(self.first[some], sizes)
        same = (self.carry.lanes[numbers] == self.carry.lanes[origin]).all(axis=1)
        same &= self.carry.known[numbers] == self.carry.known[origin]
        settled: Mask = np.logical_and.reduceat(same, instances.first[:-1])
        return settled

    def _replay(self, instances: Instances, bounds: Lanes) -> Replay:
        """Return rows as they are inserted and retracted. All sources but the last are history, even if their times were advanced."""
        before, last = np.ascontiguousarray(bounds[:, :-2]), np.ascontiguousarray(bounds[:, -2:])
        old = int(row_counts(before).sum())
        rows = np.empty((old + int(row_counts(last).sum()), self.nv + 3), np.int64)
        for sources, where, out in ((self.sources[:-1], before, rows[:old]), (self.sources[-1:], last, rows[old:])):
            if len(out):
                reduce_rows.collect(sources, where, self.nk, self.nv, 1, 1, instances.first, instances.times, out)
        rows[:old, 1 + self.nv] = instances.first[rows[:old, 0]]
        starts = np.empty(len(instances.first), np.int64)
        return Replay(instances, rows[:0], starts, instances.first).of(rows)


class _Sources(list[np.ndarray]):
    """Sorted matrices, and those that a step adds, merged so that they stay few."""

    def __init__(self, before: Sequence[Lanes]):
        super().__init__(each for each in before if len(each))
        self._before = len(self)

    def add(self, rows: Lanes) -> None:
        """Add a matrix."""
        if len(rows):
            self.append(rows)
        while len(self) - self._before > 1 and len(self[-2]) < 2 * len(self[-1]):
            self[-2:] = [kernels.merge(self[-2:])]


def is_marked(order: Lanes) -> Mask:
    """Return which places may have a mark, by the lanes of their order. States hold marks, so this must never change.

    >>> int(is_marked(np.arange(100_000)[:, None]).sum())
    369
    """
    found = np.full(len(order), FACTORS[0], np.uint64)
    for lane in range(order.shape[1]):
        for factor in FACTORS:
            found = (found ^ order[:, lane].astype(np.uint64)) * np.uint64(factor)
            found ^= found >> np.uint64(31)
    marked: Mask = (found >> np.uint64(ONE_IN)) == 0
    return marked


def _ranges(starts: Lanes, stops: Lanes) -> tuple[Lanes, Lanes]:
    """Return the numbers of adjacent ranges, one after the other, and how many each has.

    >>> _ranges(np.array([5, 1]), np.array([7, 2]))
    (array([5, 6, 1]), array([2, 1]))
    """
    sizes = stops - starts
    return np.repeat(starts - ends(sizes)[:-1], sizes) + np.arange(int(sizes.sum())), sizes


def _rest(places: Lanes, keys: Lanes, sources: Sequence[Lanes]) -> Lanes:
    """Return the number of rows of each key in some sources from a place on."""
    if not sources:
        return np.zeros(len(keys), np.int64)
    begin, end = kernels.locate(places, sources)[0][:, 0::2], kernels.locate(keys, sources)[0][:, 1::2]
    rows: Lanes = (end - begin).sum(axis=1)
    return rows


def _differences(instances: Instances, rows: Lanes) -> Lanes:
    """Return the updates [key | lanes | time | diff] from instance to instance of rows [instance | lanes | count]; the first instance of a group is the state before."""
    groups = instances.groups()
    at = rows[:, 0]
    enters, leaves = at > instances.first[groups[at]], at + 1 < instances.first[groups[at] + 1]
    parts = []
    for some, when, sign in ((enters, at, 1), (leaves, at + 1, -1)):
        part = np.concatenate(
            [instances.keys[groups[at[some]]], rows[some, 1:-1], instances.times[when[some]], sign * rows[some, -1:]],
            axis=1,
        )
        parts.append(part)
    return kernels.consolidate(np.concatenate(parts))


class RunningWindow(StatefulOperator):
    """A window that continues from row to row. Reads an arrangement in its order; its trace holds its marks."""

    def __init__(self, running: Running, inputs: Reader, trace: Trace):
        super().__init__(trace)
        self.running = running
        self.inputs = inputs

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        updates, self.batch = self.running.step(deltas[0].updates, self.inputs, self.trace)
        return Delta(updates, distinct=True)
