"""The store of a step in memory: operators live from work item to work item, and updates wait in the schedule. A stage's updates are exchanged for all shards when it begins."""

from __future__ import annotations

import itertools
import time as clock
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ddcli.engine import kernels
from ddcli.engine.arrow import release_returned
from ddcli.engine.heap import BufferPool, give_back
from ddcli.engine.operators.base import Delta, summed
from ddcli.engine.process import LARGE
from ddcli.engine.schedule import Schedule
from ddcli.engine.scope_tree import HERE, LATE, Address, LeavingUpdates
from ddcli.engine.stages import StageInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from ddcli.engine.heap import Heap
    from ddcli.engine.kernels.packed_rows import PackedRows
    from ddcli.engine.process import Workers
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.schedule import Found, WorkItem
    from ddcli.engine.scope_tree import Path, ScheduledActivation, ScopeTree
    from ddcli.engine.stages import Deltas, Stage, StageResult
    from ddcli.engine.trace.spine import Trace

    Given = dict[int, dict[int, list[Delta]]]
    """The updates that wait for a stage, by place and shard."""
    Waiting: TypeAlias = "dict[tuple[int, int], Delta | PackedArrival]"
    """The exchanged updates of a shard, by place and input."""

MANY = 1 << 16
"""Updates of rounds and stages after which freed memory is given back: to take it again costs a few hundredths of their time."""


class MemoryStore:
    """The updates that wait in memory. `on_trace_ready` receives each trace of the outermost scope as soon as its readers are done.

    With a `heap` freed memory is kept, and given back between stages of the outermost scope only.
    """

    spills = False

    def __init__(
        self, nest: ScopeTree, on_trace_ready: Callable[[Trace], None] | None = None, heap: Heap | None = None
    ) -> None:
        self.nest = nest
        self.schedule: Schedule[Delta] = Schedule(nest, range(nest.scope.workers.count))
        self.on_trace_ready = on_trace_ready
        self._heap = heap
        self._emitted = 0
        """The updates emitted since memory was given back."""
        self._left: dict[Path, dict[tuple[int, int], LeavingUpdates]] = {path: {} for path in nest.scopes}
        """The updates that have left a loop, by place and shard."""
        self._stepped: dict[Path, list[set[int]]] = {
            path: [set() for _ in range(scope.workers.count)] for path, scope in nest.scopes.items()
        }
        """The places whose traces have updates to take in, by scope and shard."""
        self._entered: dict[Path, float] = {}

    def add(self, at: Address, delta: Delta, by: int = 0) -> None:
        """Have updates wait at an address."""
        self._emitted += delta.rows
        self.schedule.add(at, delta)

    def feed(self, index: int, given: Delta | Deltas) -> None:
        """Have the input of a place wait for it, spread evenly over the shards unless it comes by shard."""
        count = self.nest.scope.workers.count
        for shard, delta in enumerate(given if isinstance(given, list) else distributed(given, count)):
            if delta.rows:
                self.add(Address((index,), HERE, shard), delta)

    def wake(self, wake: ScheduledActivation) -> None:
        """Have an operator called in some rounds."""
        self.schedule.wake(wake)

    def send(self, place: Path, shard: int, delta: Delta, rounds: Rounds) -> None:
        """Have updates of a place wait for its readers."""
        self.add(Address(place, HERE, shard, rounds), delta)

    def take(self, at: Address, found: Found[Delta]) -> Delta | None:
        """Return the updates that a work item has found at an address."""
        return summed(found[at]) if at in found else None

    def forget(self, shard: int) -> None:
        """Keep all: operators live on."""

    def release(self, item: WorkItem) -> None:
        """Return memory that is free after a work item to the system; of many updates, unless there is a `Heap`."""
        if self._heap is None:
            if self._emitted >= MANY:
                self._emitted = 0
                release_returned()
                give_back()
        elif item.action == "stage" and not item.path:
            release_returned()
            self._heap.give_back()

    # --- stages ---------------------------------------------------------------------------------------------------

    def inputs(
        self, item: WorkItem, stage: Stage, shards: Sequence[int], found: Found[Delta], interval: Interval
    ) -> tuple[Sequence[int], int, Callable[[int], StageInput | None]]:
        """Return the shards to take through a stage, the number of rows, and a function that returns a shard's input, if it has work. `found` loses its updates.

        The last reader of given updates releases them.
        """
        path, scope = item.path, self.nest.scopes[item.path]
        alone = scope.workers.count == 1 and not scope.streams  # nothing is exchanged
        inputs: dict[int, StageInput] = defaultdict(StageInput)
        given: Given = defaultdict(dict)
        rows = 0
        while found:
            at, parts = found.popitem()
            rows += 0 if alone else sum([delta.rows for delta in parts])
            if at.what == LATE:
                inputs[at.shard].late[at.place[-1]] = summed(parts)
                continue
            for index in self._read_at(at.place, path, stage):
                if alone:
                    inputs[at.shard].deltas[index] = summed(parts)
                else:
                    given[index][at.shard] = parts
            del parts
        for wake in item.due:
            if wake.place not in self.nest.origins:  # where an arrangement enters, only its updates are passed on
                inputs[wake.shard].due.add(wake.place[-1])
        if alone:
            return shards, 0, lambda shard: inputs[shard]
        routed = self._exchange(path, stage, given)
        while given:
            index, by_shard = given.popitem()
            while by_shard:
                shard, parts = by_shard.popitem()
                inputs[shard].deltas[index] = summed(parts)
                del parts
        busy, buffers = sorted({*inputs, *routed}), BufferPool()

        def take(shard: int) -> StageInput | None:
            if shard not in inputs and shard not in routed:
                return None
            here = inputs.pop(shard, None) or StageInput()
            here.routed = self._unpacked(path, shard, routed.pop(shard, {}), buffers)
            return here

        return (busy, rows, take) if path or self.on_trace_ready is None else (shards, LARGE, take)

    def _read_at(self, place: Path, path: Path, stage: Stage) -> Sequence[int]:
        """Return the places of a stage at which updates of a place are read: its own, or those where its arrangement enters the scope."""
        if len(place) > len(path):
            return place[-1:]
        return [at[-1] for at, origin in self.nest.entered_traces(path) if origin == place and at[-1] in stage.members]

    def _exchange(self, path: Path, stage: Stage, given: Given) -> dict[int, Waiting]:
        """Return the exchanged inputs of the places of a stage that need their groups whole, by shard; updates without another reader are removed from `given`."""
        scope = self.nest.scopes[path]
        places, routed = scope.places, defaultdict[int, "Waiting"](dict)
        read = {i for index in stage.places if not places[index].route for i in places[index].inputs}
        gathering = [(index, i) for index in stage.places if places[index].route for i in places[index].inputs]
        last = {i: index for index, i in gathering if scope.streams and i in stage.seals - stage.members - read}
        for index, i in gathering:
            if i not in given:
                continue
            began, ends = clock.perf_counter(), last.get(i) == index
            by_shard = given.pop(i) if ends else given[i]
            parts = [by_shard[shard] for shard in sorted(by_shard)]
            deltas = drained(parts) if ends else itertools.chain.from_iterable(parts)
            for shard, delta in enumerate(exchanged_for(deltas, index, self._way(path, index, i), scope.workers)):
                if delta.rows:
                    routed[shard][index, i] = delta
            if scope.counted:
                places[index].count(0).seconds += clock.perf_counter() - began
        for i in [i for i in given if i not in read and i not in stage.members]:
            del given[i]
        return routed

    def _way(self, path: Path, index: int, i: int) -> Routing:
        """Return the exchange of one place's updates for another."""
        scope = self.nest.scopes[path]
        place = scope.places[index]
        # Many rows are exchanged in the lanes that their reader keeps: else it would copy them all.
        taken = place.shards[0].takes(scope.places[i].none.updates.shape[1]) if scope.streams else None
        return Routing(place.route, taken)

    def _unpacked(self, path: Path, shard: int, waiting: Waiting, buffers: BufferPool) -> dict[tuple[int, int], Delta]:
        """Return the exchanged updates of a shard, and remove them."""
        scope, found = self.nest.scopes[path], {}
        while waiting:
            at, delta = waiting.popitem()
            if isinstance(delta, PackedArrival):
                began = clock.perf_counter()
                delta = delta.arrived(buffers)
                if scope.counted:
                    scope.places[at[0]].count(shard).seconds += clock.perf_counter() - began
            found[at] = delta
            del delta
        return found

    def has_read(self, stage: Stage, shard: int, result: StageResult) -> None:
        """Distribute the updates of a part of an input, where all readers need an exchange: as soon as they are read."""
        scope = self.nest.scope
        for index in stage.exports - scope.kept:
            readers = [at for at, place in enumerate(scope.places) if at not in stage.members and index in place.inputs]
            if index in result.found and all(scope.places[at].route for at in readers):
                began = clock.perf_counter()
                ways = {at: self._way((), at, index) for at in readers}
                result.found[index] = distributed_to(ways, result.found[index], scope.workers.count)
                if scope.counted:
                    scope.places[readers[0]].count(shard).seconds += clock.perf_counter() - began

    def has_stepped(self, path: Path, stage: Stage, shard: int, stepped: Sequence[int], interval: Interval) -> None:
        """Note the places that have stepped. Where traces are handed over, those without readers after the stage are: they take in the new updates."""
        waiting = self._stepped[path][shard]
        waiting.update(stepped)
        if path or self.on_trace_ready is None:
            return
        for index in sorted(waiting):
            operator = self.nest.scope.places[index].shards[shard]
            if stage.takes_in(index, shared=operator.shared):
                waiting.discard(index)
                operator.close(interval)
                self.nest.scope.seal((index,), shard, interval)
                for trace in operator.traces:
                    self.on_trace_ready(trace)

    def seal(self, path: Path, interval: Interval) -> None:
        """Have the traces of operators that have stepped take in their updates: all readers are done, and so is a loop's round."""
        scope = self.nest.scopes[path]
        for shard, waiting in enumerate(self._stepped[path]):
            scope.seal(waiting, shard, interval)
            waiting.clear()
        if path and scope.counted:
            scope.turns.turn(interval.rounds[-1], 0)

    # --- loops ----------------------------------------------------------------------------------------------------

    def enter(self, item: WorkItem, found: Found[Delta]) -> None:
        """Begin a loop, in some rounds of the loops around it."""
        path, scope = item.path, self.nest.scopes[item.path]
        if len(path) == 1:
            around = self.nest.scope
            around.announce(next(stage for stage in around.stages if path[0] in stage.places))
        if scope.counted:
            self._entered[path] = clock.perf_counter()
            rows = sum(
                delta.rows
                for place in self.nest.inputs(path)
                for at, parts in found.items()
                if at.place == place
                for delta in parts
            )
            self.nest.slot(path).count(0).rows_in += rows
        self.nest.loop(path).restart()

    def leave(self, path: Path, index: int, shard: int, delta: Delta, rounds: Rounds) -> None:
        """Keep updates of a place of a loop that leave it until the loop ends."""
        self._emitted += delta.rows
        left = self._left[path]
        if (index, shard) not in left:
            left[index, shard] = LeavingUpdates()
        left[index, shard].add(delta.updates)

    def end(self, item: WorkItem, shards: Sequence[int], interval: Interval) -> None:
        """End a loop, in some rounds of the loops around it: its leaving updates come to its ports."""
        path, slot = item.path, self.nest.slot(item.path)
        self.release(item)  # the memory of rounds of few rows, before the updates that have left are put together
        left, self._left[path] = self._left[path], {}
        # Equal collections leave by several ports: they are of one place.
        sums = {at: each.delta() for at, each in left.items()}
        count = slot.count(0)
        for index, port in zip(self.nest.loop(path).leaving, slot.ports, strict=True):
            for shard in shards:
                delta = sums.get((index, shard))
                if delta is None or not delta.rows:
                    continue
                self.add(Address((*path[:-1], port), HERE, shard, item.rounds), delta)
                if path in self._entered:
                    count.rows_out += delta.rows
                    count.inserted += kernels.inserted(delta.updates)
        if path in self._entered:
            count.seconds += clock.perf_counter() - self._entered.pop(path)


# --- exchanges ----------------------------------------------------------------------------------------------------


class Routing(NamedTuple):
    """The exchange of updates for a reader that needs its groups whole: `route` are the lanes whose hash is the shard, `taken` those that are copied, None for all."""

    route: tuple[int, ...]
    taken: tuple[int, ...] | None = None


class DistributedDelta(Delta):
    """A part of a load that was distributed to the shards of each reader, by its place, and waits packed. Only they read it, each once."""

    __slots__ = ()

    @property
    def rows(self) -> int:
        """The number of updates."""
        return max((sum(map(len, parts)) for parts in self.held.values()), default=0)

    @property
    def held(self) -> dict[int, list[PackedRows]]:
        """Return the parts of each shard."""
        return self[0]  # type: ignore[return-value]


def distributed_to(readers: Mapping[int, Routing], delta: Delta, count: int) -> DistributedDelta:
    """Return updates distributed to `count` shards of each reader, in the lanes that it takes. Readers with equal routings share the parts."""
    made = {way: _distributed_packed(delta.updates, way, count) for way in set(readers.values())}
    held = {reader: made[way] for reader, way in readers.items()}
    return DistributedDelta(held, delta.distinct, delta.inserts)  # type: ignore[arg-type]


def _distributed_packed(updates: np.ndarray, way: Routing, count: int) -> list[PackedRows]:
    return kernels.distributed_packed(updates, way.route, count, way.taken)


class PackedArrival(NamedTuple):
    """The exchanged updates of a shard, which wait packed until the shard is stepped."""

    parts: list[PackedRows]
    taken: tuple[int, ...] | None
    inserts: bool

    @property
    def rows(self) -> int:
        """The number of updates."""
        return sum(map(len, self.parts))

    def arrived(self, buffers: BufferPool) -> Delta:
        """Return the updates, in reused memory."""
        found = kernels.unpacked(self.parts, buffers.matrix)
        return Delta(found, inserts=self.inserts, taken=self.taken is not None, owned=True)


def exchanged_for(
    deltas: Iterable[Delta], reader: int, way: Routing, workers: Workers
) -> Sequence[Delta | PackedArrival]:
    """Return updates exchanged for a reader. A load's updates were partitioned as they were read: they are unpacked when a shard is stepped."""
    found = list(deltas)
    if not any(isinstance(delta, DistributedDelta) for delta in found):
        return exchanged(found, way, workers)
    inserts = all(delta.inserts or not delta.rows for delta in found)
    waiting: list[list[PackedRows]] = [[] for _ in range(workers.count)]
    while found:
        delta = found.pop(0)
        if isinstance(delta, DistributedDelta):
            distributed = delta.held.pop(reader)
        elif delta.rows:
            distributed = _distributed_packed(delta.updates, way, workers.count)
        else:
            continue
        for parts, part in zip(waiting, distributed, strict=True):
            parts.append(part)
    return [PackedArrival(parts, way.taken, inserts) for parts in waiting]


def exchanged(deltas: list[Delta], way: Routing, workers: Workers) -> Deltas:
    """Exchange updates by key, and release their old matrices."""
    inserts = all(delta.inserts or not delta.rows for delta in deltas)

    def sources() -> Iterator[np.ndarray]:
        while deltas:
            yield deltas.pop(0).updates

    parts = kernels.exchange(sources(), way.route, workers.count, workers.each, way.taken)
    # Equal rows have equal keys, but rows that are distinct within two shards may be equal.
    return [Delta(part, inserts=inserts, taken=way.taken is not None) for part in parts]


def distributed(delta: Delta, count: int) -> Deltas:
    """Return updates, spread evenly over `count` shards."""
    ends = [len(delta.updates) * shard // count for shard in range(count + 1)]
    return [Delta(delta.updates[a:b], delta.distinct) for a, b in itertools.pairwise(ends)]


def drained(parts: Sequence[Deltas]) -> Iterator[Delta]:
    """Yield the deltas of parts, and remove them from there, so that the caller can release their memory."""
    for deltas in parts:
        while deltas:
            yield deltas.pop(0)
