"""A scope: operators in the order of their data, stepped together; at the top over intervals of times, in a loop by rounds.

A step hands every operator all new updates of its inputs for the whole interval, however many times it holds. Traces
take in the step's updates when all their readers have stepped, so operators see "before" and "new" apart. Operators without work
are not stepped.

Every collection is in shards, by the hash of a key where an operator needs its groups whole: a shard of an operator has
traces of its own, and the shards step side by side.

A key with a rows on one side and b on the other has a * b pairs, so the result of a join has no bound in the size of its inputs. Where its rows
would not fit in memory at once, the join hands it out in parts (`executor.JoinParts`).
"""

from __future__ import annotations

import itertools
import time as clock
from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.counts import SILENT, RowCounts
from ddcli.engine.lanes import Columns
from ddcli.engine.operators.base import Delta, Operator, empty, summed
from ddcli.engine.operators.reduce_aggregates import SumOverflow
from ddcli.engine.process import Workers
from ddcli.engine.rounds import split_rounds
from ddcli.engine.stages import Handle, OperatorSlot, StageResult, stages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import numpy as np

    from ddcli.engine.counts import Progress
    from ddcli.engine.executor import JoinParts
    from ddcli.engine.heap import BufferPool
    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.join import PairRoom
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.scope_tree import LoopScope
    from ddcli.engine.stages import Deltas, Stage
    from ddcli.engine.trace.spine import Trace


class Scope:
    """Operators that step together, at places, over times of `nt` lanes, the last `depth` of them rounds.

    With `counted`, the rows of named places are counted. A scope that `streams` has small stages: places that read only
    sources take these in parts, and places that share nothing run in turn. In one that `combines` accumulations add up parts of their
    input before the exchange. `pairs` is the room for rows of joins, where it has a bound. `progress` is notified of the stages.
    """

    def __init__(
        self,
        nt: int = 1,
        depth: int = 0,
        workers: Workers | None = None,
        *,
        counted: bool = False,
        streams: bool = False,
        combines: bool = False,
        pairs: PairRoom | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self.nt = nt
        self.depth = depth
        self.workers = workers or Workers()
        self.counted = counted
        self.streams = streams
        self.combines = combines or streams
        self.pairs = pairs
        self.progress = progress
        self.watch: Callable[[], None] | None = None
        """Called before each stage: it may raise, to end the step."""
        self.open_traces: Callable[[], None] | None = None
        """Called before a shard steps in a stage, when the operators that may step have been made: it may open their traces side by side."""
        self.turns = RowCounts()
        self.places: list[OperatorSlot] = []
        self.stages: list[Stage] = []
        self.kept: set[int] = set()
        self._beginners: dict[int, list[tuple[int, Operator]]] = {}
        self._closers: list[Operator] | None = None

    def source(self, width: int, layout: Layout | None = None) -> Handle:
        """Add a place that is fed from outside, with `width` data lanes."""
        return self._add(OperatorSlot((), self._none(width), layout))

    def fed(self, shards: Sequence[Operator], width: int, layout: Layout | None = None) -> Handle:
        """Add operators that are fed from outside, each shard with its own updates, of `width` lanes in all."""
        none = Delta(empty(width), distinct=True)
        return self._add(OperatorSlot((len(self.places),), none, layout, shards, fed=True))

    def add(
        self,
        shards: Sequence[Operator],
        *inputs: Handle,
        width: int,
        layout: Layout | None = None,
        route: Sequence[int] = (),
        shifts: bool = False,
        wraps: bool = False,
        arranges: bool = False,
    ) -> Handle:
        """Add an operator that reads the given places, all added before it, and emits `width` data lanes.

        `shifts` marks that its updates may be in later rounds, `wraps` that its readers read its input's trace, `arranges`
        that its updates come from its trace.
        """
        places = tuple(handle.index for handle in inputs)
        none, shifts = self._none(width), shifts and self.depth > 0
        return self._add(
            OperatorSlot(
                places, none, layout, shards, route=tuple(route), shifts=shifts, wraps=wraps, arranges=arranges
            )
        )

    def add_inner(
        self, inner: LoopScope, *inputs: Handle, widths: Sequence[int], layouts: Sequence[Layout] = ()
    ) -> list[Handle]:
        """Add a scope within this one, whose collections leave with `widths` data lanes."""
        place = OperatorSlot(tuple(handle.index for handle in inputs), self._none(0), inner=inner)
        self._add(place)
        handles = [self.source(*each) for each in itertools.zip_longest(widths, layouts)]
        place.ports = tuple(handle.index for handle in handles)
        return handles

    def call(
        self,
        handle: Handle,
        name: str,
        label: str,
        *,
        keeps_signs: bool = False,
        takes: bool = True,
        emits: bool = True,
    ) -> None:
        """Set an operator's `name` in counts, its `label` for people, and whether it returns only insertions for insertions.

        Where an operator has several places, its rows in are counted at the one that `takes` them, its rows out at the one that `emits` them.
        """
        place = self.places[handle.index]
        place.name, place.label, place.keeps_signs, place.takes, place.emits = name, label, keeps_signs, takes, emits

    def keep(self, handle: Handle) -> None:
        """Have a step return the updates of a place."""
        assert not self.stages, "a scope that has stepped is fixed"
        self.kept.add(handle.index)

    def _none(self, width: int) -> Delta:
        return Delta(empty(width + self.nt + 1), distinct=True)

    def _add(self, place: OperatorSlot) -> Handle:
        assert not self.stages, "a scope that has stepped is fixed"
        self.places.append(place)
        return Handle(len(self.places) - 1)

    def prepare(self) -> None:
        """Fix the scope: find its stages, and the last reader of each place's updates, after which they are released."""
        if self.stages:
            return
        self.stages = stages(self.places, self.kept, sharded=self.workers.count > 1 or self.streams, apart=self.streams)
        for place in self.places:
            place.reads = tuple((i, self.places[i].none) for i in place.inputs)

    def announce(self, stage: Stage, tasks: int | None = None) -> None:
        """Notify the progress, if there is one, that a stage begins."""
        if self.watch is not None:
            self.watch()
        if self.progress is SILENT:
            return
        number = self.stages.index(stage) + 1
        self.progress.begin(f"stage {number} of {len(self.stages)}: {self.title(stage)}", tasks)

    def title(self, stage: Stage) -> str:
        """Return a description of a stage for the display of progress."""
        labels = [self.places[index].label for index in stage.places]
        return ", ".join(dict.fromkeys(label for label in labels if label)) or "inputs"

    def counts(self) -> Iterator[tuple[str, RowCounts]]:
        """Yield the counts of each named place, and of those in scopes within."""
        for place in self.places:
            if place.name:
                for count in place.counts.values():
                    yield place.name, count
            if place.inner is not None:
                yield from place.inner.counts()
                if place.name:
                    yield place.name, place.inner.turns

    def traces(self) -> Iterator[Trace]:
        """Yield the traces of all operators."""
        for place in self.places:
            for operator in place.shards:
                yield from operator.traces
            if place.inner:
                yield from place.inner.traces()

    @property
    def is_single(self) -> bool:
        """Return whether it has one stage and one shard: then all updates that wait in it are for these."""
        return len(self.stages) == 1 and self.workers.count == 1

    def beginners(self, shard: int) -> list[tuple[int, Operator]]:
        """Return a shard's operators that do something when an interval begins, each with its place."""
        found = self._beginners.get(shard)
        if found is None:
            every = [(at, each) for at, place in enumerate(self.places) for each in place.shards[shard : shard + 1]]
            found = self._beginners[shard] = [(at, each) for at, each in every if _does(each, "begin")]
        return found

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self, fed: dict[int, Delta | Deltas], interval: Interval) -> dict[int, Deltas] | None:
        """Close the interval if this is one stage of one shard, without loops: nothing is scheduled, as that would take longer than a step of few rows.

        Else return None. `fed` has sources' updates by index, and loses them; return the updates of the places that are kept.
        """
        self.prepare()
        if not self.is_single or self.streams or self.stages[0].whole:
            return None
        (stage,) = self.stages
        self.announce(stage)
        given = {
            index: each if isinstance(each, Delta) else summed(each) for index in [*fed] for each in [fed.pop(index)]
        }
        due = {index for index, each in self.beginners(0) if any(True for _ in each.begin(interval))}
        found = self.through(stage, 0, given, {}, due, interval)
        self.close(interval)
        self.seal(found.stepped, 0, interval)
        return {index: [delta] for index, delta in found.found.items()}

    def through(
        self,
        stage: Stage,
        shard: int,
        deltas: dict[int, Delta],
        late: dict[int, Delta],
        due: Collection[int],
        interval: Interval,
        routed: dict[tuple[int, int], Delta] | None = None,
        put: Callable[[StageResult], None] | None = None,
    ) -> StageResult:
        """Take one shard through a stage, and return the result; parts of it, of a join that has many rows, are `put` before.

        `deltas` has the updates that the stage reads of others, `late` those held for these rounds, `routed` those exchanged for this shard, by
        place and input. All of them are removed.
        Shards share nothing here, so threads may take them at once.
        """
        result, places, goes_on, leaves = StageResult(), self.places, stage.goes_on, stage.leaves
        parted: list[JoinParts] = []
        waiting = _begun(stage, deltas, routed, due, late)
        self._open(stage, shard, waiting)
        while waiting:
            at = (waiting & -waiting).bit_length() - 1
            waiting &= waiting - 1
            index, frees = stage.places[at], stage.frees[at]
            place = places[index]
            if place.shards:
                called, given, arrived = index in due, [], routed if place.route else None
                for i, none in place.reads:  # no comprehension: that is a call for each of many places
                    delta = deltas.get(i) if arrived is None else arrived.pop((index, i), None)
                    if delta is None:
                        given.append(none)
                    else:  # a place without updates is in neither
                        called = True
                        given.append(delta)
                    del delta
                for i in frees:  # their last reader may overwrite them
                    deltas.pop(i, None)
                try:
                    found = self.stepped(index, place, shard, given, interval, result) if called else None
                except kernels.ManyPairs:
                    if put is None:
                        raise
                    from ddcli.engine.executor import JoinParts  # few runs have so many rows

                    parted.append(JoinParts(self, self.stepped, stage, shard, index, interval, put))
                    parted[-1].run(given)
                    found = None
            else:
                found = deltas.get(index)
            if late and index in late:
                held = late.pop(index)
                found = held if found is None else summed([held, found])
                del held
            if self.counted and found is not None and place.name and not place.shards:
                found = place.counted(shard, (), found, 0.0)
                result.rows += len(found.updates)
            given = []
            if found is not None and len(found.updates):
                deltas[index] = found
                waiting |= goes_on.get(index, 0)
                if index in leaves:
                    result.found[index] = found if found.decoded is None else found._replace(decoded=None)
            else:
                deltas.pop(index, None)
            del found
            if index in frees:
                deltas.pop(index, None)
        for parts in parted:
            parts.add_to(result)
        return result

    def _open(self, stage: Stage, shard: int, waiting: int) -> None:
        """Make those operators of a shard that are waiting to be stepped, or come behind these, and have their traces opened."""
        if self.open_traces is None:
            return
        for at, index in enumerate(stage.places):
            if waiting >> at & 1 and self.places[index].shards:
                _ = self.places[index].shards[shard]
                waiting |= stage.goes_on.get(index, 0)
        self.open_traces()

    def stepped(
        self, index: int, place: OperatorSlot, shard: int, given: list[Delta], interval: Interval, result: StageResult
    ) -> Delta | None:
        """Return the updates that a shard of an operator emits in these rounds; add its counts, times and pending work to `result`."""
        operator = place.shards[shard]
        try:
            if self.counted and place.name:
                read, began = operator.rows_read, clock.perf_counter()
                found = operator.step([*given], interval)
                found = place.counted(shard, given, found, clock.perf_counter() - began)
                if operator.rows_read != read:
                    place.count(shard).rows_read += operator.rows_read - read
                result.rows += len(found.updates)
                assert found.updates.shape[1] == place.none.updates.shape[1]
                assert not found.owned, "a result may have several readers"
            else:
                found = operator.step(given, interval)
        except SumOverflow as error:
            if operator.report is None:
                raise
            raise operator.report(error) from error
        if operator.seals:
            result.stepped.append(index)
        if wakes := operator.wakes:
            result.wakes += [(index, rounds) for rounds in wakes]
            wakes.clear()
        return self._here(index, found, interval.rounds, result) if place.shifts else found

    def through_first(
        self, stage: Stage, shard: int, index: int, found: np.ndarray | Columns, interval: Interval, buffers: BufferPool
    ) -> StageResult:
        """Take a part of a place's input through a stage whose operators keep nothing; in columns where all its readers take columns."""
        if not isinstance(found, Columns):
            delta = Delta(found)
        elif self._takes_columns(stage, shard, index):
            found.check()
            delta = Delta(found.tail, columns=found)
        else:
            delta = Delta(found.matrix(buffers.matrix), decoded=found.exact())
        del found
        return self.through(stage, shard, {index: delta}, {}, (), interval)

    def _takes_columns(self, stage: Stage, shard: int, index: int) -> bool:
        """Return whether all readers of a place take columns."""
        if index in stage.leaves:
            return False
        readers = (self.places[i] for i in stage.places if index in self.places[i].inputs)
        return all(place.shards and place.shards[shard].takes_columns for place in readers)

    def seal(self, indices: Iterable[int], shard: int, interval: Interval) -> None:
        """Take the updates of a shard's last step at some places into its traces."""
        for index in indices:
            place = self.places[index]
            began = clock.perf_counter() if self.counted else 0.0
            place.shards[shard].seal(interval)
            if self.counted:
                place.count(shard).seconds += clock.perf_counter() - began

    def close(self, interval: Interval) -> None:
        """Have all operators release what has no reader from the interval's upper on.

        Reductions in loops are first: they release copies of batches that the traces then merge.
        """
        if self._closers is None:
            found = [each for place in self.places for each in place.shards if _does(each, "close")]
            self._closers = sorted(found, key=lambda each: each.revisiting is None)
        for operator in self._closers:
            operator.close(interval)

    def _here(self, index: int, delta: Delta, rounds: Rounds, result: StageResult) -> Delta | None:
        """Return the updates of these rounds; the others are held at their place until their round comes."""
        if kernels.rounds_equal(delta.updates, delta.updates.shape[1] - 1 - len(rounds), rounds):
            return delta
        here, depth = None, self.depth
        for when, updates in split_rounds(delta.updates, delta.updates.shape[1] - 1 - depth, depth):
            part = Delta(updates, delta.distinct)
            if when == rounds:
                here = part
            else:
                result.later.append((index, when, part))
        return here


def _does(operator: Operator, method: str) -> bool:
    """Return whether an operator overrides a method that by default does nothing."""
    return getattr(type(operator), method) is not getattr(Operator, method)


def _begun(
    stage: Stage,
    deltas: dict[int, Delta],
    routed: dict[tuple[int, int], Delta] | None,
    due: Iterable[int],
    late: Iterable[int],
) -> int:
    """Return the bits of the places that a shard steps first: those with updates to read, and those called. Remove entries without updates."""
    found, begins = 0, stage.begins
    for index in [*deltas]:
        if len(deltas[index].updates):
            found |= begins.get(index, 0)
        else:  # a slice without rows would hold its memory
            del deltas[index]
    if routed:
        for at in [*routed]:
            if len(routed[at].updates):
                found |= begins[at[0]]
            else:
                del routed[at]
    if due or late:
        for index in itertools.chain(due, late):
            found |= begins.get(index, 0)
    return found
