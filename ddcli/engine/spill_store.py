"""The store of a step whose updates don't fit in memory, and of tasks: the updates between stages, and between the rounds of loops, are put away until they are read.

The inputs go through the first stage slice by slice. From then on one shard after the other (as many at once as there are
threads) passes a stage: its updates are read, its operators step, their updates are stored for the
stages that read them, and their traces take in the new updates and are handed over to the state. So memory holds only the updates of a shard in
one stage, for any sizes of input, state and output.

In memory an operator lives through all rounds of a loop. As tasks each round has operators of its own. Their knowledge of the rounds
before is stored as updates: those that their traces took in, the groups to evaluate in later rounds, the updates of variables
for the next round, those that have left. The next worker of a shard, in this process or another, restores the operators from these. A loop, or the rest of it,
can also run in memory, from the stored updates (`run_loop`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.executor import Executor
from ddcli.engine.heap import Heap
from ddcli.engine.lanes import Layout
from ddcli.engine.memory_store import MemoryStore
from ddcli.engine.operators.base import Delta, StatefulOperator
from ddcli.engine.operators.join import Entered
from ddcli.engine.process import LARGE
from ddcli.engine.rounds import without_rounds
from ddcli.engine.scope_tree import APART, CALLED, EXCHANGED, HERE, KEPT, LATE, Address, Memos, Path
from ddcli.engine.stages import StageInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy as np

    from ddcli.engine.operators.base import Operator
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.schedule import WorkItem
    from ddcli.engine.scope_tree import Exchange, ScheduledActivation, ScopeTree
    from ddcli.engine.stages import Stage, StageResult
    from ddcli.engine.trace.spine import Trace

LANES = Layout({})
"""The layout of keys, without types: the values behind their hashes are not needed before the groups are read, which have them."""


@dataclass
class SpillStore:
    """The stored data of a step: updates by place and shard, and operators between rounds.

    `on_trace_ready` receives each trace that is done with this step. `pools` has
    one for each shard, forgotten after each task that filled it.
    """

    spills = True

    nest: ScopeTree
    pools: Sequence[Pool]
    exchange: Exchange
    on_trace_ready: Callable[[Trace], None]
    memos: Memos = field(default_factory=dict)
    wakes: list[ScheduledActivation] = field(default_factory=list)
    """The calls at later rounds that operators of loops want."""
    readers: dict[Path, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The readers that need a place's updates distributed by key."""
    _found: set[tuple[Path, int]] = field(default_factory=set)
    """The restored operators of loops, by shard."""

    def __post_init__(self) -> None:
        scope = self.nest.scope
        assert scope.workers.count > 1, "out of core means shard by shard"
        assert scope.depth == 0, "a loop steps in memory"
        for path, each in self.nest.scopes.items():
            assert not any(place.wraps for place in each.places), "a trace that is filtered on read is read in memory"
            for index, place in enumerate(each.places):
                if place.route:
                    self.readers[*path, place.inputs[0]].append(index)

    def layout(self, place: Path) -> Layout:
        """Return the layout of a place's updates."""
        layout = self.nest.slot(place).layout
        assert layout is not None, "stored updates have a layout"
        return layout

    def add(self, at: Address, delta: Delta, by: int | None = None) -> None:
        """Store updates for an address; their values are in the pool of the shard `by`, by default the same."""
        pool = self.pools[at.shard if by is None else by]
        self.exchange.add(at, kernels.matrix(delta.updates), self.layout(at.place), pool)

    def read(self, at: Address, place: Path, *, last: bool) -> np.ndarray | None:
        """Return the updates of a place that wait at an address, None if there are none; the `last` reader removes them."""
        return self.exchange.take(at, self.layout(place), self.pools[at.shard], last=last)

    def take(self, at: Address, found: object = None) -> Delta | None:
        """Return the updates that enter a loop, or are to be consolidated in it."""
        updates = self.read(at, at.place, last=at.what == APART)
        return None if updates is None else Delta(updates)

    def wake(self, wake: ScheduledActivation) -> None:
        """Have an operator called in some rounds."""
        self.wakes.append(wake)

    def send(self, place: Path, shard: int, delta: Delta, rounds: Rounds) -> None:
        """Send updates of a place to the shards of their keys, for each reader that is partitioned by them; leave them here for the other readers."""
        path, index, scope = place[:-1], place[-1], self.nest.scopes[place[:-1]]
        updates = kernels.matrix(delta.updates)
        if not len(updates):
            return
        for reader in self.readers[place]:
            parts = kernels.exchange([updates], tuple(scope.places[reader].route), scope.workers.count)
            for to, part in enumerate(parts):
                if len(part):
                    at = Address((*path, reader), EXCHANGED, to, rounds)
                    self.exchange.add(at, part, self.layout(place), self.pools[shard])
        # The stage of its last reader restores a shared trace, also where all readers get its updates by other keys.
        shared = [o for o in self.operator(place, shard) if o.shared and isinstance(o, StatefulOperator)]
        unrouted = any(index in other.inputs and not other.route for other in scope.places)
        if shared or unrouted or (path and index in scope.kept):
            self.add(Address(place, HERE, shard, rounds), Delta(updates))
        for operator in shared:
            operator.drop()

    # --- stages ---------------------------------------------------------------------------------------------------

    def inputs(
        self, item: WorkItem, stage: Stage, shards: Sequence[int], found: object, interval: Interval
    ) -> tuple[Sequence[int], int, Callable[[int], StageInput | None]]:
        """Return the shards to take through a stage, a number of rows that is worth threads, and a function that returns a shard's input, if it has work."""
        return shards, LARGE, lambda shard: self._input(item, stage, shard, interval)

    def _input(self, item: WorkItem, stage: Stage, shard: int, interval: Interval) -> StageInput | None:
        """Return the input of a shard in a stage."""
        if stage.first and not item.path:
            return None  # its inputs come in parts
        path, rounds, scope = item.path, item.rounds, self.nest.scopes[item.path]
        for index in (*stage.reads, *stage.places):
            self.resume((*path, index), shard, interval)
        # Each operator begins, called or not: it may hold updates that waited for these rounds.
        begun = {i for i in stage.places for each in self.operator((*path, i), shard) if rounds in each.begin(interval)}
        called = {wake.place[-1] for wake in item.due if wake.shard == shard}
        deltas, routed, late = {}, {}, {}
        for index in stage.reads:
            updates = self._stay((*path, index), shard, stage, rounds)
            if updates is not None and len(updates):
                deltas[index] = self.resumed((*path, index), shard, updates)
        for index in stage.places:
            place = (*path, index)
            if scope.places[index].route:
                (source,) = scope.places[index].inputs
                updates = self.read(Address(place, EXCHANGED, shard, rounds), (*path, source), last=True)
                if updates is not None:
                    routed[index, source] = Delta(updates, owned=True)
            if scope.places[index].shifts:
                updates = self.read(Address(place, LATE, shard, rounds), place, last=True)
                if updates is not None:
                    late[index] = Delta(updates)
        due = begun.union(called).intersection(stage.places)
        return StageInput(deltas, late, routed, due) if deltas or routed or late or due else None

    def _stay(self, place: Path, shard: int, stage: Stage, rounds: Rounds) -> np.ndarray | None:
        """Return the updates that an earlier stage stored at a place for this shard; for an arrangement that enters a loop, its new updates."""
        origin = self.nest.origins.get(place)
        if origin is not None and place[-1] in stage.members:
            return None if rounds[-1] else self.read(Address(origin, HERE, shard, rounds[:-1]), origin, last=False)
        # Updates at a port are sent on, also to stages after this one.
        last = place[-1] in stage.seals or place[-1] in stage.members
        return self.read(Address(place, HERE, shard, rounds), place, last=last)

    def has_read(self, stage: Stage, shard: int, result: StageResult) -> None:
        """Leave the updates of a part of an input as they are: they are sent at once."""

    def has_stepped(self, path: Path, stage: Stage, shard: int, stepped: object, interval: Interval) -> None:
        """Seal traces, and release what the shard has read."""
        self.seal_stage(path, stage, shard, interval)
        for index in (*stage.reads, *stage.places):
            for operator in self.operator((*path, index), shard):
                for trace in operator.traces:
                    trace.release()
        self.forget(shard)
        self.nest.scope.progress.advance()

    def release(self, item: WorkItem) -> None:
        """Return no memory to the system: a shard's is used again."""

    def resumed(self, place: Path, shard: int, updates: np.ndarray) -> Delta:
        """Return stored updates unchanged: an arrangement's batch are the updates that its trace will take in."""
        for operator in self.operator(place, shard):
            if operator.shared:
                if isinstance(operator, StatefulOperator):
                    operator.batch = updates
                return Delta(updates, distinct=True)
        return Delta(updates)

    # --- loops ----------------------------------------------------------------------------------------------------

    def enter(self, item: WorkItem, found: object) -> None:
        """Do nothing: operators are restored where they step."""

    def leave(self, path: Path, index: int, shard: int, delta: Delta, rounds: Rounds) -> None:
        """Send updates of a place of a loop out of it."""
        # Equal collections of a body are one place, which leaves by several ports.
        updates = Delta(without_rounds(delta.updates, 1))
        for leaving, port in zip(self.nest.loop(path).leaving, self.nest.slot(path).ports, strict=True):
            if leaving == index:
                self.add(Address((*path[:-1], port), HERE, shard, rounds[:-1]), updates)

    def end(self, item: WorkItem, shards: Sequence[int], interval: Interval) -> None:
        """End an outermost loop: hand over its traces, and the traces outside that it was the last to read."""
        for shard in shards:
            for inner in self.nest.below(item.path):
                for index in range(len(self.nest.scopes[inner].places)):
                    place = (*inner, index)
                    for operator in self.operator(place, shard) if place not in self.nest.origins else ():
                        self.resume(place, shard, interval)
                        operator.close(interval)
                        for trace in operator.traces:
                            self.on_trace_ready(trace)
            for place in self.nest.given(item.path):
                updates = self.read(Address(place, HERE, shard), place, last=False)
                if updates is not None:
                    self.resumed(place, shard, updates)
            self.seal_stage((), self.nest.scope.stages[item.stage], shard, interval)
            self.forget(shard)

    # --- operators and their traces -------------------------------------------------------------------------------

    def operator(self, place: Path, shard: int) -> Sequence[Operator]:
        """Return the operator of a place, if it has one."""
        return self.nest.slot(place).shards[shard : shard + 1]

    def resume(self, place: Path, shard: int, interval: Interval) -> None:
        """Restore an operator of a loop to its state after the earlier rounds of this interval, which other workers may have stepped."""
        path, rounds = place[:-1], interval.rounds
        if not path or (place, shard) in self._found:
            return
        self._found.add((place, shard))
        for operator in self.operator(place, shard):
            self.recall(operator, place, shard, interval.at(rounds[: len(path)]))

    def seal(self, path: Path, interval: Interval) -> None:
        """Do nothing at the end of a round: each stage has sealed its traces."""

    def seal_stage(self, path: Path, stage: Stage, shard: int, interval: Interval) -> None:
        """Have traces take in the new updates, and hand them over: shared ones when all readers are done, others at once.

        A loop's updates are stored: they continue in its next rounds.
        """
        for index in {*stage.members, *stage.seals}:
            for operator in self.operator((*path, index), shard):
                if stage.takes_in(index, shared=operator.shared):
                    if not path:
                        operator.close(interval)
                    self.nest.scopes[path].seal((index,), shard, interval)
                    if path:
                        self.save_state(operator, (*path, index), shard)
                        continue
                    for trace in operator.traces:
                        self.on_trace_ready(trace)

    def forget(self, shard: int) -> None:
        """Release the values of a finished shard, and its restored operators: a task may take other shards after it."""
        self.pools[shard].forget()
        for place, owner in [found for found in self._found if found[1] == shard]:
            self._found.discard((place, owner))
            for operator in self.operator(place, shard):
                if operator.revisiting is not None:
                    operator.revisiting.close()
                for trace in operator.traces:
                    trace.resume(())

    def recall(self, operator: Operator, place: Path, shard: int, interval: Interval) -> None:
        """Return to an operator the work that was stored in rounds earlier than the interval's."""
        pool, rounds = self.pools[shard], interval.rounds
        if isinstance(operator, Entered):
            origin = self.nest.origins[place]
            self.resume(origin, shard, interval)
            if rounds[-1]:
                updates = self.read(Address(origin, HERE, shard, rounds[:-1]), origin, last=False)
                if updates is not None:
                    operator.resume(updates)
            return
        for at, trace in enumerate(operator.traces):
            assert trace.layout is not None, "the traces of a state have layouts"
            trace.resume(self.exchange.parts(Address(place, KEPT, shard, trace=at), trace.layout, pool))
        if operator.revisiting is not None:
            keys = self.exchange.parts(Address(place, CALLED, shard, rounds), LANES, pool)
            operator.revisiting.recall(interval, {rounds: keys} if keys else {}, self.memos.get((place, shard)))

    def save_state(self, operator: Operator, place: Path, shard: int, but: Rounds | None = None) -> None:
        """Store an operator's knowledge of its rounds for the next workers; the rounds `but` of the loops around are over."""
        pool = self.pools[shard]
        for at, trace in enumerate(operator.traces):
            assert trace.layout is not None, "the traces of a state have layouts"
            if trace.fresh:
                updates = kernels.merge(trace.fresh)
                self.exchange.add(Address(place, KEPT, shard, trace=at), updates, trace.layout, pool)
        if operator.revisiting is not None:
            called, self.memos[place, shard] = operator.revisiting.save_state()
            for rounds, keys in called.items():
                if but is None or rounds[: len(but)] != but:
                    self.exchange.add(Address(place, CALLED, shard, rounds), keys, LANES, pool)


def run_loop(store: SpillStore, item: WorkItem, pending: Iterable[Address], interval: Interval) -> None:
    """Run a loop, or the rest of it, in memory. Its updates wait at the addresses `pending`.

    All updates that wait afterwards are stored: they are for later rounds of the loops around, or have left.
    """
    path, outer, nest, interval = item.path, item.rounds, store.nest, interval.at(item.rounds)
    stage, begun = nest.scopes[path[:-1]].stages[item.stage], item.action == "rest"
    shards = range(nest.scope.workers.count)
    places = [(*inner, index) for inner in nest.below(path) for index in range(len(nest.scopes[inner].places))]
    places = [place for place in places if place not in nest.origins]
    alone = len(path) == 1 and not begun
    for place in places if not alone else ():
        for shard in shards:
            store.resume(place, shard, interval)
    memory = MemoryStore(nest, heap=Heap())
    executor = Executor(nest, interval, memory, lambda *_: None)  # a loop's updates leave by its ports
    executor.begin(path, shards)
    for wake in item.due:
        memory.wake(wake)
    _resume(store, memory, [at for at in pending if _within(at, path, outer)], interval)
    given = _feed(store, memory, item, stage, interval)
    executor.run(memory.schedule.loop(path, outer, item.stage, begun=begun))
    moving, wakes = memory.schedule.left()
    for at, parts in moving.items():
        for delta in parts if at not in given else ():
            store.add(at, delta)
    store.wakes += [wake for wake in wakes if wake.rounds[: len(outer)] > outer]
    if alone:
        nest.close(path, interval)
        for shard in shards:
            store.seal_stage((), stage, shard, interval)
        traces = list(nest.loop(path).scope.traces())
        nest.scope.workers.each(lambda at: store.on_trace_ready(traces[at]), range(len(traces)), LARGE)
        return
    for place in places:
        for shard in shards:
            for operator in store.operator(place, shard):
                store.save_state(operator, place, shard, outer)


def _feed(store: SpillStore, memory: MemoryStore, item: WorkItem, stage: Stage, interval: Interval) -> set[Address]:
    """Load the updates that enter a loop into memory; return where they wait."""
    given, loop = set(), store.nest.loop(item.path)
    arranged: dict[Path, list[Sequence[Entered]]] = defaultdict(list)
    for entry, origin in zip(loop.entries, store.nest.inputs(item.path)[len(loop.variables) :], strict=True):
        arranged[origin] += [entry.arranged] if entry.arranged else []
    for place in store.nest.given(item.path):
        for shard in range(store.nest.scope.workers.count):
            store.resume(place, shard, interval)
            at = Address(place, HERE, shard, item.rounds)
            updates = store.read(at, place, last=place[-1] in stage.seals)
            if updates is None or not len(updates):
                continue
            given.add(at)
            memory.add(at, store.resumed(place, shard, updates))
            for entered in arranged[place] if item.action == "rest" else ():
                entered[shard].resume(updates)
    return given


def _within(at: Address, path: Path, rounds: Rounds) -> bool:
    """Return whether an address is in a loop, in these rounds of the loops around it."""
    return at.what != KEPT and at.place[: len(path)] == path != at.place and at.rounds[: len(rounds)] == rounds


def _resume(store: SpillStore, memory: MemoryStore, pending: Sequence[Address], interval: Interval) -> None:
    """Load the updates that wait in a loop into memory, each where it waits there."""
    here = {(at.place, at.rounds) for at in pending if at.what == HERE}
    for at in pending:
        if at.what == CALLED:
            keys = store.exchange.parts(at, LANES, store.pools[at.shard])
            for operator in store.operator(at.place, at.shard):
                assert operator.revisiting is not None
                operator.revisiting.recall(interval, {at.rounds: keys}, None)
            continue
        place = at.place
        if at.what == EXCHANGED:
            # Each reader of a variable has a copy of all of it: one reader's copy is taken if the variable itself has none.
            place = (*place[:-1], *store.nest.slot(place).inputs[:1])
            if store.readers[place][0] != at.place[-1] or (place, at.rounds) in here:
                continue
        updates = store.read(at, place, last=True)
        if updates is not None:
            what = LATE if at.what == LATE else HERE
            memory.add(Address(place, what, at.shard, at.rounds), Delta(kernels.consolidate(updates)))
