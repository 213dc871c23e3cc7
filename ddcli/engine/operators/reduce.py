"""The reduction: the values of a group's aggregates for each key and interesting time, as updates to their values before.

    want(t)  = the aggregates of the accumulated input of the key at t, and nothing when the group is not present
    delta(t) = want(t) - accumulated output of the key at t

A step has four parts: the keys and times that must be evaluated (`reduce_instances`), the rows of their groups there
and the aggregates over them (`reduce_replay`), and the difference to the output so far (`reduce_instances`).

When a group is present. A reduction whose aggregates are all sums and counts keeps no input: its state is its output,
`[key | number of records | lanes of the aggregates]`, and a group is present while any of those numbers is not zero.
So two records of a group that came +1 and -1 leave nothing behind when all sums are zero as well. Any other reduction
keeps its inputs, and a group is present while any record of it, as arranged, has a non-zero count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels import reduce_rows
from ddcli.engine.kernels.reduce_times import NO_ROOM
from ddcli.engine.operators.reduce_aggregates import Count, ExactSum, Gather, Ordered, Sums
from ddcli.engine.operators.reduce_instances import (
    NOTHING_DUE,
    Due,
    History,
    Instances,
    Reduced,
    Single,
    collect,
    difference,
    interesting,
    new_instances,
    sizes,
)
from ddcli.engine.operators.reduce_replay import (
    Sources,
    break_ties,
    evaluate,
    first_records,
    in_order_of_instances,
    presence,
    replay,
    search_for,
    several,
    top_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.operators.reduce_aggregates import Aggregate
    from ddcli.engine.operators.reduce_replay import Search

CHUNK = 4_000_000
"""The rows of a group that are evaluated together, at most: a step's memory beside its input and output is bounded by a few times this."""
GROUPS = 4
"""Rows of several groups are evaluated together up to this part of a chunk: more at once would take more memory, and no less time."""
ROWS_A_BOUND = 4
"""Rows evaluated together for which one group is found in one batch at a time: in many batches, all groups' bounds may take more than their rows do."""
LEAST = 4_096
"""Rows that are worth to be combined."""
SAMPLE = 1 << 13
"""Rows that decide whether many are of few groups."""
FEWER = 8
"""Rows for each group and time from which they are combined: digits of sums are wider than rows."""


def few_instances(updates: Lanes, nk: int, at: int) -> tuple[Lanes, Lanes] | None:
    """Return a row of each key and time, which is in lane `at`, and the number of each row's; None where they are not far fewer than rows."""
    heads, instances = np.empty(len(updates) // max(FEWER, 1), np.int64), np.empty(len(updates), np.int64)
    slots = np.zeros(1 << (2 * len(heads)).bit_length(), np.int64)
    count = reduce_rows.number_groups(updates, nk, at, slots, heads, instances)
    return None if count == NO_ROOM else (heads[:count], instances)


class Reader(Protocol):
    """The parts of a trace that a reduction needs."""

    def batches_for(self, keys: Lanes) -> list[Lanes]:
        """Return sorted matrices that together hold each update of the sorted, distinct `keys` exactly once."""


class Reduce:
    """Aggregates of the groups of an arrangement with `nk` key, `nv` value and `nt` time lanes.

    `width` is the number of output lanes: the aggregates' in turn, behind the number of records if `accumulable`
    (all aggregates are counts and sums: then the inputs need not be kept).
    """

    def __init__(self, nk: int, nv: int, nt: int, aggregates: Sequence[Aggregate], *, chunk: int = CHUNK):
        alone = [a for a in aggregates if a.several]
        assert len(aggregates) == 1 or not alone, "an aggregate with several rows has a reduction of its own"
        self.nk, self.nv, self.nt = nk, nv, nt
        self.aggregates = tuple(aggregates)
        self.sums = tuple(a for a in aggregates if isinstance(a, Count | ExactSum))
        self.accumulable = len(self.sums) == len(self.aggregates)
        self.width = sum(a.width for a in aggregates) + self.accumulable
        ordered = tuple(a for a in aggregates if isinstance(a, Ordered))
        lanes_first = all(a.order == tuple(range(len(a.order))) for a in ordered)
        in_order = nt == 1 and len(ordered) == len(self.aggregates) and lanes_first
        # Where the arrangement is in the aggregates' order already, its rows are searched as they are.
        self._searches = [search_for(aggregate, nk) for aggregate in ordered] if in_order else []
        self._several = bool(alone)
        self._divisible = nt == 1 and len(alone) == 1 and isinstance(alone[0], Gather)
        self._spreads = nt > 1 or any(isinstance(a, Gather) for a in aggregates)
        self._chunk = chunk
        self._part = max(chunk // GROUPS, 1)
        self.rows_read = 0
        """The number of rows of groups that were evaluated, but for sums."""

    @property
    def search(self) -> Search | None:
        """Return how to find a group's only record in an arrangement that is in the order of the aggregate; None if there are several, or no such order."""
        return self._searches[0] if len(self._searches) == 1 and not self._several else None

    @property
    def digits(self) -> int:
        """Return how many lanes the digits of the sums of an accumulable reduction take."""
        return Sums.digits((Count(), *self.sums))

    def step(
        self,
        delta: Lanes,
        output: Reader,
        inputs: Reader | None = None,
        due: Due = NOTHING_DUE,
        *,
        combined: Lanes | None = None,
    ) -> Reduced:
        """Return the output's updates for the new updates `delta`, [key | value | time | diff] in ascending order of keys.

        `inputs` (not read if `accumulable`) and `output` are the traces before the batch. Unless `accumulable`, `delta` must be sorted by
        all its lanes. `combined` are results of `combine` for other new updates, in ascending order of keys; their groups and times
        are among the seeds that are `due`. Raises SumOverflow, DiffOverflow.
        """
        nk, nt = self.nk, self.nt
        instances = new_instances(delta, nk, nk + self.nv, nt, due.seeds)
        if not len(instances):
            return Reduced(self._none(), np.empty((0, nk + nt), np.int64))
        keys = instances.keys
        past = output.batches_for(keys)
        sources = [delta]
        if not self.accumulable:
            assert inputs is not None, "this reduction reads its inputs"
            sources = [*inputs.batches_for(keys), delta]
        some = max(self._part // (ROWS_A_BOUND * (len(sources) + len(past))), 1)
        if len(keys) <= some:
            return self._of_groups(instances, sources, past, due, combined)
        found = []
        for start in range(0, len(keys), some):
            part = instances.slice(start, min(start + some, len(keys)))
            found.append(self._of_groups(part, sources, past, due, combined))
        updates, pending = ([*parts] for parts in zip(*found, strict=True))
        found.clear()
        # Cut between keys, so they follow each other in order.
        return Reduced(kernels.concat_out_of(updates), kernels.concat_out_of(pending))

    def _of_groups(
        self,
        instances: Instances,
        sources: list[Lanes],
        past: list[Lanes],
        due: Due,
        combined: Lanes | None,
    ) -> Reduced:
        """Return the output's updates of some groups at the new `instances`; `past` is the output so far."""
        nk, nv, nt = self.nk, self.nv, self.nt
        _, upper, ahead = due
        pending = np.empty((0, nk + nt), np.int64)
        outputs = History(past, *kernels.locate(instances.keys, past), nk + self.width)
        bounds, rows = kernels.locate(instances.keys, sources)
        if nt > 1 or ahead:
            history = History(sources[:-1], bounds, rows, nk + nv)
            instances, pending, left = interesting(instances, history, outputs, upper)
            bounds, outputs = bounds[left], outputs._replace(bounds=outputs.bounds[left])
        if self._work(rows, len(instances)) <= self._part:
            return Reduced(self._difference(instances, sources, bounds, outputs, combined), pending)
        parts = [self._none()]
        for start, stop in self._chunks(instances, bounds):
            there = outputs.bounds[start:stop]
            part = outputs._replace(bounds=there, rows=int(sizes(there).sum()))
            some = instances.slice(start, stop)
            alone = self._divisible and stop == start + 1
            if alone and self._work(int(sizes(bounds[start:stop]).sum()), len(some)) > self._chunk:
                parts.append(self._in_turns(some, sources, bounds[start:stop], part))
            else:
                parts.append(self._difference(some, sources, bounds[start:stop], part, combined))
        # Chunks are cut between keys, so their results follow each other in order.
        return Reduced(kernels.concat_out_of(parts), pending)

    def _none(self) -> Lanes:
        """Return a matrix of no updates of the output."""
        return np.empty((0, self.nk + self.width + self.nt + 1), np.int64)

    def _in_turns(self, instances: Instances, sources: list[Lanes], bounds: Lanes, outputs: History) -> Lanes:
        """Return the updates of one group that is too large for all of its instances at once: some instances after the other.

        The output after some instances is the output before the next.
        """
        at, since = self.nk + self.nv, self.nk + self.width
        rows = kernels.gather_bounds(sources, bounds)
        later = np.empty((0, since + 2), np.int64)
        if outputs.sources:
            later = kernels.gather_bounds(outputs.sources, outputs.bounds)
        so_far, made = later[:0], [later[:0]]
        together = max(1, self._chunk // (len(rows) + 1))
        for first in range(0, len(instances), together):
            times, after = instances.times[first : first + together], instances.times[first + together :]
            there, known, later = rows, later, later[:0]
            if len(after):  # later output is not known yet
                early = known[:, since] < after[0, 0]
                there, known, later = rows[rows[:, at] < after[0, 0]], known[early], known[~early]
            known = kernels.consolidate(np.concatenate([so_far, known]))
            some = Instances(instances.keys, np.array([0, len(times)]), times)
            before = History([known], np.array([[0, len(known)]]), len(known), outputs.at)
            found = self._difference(some, [there], np.array([[0, len(there)]]), before)
            made.append(found)
            so_far = np.concatenate([known, found])
            so_far[:, since] = times[-1]
            so_far = kernels.consolidate(so_far)
        return kernels.consolidate(np.concatenate(made))

    def _work(self, rows: Any, instances: Any) -> Any:
        """Return about the rows that are needed, at most, to evaluate the `instances` of groups of `rows` rows."""
        return (rows + 1) * instances if self._spreads else rows + instances

    def _chunks(self, instances: Instances, bounds: Lanes) -> Iterator[tuple[int, int]]:
        """Yield ranges of groups with about as many rows to evaluate as are evaluated together; a larger group is alone."""
        work = np.cumsum(self._work(sizes(bounds), np.diff(instances.first)))
        start = 0
        while start < len(work):
            done = work[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(work, done + self._part, side="right")))
            yield start, stop
            start = stop

    def _difference(
        self,
        instances: Instances,
        sources: list[Lanes],
        bounds: Lanes,
        outputs: History,
        combined: Lanes | None = None,
    ) -> Lanes:
        if self.accumulable:
            return difference(instances, self._totals(instances, sources[0], bounds, outputs, combined), outputs)
        return difference(instances, self._want(instances, sources, bounds), outputs)

    def combine(self, updates: Lanes) -> Lanes | None:
        """Return rows [key | digits | time | 1] that add up to the sums of all updates, one for each of their groups and times.

        None if that would not be far fewer rows. For an accumulable reduction in totally ordered time.
        """
        assert self.accumulable
        assert self.nt == 1
        nk, nv, n = self.nk, self.nv, len(updates)
        if n < LEAST or few_instances(np.ascontiguousarray(updates[:: -(-n // SAMPLE)]), nk, nk + nv) is None:
            return None
        found = few_instances(updates, nk, nk + nv)
        if found is None:
            return None
        heads, instances = found
        # A mean has a sum and a count of its own, which the group may have, too.
        wanted = (Count(), *self.sums)
        distinct = tuple(dict.fromkeys(wanted))
        sums = Sums(len(heads), distinct)
        sums.add(updates, nk, instances)
        digits = kernels.take(sums.limbs(), Sums.digits_of(wanted, distinct))
        first, ones = updates[heads], np.ones((len(heads), 1), np.int64)
        return np.concatenate([first[:, :nk], digits, first[:, nk + nv : nk + nv + 1], ones], axis=1)

    def _placed(self, instances: Instances, rows: Lanes, bounds: Lanes, nv: int) -> tuple[Lanes, Lanes]:
        """Return the `rows` within `bounds`, with the instances' keys, and the instance of each; time is one lane."""
        start, stop = int(bounds[0, 0]), int(bounds[-1, 1])
        there = rows[start:stop]
        at = np.empty(len(there), np.int64)
        begins = np.append(bounds[:, 0], stop) - start
        reduce_rows.assign(there, self.nk + nv, begins, instances.first, instances.times, at)
        return there, at

    def _totals(
        self,
        instances: Instances,
        delta: Lanes,
        bounds: Lanes,
        outputs: History,
        combined: Lanes | None = None,
    ) -> Single:
        """Return the rows that accumulable aggregates want: the output's own numbers so far, and those that the batch adds to them."""
        sums = Sums(len(instances), (Count(), *self.sums))
        first = instances.first
        if self.nt == 1:
            batch, at = self._placed(instances, delta, bounds, self.nv)
            sums.add(batch, self.nk, at)
            if combined is not None:
                there, _ = kernels.locate(instances.keys, [combined])
                part, at = self._placed(instances, combined, there, combined.shape[1] - self.nk - 2)
                sums.add_limbs(part, self.nk, at)
            history = collect(instances, outputs, self.width)
            sums.add_totals(history, 1, np.ascontiguousarray(history[:, -2]))
        else:
            new = replay(instances, [delta], bounds, self.nv)
            sums.add(new.rows, 1, np.ascontiguousarray(new.rows[:, -2]))
            old = replay(instances, outputs.sources, outputs.bounds, self.width)
            sums.add_totals(old.rows, 1, np.ascontiguousarray(old.rows[:, -2]))
            first = new.first
        return Single(*sums.finalize(instances, first, position=-1))

    def _want(self, instances: Instances, sources: list[Lanes], bounds: Lanes) -> Single | Lanes:
        """Return the results of the aggregates: one record for each instance, or rows [instance | output | count]."""
        if self._searches:
            groups = Sources(sources, bounds, self.nk, self.nv, instances.first, instances.times)
            if self._several:
                found = self._top(groups, instances)
                self.rows_read += len(found)
                return found
            self.rows_read += len(instances)
            return first_records(self._searches, groups)
        rows = replay(instances, sources, bounds, self.nv)
        self.rows_read += len(rows.rows)
        if self._several:
            (alone,) = self.aggregates
            assert isinstance(alone, Ordered | Gather)
            return several(alone, rows)
        lanes, present = [], presence(rows)
        for position, other in enumerate(self.aggregates):
            out, some = evaluate(other, rows, position)
            lanes.append(out)
            present = present if some is None else present & some
        return Single(np.concatenate(lanes, axis=1), present)

    def _top(self, groups: Sources, instances: Instances) -> Lanes:
        """Return the rows [instance | output | count] of the first records of groups that are in order."""
        (top,) = self.aggregates
        assert isinstance(top, Ordered)
        found, tied = top_rows(self._searches[0], groups)
        if not tied.any():
            return found
        bounds = np.where(tied[:, None], groups.bounds, 0)
        rows = replay(instances, groups.matrices, bounds, self.nv)
        return in_order_of_instances(found, break_ties(top, rows))
