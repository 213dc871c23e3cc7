"""A step whose updates don't fit in memory: stage by stage, shard by shard, with the updates between stages in scratch files.

The inputs go through the first stage slice by slice. From then on one shard after the other (as many at once as there are
threads) passes a stage: its updates are read, its operators step, their updates are stored for the
stages that read them, and their traces take in the new updates and are handed over to the state. So memory holds only the updates of a shard in
one stage, for any sizes of input, state and output. A loop takes all shards at once and holds its working set, or goes
stage by stage in each round, as tasks.

In memory an operator lives through all rounds. As tasks each round has operators of its own. Their knowledge of the rounds
before is stored as updates: those that their traces took in, the groups to evaluate in later rounds, the updates of variables
for the next round, those that have left. A loop, or the rest of it, can also run in memory, from the stored updates.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ddcli.engine import kernels
from ddcli.engine.buffer_pool import BufferPool
from ddcli.engine.in_memory import InMemoryExecutor
from ddcli.engine.operators.base import Delta, StatefulOperator
from ddcli.engine.rounds import with_rounds, without_rounds
from ddcli.engine.schedule import WITHIN
from ddcli.engine.scope_tree import (
    APART,
    CALLED,
    EXCHANGED,
    GATHERING,
    HERE,
    KEPT,
    LATE,
    Address,
    Path,
    ScheduledActivation,
    advanced,
    taken_back,
)
from ddcli.engine.spill_store import LANES, SpillStore
from ddcli.engine.workers import LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    import numpy as np

    from ddcli.engine.lanes import Columns
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.schedule import Leg, Schedule
    from ddcli.engine.stages import Deltas, Stage, StageResult


def enter(step: SpillStore, path: Path, shard: int, interval: Interval) -> None:
    """Begin a loop, in the interval's rounds of the loops around it: bring its initials and the other entries to a shard.

    For an outermost loop, also find the rounds in which updates wait since earlier intervals.
    """
    loop, outer = step.nest.loop(path), interval.rounds
    if len(path) == 1:
        for inner in step.nest.below(path):
            for index in range(len(step.nest.scopes[inner].places)):
                for operator in step.operator((*inner, index), shard):
                    step.wakes += [
                        ScheduledActivation((*inner, index), rounds, shard) for rounds in operator.begin(interval)
                    ]
    for at, (source, place) in enumerate(zip(step.nest.fed(path), step.nest.inputs(path), strict=True)):
        to = (*path, source.index)
        if to in step.nest.origins:  # it is read in place
            continue
        updates = step.exchange.take(
            Address(place, HERE, shard, outer), step.layout(place), step.pools[shard], last=False
        )
        if updates is None:
            continue
        step.send(to, shard, with_rounds(updates, (0,), 1), (*outer, 0))
        if at < len(loop.variables):
            step.send(to, shard, taken_back(updates), (*outer, 1))


def leave(step: SpillStore, place: Path, shard: int, delta: Delta, rounds: Rounds) -> None:
    """Send a place's updates of a round out of the loop, and to the next round, as far as they go there."""
    path, index = place[:-1], place[-1]
    loop = step.nest.loop(path)
    ports = step.nest.scopes[path[:-1]].places[path[-1]].ports
    # Equal collections of a body are one place, which leaves by several ports.
    for leaving, port in zip(loop.leaving, ports, strict=True):
        if leaving == index:
            step.keep_local((*path[:-1], port), shard, without_rounds(delta.updates, 1), rounds[:-1])
    if loop.limit.bound is None and rounds[-1] >= loop.limit.guard:
        loop.check_settled({index: [delta]})
    results = [variable for variable in loop.variables if variable.result.index == index]
    if not results:
        return
    updates = advanced(delta)
    later = (*rounds[:-1], rounds[-1] + 1)
    for variable in results:
        to = (*path, variable.place.index)
        if later[-1] % GATHERING:
            step.send(to, shard, updates, later)
        else:
            layout = step.layout(to)
            step.partition(Address(to, APART, shard, later), updates, layout, range(layout.width))


def consolidate_exchange(step: SpillStore, path: Path, shard: int, interval: Interval) -> None:
    """Bring to a shard the variables' updates that were dealt by whole records, consolidated: updates that cancel would circulate for ever."""
    for variable in step.nest.loop(path).variables:
        place = (*path, variable.place.index)
        at = Address(place, APART, shard, interval.rounds)
        updates = step.exchange.take(at, step.layout(place), step.pools[shard], last=True)
        if updates is not None:
            step.send(place, shard, kernels.consolidate(updates), interval.rounds)


def end(step: SpillStore, path: Path, stage: Stage, shard: int, interval: Interval) -> None:
    """End an outermost loop: hand over its traces, and the traces outside that it was the last to read. `stage` is the loop's."""
    for inner in step.nest.below(path):
        for index in range(len(step.nest.scopes[inner].places)):
            place = (*inner, index)
            for operator in step.operator(place, shard) if place not in step.nest.origins else ():
                step.resume(place, shard, interval)
                operator.close(interval)
                for trace in operator.traces:
                    step.on_trace_ready(trace)
    for place in dict.fromkeys(step.nest.inputs(path)):
        updates = step.exchange.take(Address(place, HERE, shard), step.layout(place), step.pools[shard], last=False)
        if updates is not None:
            step.resumed(place, shard, updates)
    step.seal((), stage, shard, interval)


def run_loop(step: SpillStore, leg: Leg, stage: Stage, pending: Iterable[Address], interval: Interval) -> None:
    """Run the remaining rounds of a loop, in these rounds of the loops around it, in memory. `stage` is the loop's.

    All updates that wait afterwards are stored: they are for later rounds of the loops around, or have left.
    """
    path, outer, nest = leg.path, leg.rounds, step.nest
    loop, shards, begun = nest.loop(path), range(step.scope.workers.count), leg.action == "rest"
    places = [(*inner, index) for inner in nest.below(path) for index in range(len(nest.scopes[inner].places))]
    places = [place for place in places if place not in nest.origins]
    alone = len(path) == 1 and not begun
    for place in places if not alone else ():
        for shard in shards:
            step.resume(place, shard, interval)
    resident = InMemoryExecutor(nest, interval)
    resident.begin(path)
    for wake in leg.due:
        resident.schedule.wake(wake._replace(shard=0))
    _resume(step, resident.schedule, [at for at in pending if _within(at, path, outer)], interval)
    given = _given(step, path, stage, interval)
    for place, deltas in given.items():
        resident.schedule.add(Address(place, HERE, 0, outer), deltas)
    if begun:
        for entry, origin in zip(loop.entries, nest.inputs(path)[len(loop.variables) :], strict=True):
            for entered, delta in zip(entry.arranged, given.get(origin, ()), strict=False):
                entered.resume(delta.updates)
    resident.run(resident.schedule.loop(path, outer, leg.stage, begun=begun))
    _store_waiting(step, resident.schedule, given, outer)
    if alone:
        nest.close(path, interval)
        for shard in shards:
            step.seal((), stage, shard, interval)
        traces = list(loop.scope.traces())
        step.scope.workers.each(lambda at: step.on_trace_ready(traces[at]), range(len(traces)), LARGE)
        return
    for place in places:
        for shard in shards:
            for operator in step.operator(place, shard):
                step.save_state(operator, place, shard, outer)


def _given(step: SpillStore, path: Path, stage: Stage, interval: Interval) -> dict[Path, Deltas]:
    """Return the updates of all shards that enter a loop, by place, where there are any."""
    read: dict[Path, Deltas] = {}
    for place in step.nest.given(path):
        none = step.nest.scopes[place[:-1]].places[place[-1]].none
        deltas = []
        for shard in range(step.scope.workers.count):
            step.resume(place, shard, interval)
            at = Address(place, HERE, shard, interval.rounds)
            last = place[-1] in stage.seals
            updates = step.exchange.take(at, step.layout(place), step.pools[shard], last=last)
            deltas.append(none if updates is None else step.resumed(place, shard, updates))
        if any(len(delta.updates) for delta in deltas):
            read[place] = deltas
    return read


def _store_waiting(step: SpillStore, schedule: Schedule[Deltas], given: Collection[Path], outer: Rounds) -> None:
    """Store the updates that wait in memory, but for those that the loop was `given`: all of them are for later rounds."""
    moving, wakes = schedule.left()
    for at, parts in moving.items():
        for deltas in parts if at.place not in given else ():
            for shard, delta in enumerate(deltas):
                if len(delta.updates):
                    step.exchange.add(at._replace(shard=shard), delta.updates, step.layout(at.place), step.pools[shard])
    later = [wake for wake in wakes if wake.rounds[: len(outer)] > outer]
    step.wakes += [wake._replace(shard=shard) for wake in later for shard in range(step.scope.workers.count)]


def _within(at: Address, path: Path, rounds: Rounds) -> bool:
    """Return whether an address is in a loop, in these rounds of the loops around it."""
    return at.what != KEPT and at.place[: len(path)] == path != at.place and at.rounds[: len(rounds)] == rounds


def _resume(step: SpillStore, schedule: Schedule[Deltas], pending: Iterable[Address], interval: Interval) -> None:
    """Load the updates that wait in a loop into a schedule in memory."""
    waiting = defaultdict(set)
    for each in pending:
        if each.what == CALLED:
            keys = step.exchange.parts(each, LANES, step.pools[each.shard])
            for operator in step.operator(each.place, each.shard):
                assert operator.revisiting is not None
                operator.revisiting.recall(interval, {each.rounds: keys}, None)
        else:
            waiting[each.place, each.rounds].add(each.what)
    for (place, rounds), kinds in waiting.items():
        for what in kinds - {EXCHANGED}:
            _postpone(step, schedule, Address(place, what, 0, rounds))
        source = (*place[:-1], *step.nest.scopes[place[:-1]].places[place[-1]].inputs[:1])
        # Each reader of a variable has a copy of all of it: one reader's copy is taken if the variable itself has none.
        found_there = HERE in waiting.get((source, rounds), ())
        if EXCHANGED in kinds and step.readers[source][0] == place[-1] and not found_there:
            _postpone(step, schedule, Address(place, EXCHANGED, 0, rounds), source)


def _postpone(step: SpillStore, schedule: Schedule[Deltas], at: Address, source: Path | None = None) -> None:
    """Load the updates that wait at an address into a schedule in memory, there or at the place that they came from."""
    place = source or at.place
    none = step.nest.scopes[place[:-1]].places[place[-1]].none
    deltas = []
    for shard in range(step.scope.workers.count):
        updates = step.exchange.take(at._replace(shard=shard), step.layout(place), step.pools[shard], last=True)
        deltas.append(none if updates is None else Delta(kernels.consolidate(updates)))
    schedule.add(Address(place, LATE if at.what == LATE else HERE, 0, at.rounds), deltas)


class OutOfCoreExecutor(SpillStore):
    """A scope with more than one shard, stepped once: whole, or a stage and a shard at a time.

    Only exchanged updates pass from one stage to the next: each stage may have operators of its own, whose traces are as before
    the step until they are handed over. So different processes may take stages and shards.
    """

    def step(
        self,
        fed: Mapping[int, Iterable[Callable[[Pool], np.ndarray | Columns]]],
        shared: Mapping[int, Callable[[int, Pool], np.ndarray]],
        interval: Interval,
    ) -> None:
        """Close the interval of a scope without loops. `fed` has each source's updates in parts, `shared` the updates of sources that come by shard."""
        scope = self.scope
        shards = range(scope.workers.count)
        parts = [(index, part) for index, given in fed.items() for part in given]
        for stage in scope.stages:
            scope.announce(stage, len(shards))
            assert not stage.whole, "a loop that doesn't fit goes round by round, as tasks"

            def go(shard: int, stage: Stage = stage) -> None:
                if stage.first:
                    # Adjacent parts: so a file that is read from its beginning on is read once.
                    first, end = (len(parts) * at // len(shards) for at in (shard, shard + 1))
                    self.step_first(stage, shard, parts[first:end], interval)
                else:
                    self.step_shard(stage, shard, shared, interval)
                scope.progress.advance()

            scope.workers.each(go, shards, LARGE)

    # --- stages ---------------------------------------------------------------------------------------------------

    def step_first(
        self,
        stage: Stage,
        shard: int,
        parts: Iterable[tuple[int, Callable[[Pool], np.ndarray | Columns]]],
        interval: Interval,
    ) -> None:
        """Take parts of the inputs, by place, through the first stage. Its operators keep nothing, so any shard's operators serve."""
        buffers = BufferPool()
        for index, part in parts:
            result = self.scope.through_first(stage, shard, index, part(self.pools[shard]), interval, buffers)
            self._put_away((), stage, shard, result, ())
            del result
            self.forget(shard)

    def step_shard(
        self,
        stage: Stage,
        shard: int,
        shared: Mapping[int, Callable[[int, Pool], np.ndarray]],
        interval: Interval,
        path: Path = (),
        called: Collection[int] = (),
    ) -> None:
        """Take a shard through a later stage; in a loop, in the interval's rounds, in which `called` places are to step."""
        scope, pool, rounds = self.nest.scopes[path], self.pools[shard], interval.rounds
        for index in (*stage.reads, *stage.places):
            self.resume((*path, index), shard, interval)
        # Each operator begins, called or not: it may hold updates that waited for these rounds.
        begun = {i for i in stage.places for each in self.operator((*path, i), shard) if rounds in each.begin(interval)}
        due = begun.union(called).intersection(stage.places)
        deltas, routed, late = {}, {}, {}
        for index in stage.reads:
            updates = (
                shared[index](shard, pool) if index in shared else self._stay((*path, index), shard, stage, rounds)
            )
            if updates is not None and len(updates):
                deltas[index] = self.resumed((*path, index), shard, updates)
        for index in stage.places:
            if scope.places[index].route:
                (source,) = scope.places[index].inputs
                at = Address((*path, index), EXCHANGED, shard, rounds)
                updates = self.exchange.take(at, self.layout((*path, source)), pool, last=True)
                if updates is not None:
                    routed[index, source] = Delta(updates, owned=True)
            if scope.places[index].shifts:
                updates = self.exchange.take(
                    Address((*path, index), LATE, shard, rounds), self.layout((*path, index)), pool, last=True
                )
                if updates is not None:
                    late[index] = Delta(updates)
        if deltas or routed or late or due:

            def put(part: StageResult) -> None:
                self._put_away(path, stage, shard, part, rounds)

            result = scope.through(stage, shard, deltas, late, due, interval, routed, put)
            if path and scope.counted:
                scope.turns.add_round(rounds[-1], result.rows)
            self._put_away(path, stage, shard, result, rounds)
            del result
        del deltas, routed, late
        self.seal(path, stage, shard, interval)
        for index in (*stage.reads, *stage.places):
            for operator in self.operator((*path, index), shard):
                for trace in operator.traces:
                    trace.release()
        self.forget(shard)

    def perform(self, leg: Leg, shards: Iterable[int], pending: Iterable[Address], interval: Interval) -> None:
        """Run a leg of a schedule for some shards; its updates wait at the addresses `pending`."""
        interval = interval.at(leg.rounds)
        stage = self.nest.scopes[leg.path[:-1] if leg.action in WITHIN else leg.path].stages[leg.stage]
        if leg.action in ("whole", "rest"):
            run_loop(self, leg, stage, pending, interval)
            return
        for shard in shards:
            match leg.action:
                case "enter":
                    enter(self, leg.path, shard, interval)
                case "sum":
                    consolidate_exchange(self, leg.path, shard, interval)
                case "end":
                    end(self, leg.path, stage, shard, interval)
                case _:
                    due = {wake.place[-1] for wake in leg.due if wake.shard == shard}
                    self.step_shard(stage, shard, {}, interval, leg.path, due)
            self.forget(shard)

    def _put_away(self, path: Path, stage: Stage, shard: int, result: StageResult, rounds: Rounds) -> None:
        """Send a shard's updates to the stages that read them."""
        scope = self.nest.scopes[path]
        fed = self.nest.feeds(path)
        for index, delta in list(result.found.items()):
            del result.found[index]
            if index in scope.kept and not path:
                self.give(index, shard, delta)
            elif index in scope.kept:
                leave(self, (*path, index), shard, delta, rounds)
            # A loop's inputs were sent to all readers when they came, but for those that are read in place: only one stage finds these.
            if index in stage.exports and (index not in fed or (*path, index) in self.nest.origins):
                self.send((*path, index), shard, kernels.matrix(delta.updates), rounds)
            for operator in self.operator((*path, index), shard):
                if operator.shared and isinstance(operator, StatefulOperator) and index not in stage.seals:
                    operator.drop()
        for index, when, delta in result.later:
            at = Address((*path, index), LATE, shard, when)
            self.exchange.add(at, delta.updates, self.layout(at.place), self.pools[shard])
        self.wakes += [ScheduledActivation((*path, index), when, shard) for index, when in result.wakes]

    def _stay(self, place: Path, shard: int, stage: Stage, rounds: Rounds) -> np.ndarray | None:
        """Return the updates that an earlier stage stored at a place for this shard; for an arrangement that enters a loop, its new updates."""
        origin = self.nest.origins.get(place)
        if origin is not None and place[-1] in stage.members:
            if rounds[-1]:
                return None
            at = Address(origin, HERE, shard, rounds[:-1])
            return self.exchange.take(at, self.layout(origin), self.pools[shard], last=False)
        # Updates at a port are sent on, also to stages after this one.
        last = place[-1] in stage.seals or place[-1] in stage.members
        at = Address(place, HERE, shard, rounds)
        return self.exchange.take(at, self.layout(place), self.pools[shard], last=last)
