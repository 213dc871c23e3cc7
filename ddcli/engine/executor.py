"""The executor of a step: takes shards through the stages of a schedule, and loops through their rounds.

A store decides what becomes of updates and operators between two work items. In memory (`memory_store`) both stay as they are: an operator lives from work item to work item. Out of
core and in tasks (`spill_store`) both are put away and taken back: any process may take the next stage or shard.

The rows of a join that would not fit in memory at once pass the operators behind the join part by part. Each part leaves the stage before the next one is made. That is right because
these operators take each row by itself: one that needs more of its groups reads the updates of all shards, so it is of a later stage.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.heap import BufferPool, Heap
from ddcli.engine.memory_store import MemoryStore
from ddcli.engine.operators.base import Delta, summed
from ddcli.engine.operators.join import HalfJoin, Join, RowLookup
from ddcli.engine.process import LARGE
from ddcli.engine.scope_tree import APART, HERE, LATE, Address, ScheduledActivation, advanced
from ddcli.engine.stages import NOTHING, StageResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np

    from ddcli.engine.lanes import Columns
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.schedule import Found, WorkItem
    from ddcli.engine.scope import Scope
    from ddcli.engine.scope_tree import Path, ScopeTree
    from ddcli.engine.spill_store import SpillStore
    from ddcli.engine.stages import Deltas, OperatorSlot, Stage
    from ddcli.engine.trace.spine import Trace

    Part = Callable[[int], np.ndarray | Columns]
    """A part of a source's updates that is not read yet. Its values come into the pool of the shard that reads it."""


GATHERING = 64
"""Rounds after which updates are consolidated across shards; within a shard that is done in each round."""


def step_in_memory(
    nest: ScopeTree,
    fed: dict[int, Delta | Deltas],
    interval: Interval,
    parts: Sequence[tuple[int, Part]] = (),
    on_trace_ready: Callable[[Trace], None] | None = None,
    leave: Callable[[int, Delta], bool] | None = None,
) -> dict[int, Deltas]:
    """Close the interval: step the operators that have work, and return the updates of the places that are kept.

    A shard's updates may `leave` as soon as they are known, in the thread that made them: `leave` returns True for those that it takes.

    `fed` has sources' updates by index, by shard where they have one; all their times are in the interval. They are removed from it, so that
    their last reader releases their memory. The updates of a scope that
    streams may come in `parts`, read as they are needed, and its traces are handed over as soon as all readers are done.
    """
    scope = nest.scope
    found: dict[int, list[list[Delta]]] = {index: [[] for _ in range(scope.workers.count)] for index in scope.kept}
    # A stage that takes parts may emit equal updates in several of them.
    early = {i for stage in scope.stages if not stage.first for i in stage.members - stage.exports} if leave else ()

    def give(index: int, shard: int, delta: Delta) -> None:
        if leave is None or index not in early or not leave(index, delta):
            found[index][shard].append(delta)

    # Reading the resident memory takes longer than a step of few rows.
    store = MemoryStore(nest, on_trace_ready, Heap() if on_trace_ready else None)
    executor = Executor(nest, interval, store, give, parts)
    executor.begin((), range(scope.workers.count))
    for index in [*fed]:
        store.feed(index, fed.pop(index))
    executor.run(store.schedule.work_items())
    # Times before the upper have no more readers, so sealed updates may be compacted up to there.
    nest.close((), interval)
    store.seal((), interval)
    return {index: [summed(given) for given in shards if given] for index, shards in found.items() if any(shards)}


class Executor:
    """A nest that is stepped once, or a loop of it. `give` receives the updates that the outermost scope keeps, by place and shard."""

    def __init__(
        self,
        nest: ScopeTree,
        interval: Interval,
        store: MemoryStore | SpillStore,
        give: Callable[[int, int, Delta], None],
        parts: Sequence[tuple[int, Part]] = (),
    ) -> None:
        self.nest = nest
        self.interval = interval
        self.store = store
        self.give = give
        self.parts = parts

    def begin(self, path: Path, shards: Iterable[int]) -> None:
        """Collect from operators the rounds in which updates wait since earlier intervals."""
        for inner in self.nest.below(path):
            for shard in shards:
                for index, operator in self.nest.scopes[inner].beginners(shard):
                    for rounds in operator.begin(self.interval):
                        self.store.wake(ScheduledActivation((*inner, index), rounds, shard))

    def run(self, work_items: Iterable[tuple[WorkItem, Found[Delta]]]) -> None:
        """Run work items, each for all shards that have work in it."""
        for item, found in work_items:
            self.perform(item, item.shards, found)
            self.store.release(item)

    def perform(self, item: WorkItem, shards: Sequence[int], found: Found[Delta] | None = None) -> None:
        """Run a work item for some shards. In memory the item has `found` its updates, and loses them."""
        found = {} if found is None else found
        match item.action:
            case "stage" | "round":
                self._stage(item, shards, found)
            case "enter":
                self._enter(item, shards, found)
            case "sum":
                self._sum(item, shards, found)
            case "seal":
                self.store.seal(item.path, self.interval.at(item.rounds))
            case _:
                self.store.end(item, shards, self.interval.at(item.rounds))

    # --- stages ---------------------------------------------------------------------------------------------------

    def _stage(self, item: WorkItem, shards: Sequence[int], found: Found[Delta]) -> None:
        """Take shards through a stage."""
        path, scope, interval = item.path, self.nest.scopes[item.path], self.interval.at(item.rounds)
        stage, spills = scope.stages[item.stage], self.store.spills
        if not path:
            scope.announce(stage, len(shards) if spills else None)
        parts = [each for each in self.parts if each[0] in stage.members] if self.parts and not path else []
        busy, rows, take = self.store.inputs(item, stage, shards, found, interval)
        if parts:
            busy, rows, buffers = shards, LARGE, BufferPool()

        def go(shard: int) -> int:
            if parts:
                # Adjacent parts: so a file that is read from its beginning on is read once.
                first, end = (len(parts) * at // len(shards) for at in (shard, shard + 1))
                self.read(stage, shard, parts[first:end], buffers)
            given, result = take(shard), NOTHING
            if given is not None:
                put = partial(self._put, path, stage, shard, item.rounds) if spills else None
                result = scope.through(stage, shard, given.deltas, given.late, given.due, interval, given.routed, put)
                self._put(path, stage, shard, item.rounds, result)
            self.store.has_stepped(path, stage, shard, result.stepped, interval)
            return result.rows

        moved = sum(scope.workers.each(go, busy, rows))
        if path and scope.counted:
            scope.turns.add_round(item.rounds[-1], moved)
        if item.action == "round":
            self.store.seal(path, interval)

    def read(self, stage: Stage, shard: int, parts: Iterable[tuple[int, Part]], buffers: BufferPool) -> None:
        """Take parts of the inputs, by place, through the first stage. Its operators keep nothing, so any shard's operators serve."""
        for index, part in parts:
            result = self.nest.scope.through_first(stage, shard, index, part(shard), self.interval, buffers)
            self.store.has_read(stage, shard, result)
            self._put((), stage, shard, (), result)
            del result
            self.store.forget(shard)

    def _put(self, path: Path, stage: Stage, shard: int, rounds: Rounds, result: StageResult) -> None:
        """Send the updates that a shard emitted in a stage to the stages that read them."""
        scope, feeds, store = self.nest.scopes[path], self.nest.feeds(path), self.store
        for index in [*result.found]:
            delta = result.found.pop(index)
            # A loop's inputs were sent to all readers when they came, but for arrangements: those are read in place.
            if index in stage.exports and (index not in feeds or (*path, index) in self.nest.origins):
                store.send((*path, index), shard, delta, rounds)
            if index not in scope.kept:
                continue
            if path:
                self._leave(path, index, shard, delta, rounds)
            else:
                self.give(index, shard, delta)
        for index, when, delta in result.later:
            store.add(Address((*path, index), LATE, shard, when), delta)
        for index, when in result.wakes:
            store.wake(ScheduledActivation((*path, index), when, shard))

    # --- loops ----------------------------------------------------------------------------------------------------

    def _enter(self, item: WorkItem, shards: Sequence[int], found: Found[Delta]) -> None:
        """Begin a loop, in some rounds of the loops around it: feed the entering updates to its places."""
        path, loop = item.path, self.nest.loop(item.path)
        self.store.enter(item, found)
        for shard in shards:
            if self.store.spills and len(path) == 1:
                self.begin(path, (shard,))
            given = [self.store.take(Address(each, HERE, shard, item.rounds), found) for each in self.nest.inputs(path)]
            for index, number, delta in loop.enter(given):
                self.store.send((*path, index), shard, delta, (*item.rounds, number))
            self.store.forget(shard)

    def _leave(self, path: Path, index: int, shard: int, delta: Delta, rounds: Rounds) -> None:
        """Send the updates of a place of a loop out of it, and to the next round, as far as they go there."""
        loop = self.nest.loop(path)
        if index in loop.leaving:
            self.store.leave(path, index, shard, delta, rounds)
        if loop.bound is None and rounds[-1] >= loop.guard:
            loop.check_settled({index: [delta]})
        for place in loop.turned.get(index, ()):
            if len(updates := advanced(delta)):
                back = Delta(updates, distinct=True)
                self._send_back((*path, place), shard, back, (*rounds[:-1], rounds[-1] + 1))

    def _send_back(self, place: Path, shard: int, delta: Delta, rounds: Rounds) -> None:
        """Send a variable's updates to its next round. From time to time they are consolidated across shards: updates that cancel would circulate for ever."""
        count = self.nest.scope.workers.count
        if count == 1 or rounds[-1] % GATHERING:
            self.store.send(place, shard, delta, rounds)
            return
        lanes = range(delta.updates.shape[1] - 1 - self.nest.scopes[place[:-1]].nt)
        for to, part in enumerate(kernels.exchange([delta.updates], tuple(lanes), count)):
            if len(part):
                self.store.add(Address(place, APART, to, rounds), Delta(part), by=shard)

    def _sum(self, item: WorkItem, shards: Sequence[int], found: Found[Delta]) -> None:
        """Consolidate the variables' updates that were distributed to shards by whole records."""
        for shard in shards:
            for variable in self.nest.loop(item.path).variables:
                place = (*item.path, variable.place.index)
                delta = self.store.take(Address(place, APART, shard, item.rounds), found)
                if delta is not None and len(updates := kernels.consolidate(delta.updates)):
                    self.store.send(place, shard, Delta(updates, distinct=True), item.rounds)
            self.store.forget(shard)


SETTLED = 1 << 18
"""Rows of parts from which on they are consolidated, and again when they have doubled."""


class JoinParts:
    """A shard's way through the operators behind the join at place `index`, part by part; `step` steps an operator, `put` receives the updates that leave the stage.

    Only an output needs to have each record once: where parts may share some (both sides have new rows of a key), its updates are put together here.
    """

    def __init__(
        self,
        scope: Scope,
        step: Callable[[int, OperatorSlot, int, list[Delta], Interval, StageResult], Delta | None],
        stage: Stage,
        shard: int,
        index: int,
        interval: Interval,
        put: Callable[[StageResult], None],
    ) -> None:
        self.scope = scope
        self.step = step
        self.stage = stage
        self.shard = shard
        self.index = index
        self.interval = interval
        self.put = put
        self._waiting: dict[int, list[np.ndarray]] = {}

    def run(self, given: list[Delta]) -> None:
        """Take the result of the join, whose input is `given`, through the stage."""
        behind = [*self._places()]
        place = self.scope.places[self.index]
        operator = place.shards[self.shard]
        assert isinstance(operator, Join | HalfJoin)
        for delta in operator.parts(given):
            part = place.counted(self.shard, given, delta, 0.0) if self.scope.counted and place.name else delta
            given = []  # it is counted once
            if len(part.updates):
                self._pass_on(part, behind)

    def add_to(self, result: StageResult) -> None:
        """Add the updates of outputs that wait here to the result of the stage."""
        for index, parts in self._waiting.items():
            known = [result.found[index]] if index in result.found else []
            result.found[index] = summed([Delta(_settled(parts), distinct=True), *known])

    def _pass_on(self, part: Delta, behind: list[int]) -> None:
        """Step the operators behind the join with a part of its result, and send the updates that leave the stage."""
        found, leaving = {self.index: part}, StageResult()
        for index in behind:
            place = self.scope.places[index]
            # The other inputs of a sum pass by themselves.
            given = [found.get(i, none) for i, none in place.reads]
            if any(len(delta.updates) for delta in given):
                delta = self.step(index, place, self.shard, given, self.interval, leaving)
                if delta is not None and len(delta.updates):
                    found[index] = delta
        for index, delta in found.items():
            if index in self.scope.kept and not (index == self.index and delta.distinct):
                self._keep(index, delta.updates)
            elif index in self.stage.leaves:
                leaving.found[index] = delta
        if leaving.found:
            self.put(leaving)

    def _keep(self, index: int, updates: np.ndarray) -> None:
        """Put updates of an output together with the updates of earlier parts."""
        parts = self._waiting.setdefault(index, [])
        parts.append(updates)
        if sum(map(len, parts)) > max(SETTLED, 2 * len(parts[0])):
            parts[:] = [_settled(parts)]

    def _places(self) -> Iterator[int]:
        """Yield the places behind the join, in their order."""
        behind, places = {self.index}, self.scope.places
        for index in self.stage.places:
            place = places[index]
            if index != self.index and not place.route and not behind.isdisjoint(place.inputs):
                assert not isinstance(place.shards[self.shard], RowLookup), (
                    "a lookup is exchanged, or sorted by its key"
                )
                assert not place.shards[self.shard].traces, "an operator with a trace is exchanged"
                behind.add(index)
                yield index


def _settled(parts: list[np.ndarray]) -> np.ndarray:
    return kernels.consolidate(kernels.concat_out_of(parts))
