"""A schedule executed in memory: operators live from leg to leg, each leg runs for all shards, and only deltas wait between legs."""

from __future__ import annotations

import time as clock
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ddcli.engine import kernels
from ddcli.engine.arrow import take_back
from ddcli.engine.buffer_pool import Heap, give_back
from ddcli.engine.operators.base import Delta
from ddcli.engine.scope_tree import HERE, LATE, Address, LeavingUpdates, ScheduledActivation
from ddcli.engine.shards import dealt, joined, summed
from ddcli.engine.stages import NOTHING
from ddcli.engine.workers import LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.schedule import Found, Leg
    from ddcli.engine.scope import Part
    from ddcli.engine.scope_tree import Path, ScopeTree
    from ddcli.engine.stages import Deltas, OperatorSlot, Stage, StageResult
    from ddcli.engine.trace.spine import Trace


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
    if nest.is_flat and not nest.scope.streams:
        return step_flat(nest, fed, interval)
    resident = InMemoryExecutor(nest, interval, parts, on_trace_ready, leave)
    resident.begin(())
    for index in [*fed]:
        if (deltas := _by_shard(fed.pop(index), nest.scope.workers.count)) is not None:
            resident.schedule.add(Address((index,), HERE, 0), deltas)
        del deltas
    found = resident.run(resident.schedule.legs())
    # Times before the upper have no more readers, so sealed updates may be compacted up to there.
    nest.close((), interval)
    resident.seal((), ())
    return found


def step_flat(nest: ScopeTree, fed: dict[int, Delta | Deltas], interval: Interval) -> dict[int, Deltas]:
    """Close the interval of a nest that is one stage of one shard: nothing is scheduled, as that would take longer than a step of few rows."""
    scope = nest.scope
    (stage,) = scope.stages
    scope.announce(stage)
    given = {index: _in_one(fed.pop(index)) for index in [*fed]}
    beginning = nest.beginners(())
    due = (
        {index for index, operator in beginning if any(True for _ in operator.begin(interval))} if beginning else set()
    )
    found = scope.through(stage, 0, given, {}, due, interval)
    nest.close((), interval)
    scope.seal(found.stepped, interval)
    return {index: [delta] for index, delta in found.found.items()}


def _in_one(given: Delta | Deltas) -> Delta:
    """Return a place's input as one delta."""
    return given if isinstance(given, Delta) else summed(given)


def _by_shard(given: Delta | Deltas, count: int) -> Deltas | None:
    """Return a place's input for each of `count` shards; None if it has no updates."""
    deltas = given if isinstance(given, list) else [given] if count == 1 else dealt(given, count)
    return deltas if any(len(delta.updates) for delta in deltas) else None


def _alone(waiting: dict[int, list[Delta]]) -> dict[int, Delta]:
    """Return the sum of the updates that wait for each place, and remove them."""
    found = {}
    while waiting:
        index, parts = waiting.popitem()
        found[index] = parts[0] if len(parts) == 1 else summed(parts)
        del parts
    return found


MANY = 1 << 16
"""Updates of rounds and stages after which freed memory is given back: to take it again costs a few hundredths of their time."""


class WaitingRound(NamedTuple):
    """The work that waits for a round of a loop of one shard, by place: updates, updates that the places emitted earlier for this round, and called places."""

    given: dict[int, list[Delta]]
    late: dict[int, list[Delta]]
    due: set[int]


class InMemoryExecutor:
    """A nest that is stepped once, or a loop of it. Its `schedule` has the updates that it begins with, and those that wait when it is done."""

    def __init__(
        self,
        nest: ScopeTree,
        interval: Interval,
        parts: Sequence[tuple[int, Part]] = (),
        on_trace_ready: Callable[[Trace], None] | None = None,
        leave: Callable[[int, Delta], bool] | None = None,
    ) -> None:
        self.nest = nest
        self.interval = interval
        self.parts = parts
        self.on_trace_ready = on_trace_ready
        self.leave = leave
        # Reading the resident memory takes longer than a step of few rows.
        self._heap = Heap() if on_trace_ready else None
        self._emitted = 0
        """The updates emitted since memory was given back."""
        from ddcli.engine.schedule import Schedule  # a step of one stage needs none

        self.schedule: Schedule[Deltas] = Schedule(nest, range(1))
        self._outputs: dict[int, list[Deltas]] = defaultdict(list)
        self._left: dict[Path, dict[int, list[LeavingUpdates]]] = defaultdict(dict)
        self._stepped: dict[Path, set[int]] = defaultdict(set)
        self._moved: dict[Path, int] = defaultdict(int)
        self._entered: dict[Path, float] = {}
        self._sealed: set[tuple[int, int]] = set()
        """The operators whose traces were handed over, by place and shard."""

    def begin(self, path: Path) -> None:
        """Collect from operators the rounds in which updates wait since earlier intervals."""
        for inner in self.nest.below(path):
            for index, operator in self.nest.beginners(inner):
                for rounds in operator.begin(self.interval):
                    self.schedule.wake(ScheduledActivation((*inner, index), rounds, 0))

    def run(self, legs: Iterable[tuple[Leg, Found[Deltas]]]) -> dict[int, Deltas]:
        """Run legs; return the updates of the places that the outermost scope keeps."""
        for leg, found in legs:
            action, path, rounds = leg[:3]
            if action == "stage":
                self._stage(leg, found)
            elif action == "seal":
                self.seal(path, rounds)
            elif action == "rounds":
                self._rounds(path, rounds)
            elif action == "enter":
                self._enter(path, rounds, found)
            else:
                self._end(path, rounds)
            if self._emitted >= MANY:
                self._give_back()
        return {index: joined(found) for index, found in self._outputs.items()}

    def _give_back(self) -> None:
        """Return the memory of many updates to the system, unless the run measures its memory (`Heap`), which does it."""
        self._emitted = 0
        if self._heap is None:
            take_back()
            give_back()

    def seal(self, path: Path, rounds: Rounds) -> None:
        """Have the traces of operators that have stepped take in their updates: all readers are done."""
        scope = self.nest.scopes[path]
        if stepped := self._stepped[path]:
            scope.seal(stepped, self.interval.at(rounds))
            stepped.clear()
        if path and scope.counted:
            scope.turns.turn(rounds[-1], self._moved.pop(path, 0))

    # --- stages ---------------------------------------------------------------------------------------------------

    def _stage(self, leg: Leg, found: Found[Deltas]) -> None:
        """Take the shards through a stage."""
        path, scope = leg.path, self.nest.scopes[leg.path]
        stage = scope.stages[leg.stage]
        if not path:
            scope.announce(stage)
        if self.parts and not path and (parts := [each for each in self.parts if each[0] in stage.members]):
            # Part after part, in the order of reading: rows that are sorted in a file need not be sorted again.
            for shard, passes in enumerate(scope.through_parts(stage, parts, self.interval)):
                for found_there in passes:
                    self._take(
                        leg, stage, [found_there if at == shard else NOTHING for at in range(scope.workers.count)]
                    )
        if found or leg.due:
            self._step(leg, stage, found)
        if not path and self._heap is not None:
            self._let_go(stage)
            take_back()
            self._heap.give_back()

    def _step(self, leg: Leg, stage: Stage, found: Found[Deltas]) -> None:
        """Take the shards through a stage with the updates that wait for it."""
        path, scope = leg.path, self.nest.scopes[leg.path]
        given: dict[int, list[Deltas]] = {}
        late: dict[int, Deltas] = {}
        while found:
            at, parts = found.popitem()
            if at.what == LATE:
                late[at.place[-1]] = joined(parts)
            elif at.place[:-1] == path:
                given[at.place[-1]] = parts
            else:
                for place, origin in self.nest.entered_traces(path):
                    if origin == at.place and place[-1] in stage.members:
                        given[place[-1]] = parts
            del parts
        # Where an arrangement enters, only its updates are passed on.
        due = {wake.place[-1] for wake in leg.due if wake.place not in self.nest.origins} if leg.due else set()
        if given or late or due:
            # A stage that takes parts may emit equal updates in several of them.
            leave = self.leave if not path and not stage.first else None
            done = partial(self._report_traces, stage) if not path and self.on_trace_ready is not None else None
            self._take(leg, stage, scope.step_stage(stage, given, late, due, self.interval.at(leg.rounds), leave, done))

    def _take(self, leg: Leg, stage: Stage, passes: Sequence[StageResult]) -> None:
        """Pass the updates that the shards emitted in a stage to the schedule."""
        path, rounds = leg.path, leg.rounds
        scope, feeds = self.nest.scopes[path], self.nest.feeds(path)
        for index in self.nest.read_places(path, leg.stage):
            none, filled = scope.places[index].none, False
            deltas = []
            for each in passes:
                delta = each.found.pop(index, none)
                deltas.append(delta)
                self._emitted += len(delta.updates)
                filled = filled or delta is not none
            if not filled:
                continue
            # A loop's inputs wait already at its places, but for arrangements: those wait outside.
            if index in stage.exports and (index not in feeds or (*path, index) in self.nest.origins):
                self.schedule.add(Address((*path, index), HERE, 0, rounds), deltas)
            if index in scope.kept:
                self._leave(path, index, deltas, rounds)
        stepped = self._stepped[path]
        for shard, each in enumerate(passes):
            stepped.update(each.stepped)
            if each.rows:
                self._moved[path] += each.rows
            for index, when in each.wakes:
                self.schedule.wake(ScheduledActivation((*path, index), when, 0))
            for index, when, delta in each.later:
                held = [scope.places[index].none] * scope.workers.count
                held[shard] = delta
                self.schedule.add(Address((*path, index), LATE, 0, when), held)

    def _report_traces(self, stage: Stage, shard: int, found: StageResult | None = None) -> None:
        """Hand over the traces of a shard without readers after the stage that it has just passed; they have taken in the new updates."""
        scope, stepped = self.nest.scope, self._stepped[()]
        assert self.on_trace_ready is not None
        for index in sorted(stage.members | stage.seals):
            operators = scope.places[index].shards
            if not operators or (index, shard) in self._sealed:
                continue
            stepped_here = index in stepped or (found is not None and index in found.stepped)
            if stepped_here and stage.takes_in(index, shared=operators[shard].shared):
                self._sealed.add((index, shard))
                operators[shard].close(self.interval)
                scope.seal_shard(index, shard, self.interval)
                for trace in operators[shard].traces:
                    self.on_trace_ready(trace)

    def _let_go(self, stage: Stage) -> None:
        """Hand over the traces without readers after a stage, of shards without work in it."""
        scope, stepped = self.nest.scope, self._stepped[()]
        scope.workers.each(partial(self._report_traces, stage), range(scope.workers.count), LARGE)
        for index in stage.members | stage.seals:
            if all(stage.takes_in(index, shared=operator.shared) for operator in scope.places[index].shards):
                stepped.discard(index)

    # --- loops ----------------------------------------------------------------------------------------------------

    def _enter(self, path: Path, outer: Rounds, found: Found[Deltas]) -> None:
        """Begin a loop, in some rounds of the loops around it: feed the entering updates to its places."""
        loop, place = self.nest.loop(path), self._place(path)
        if len(path) == 1:
            around = self.nest.scopes[()]
            around.announce(next(stage for stage in around.stages if path[0] in stage.places))
        entering = {at.place: joined(parts) for at, parts in found.items()}
        given = [entering.get(each) for each in self.nest.inputs(path)]
        if loop.scope.counted:
            self._entered[path] = clock.perf_counter()
            place.count(0).rows_in += sum(len(delta.updates) for deltas in given for delta in deltas or ())
        loop.restart()
        for index, number, deltas in loop.enter(given):
            self.schedule.add(Address((*path, index), HERE, 0, (*outer, number)), deltas)

    def _leave(self, path: Path, index: int, deltas: Deltas, rounds: Rounds) -> None:
        """Send a place's updates out of the scope, and to the next round, as far as they go there."""
        if not path:
            self._outputs[index].append([*deltas])  # the waiting updates are removed from their list
            return
        for place, back in self._turned(path, index, deltas, rounds):
            self.schedule.add(Address((*path, place), HERE, 0, (*rounds[:-1], rounds[-1] + 1)), back)

    def _turned(self, path: Path, index: int, deltas: Deltas, rounds: Rounds) -> Iterator[tuple[int, Deltas]]:
        """Send the updates of a place of a loop out of it; yield the updates of the next round, each with its place."""
        loop = self.nest.loop(path)
        if index in loop.leaving:
            left = self._left[path].setdefault(index, [])
            left += [LeavingUpdates() for _ in deltas[len(left) :]]
            for shard, delta in zip(left, deltas, strict=True):
                shard.add(delta.updates)
        if loop.limit.bound is None and rounds[-1] >= loop.limit.guard:
            loop.check_settled({index: deltas})
        for variable in loop.variables:
            if variable.result.index == index and (back := loop.fed_back(deltas, rounds[-1] + 1)):
                yield variable.place.index, back

    def _rounds(self, path: Path, outer: Rounds) -> None:
        """Run all rounds of a loop of one stage and one shard. Most have few rows, which take less time than scheduling legs would."""
        bound = self.nest.loop(path).limit.bound
        waiting = self._waiting(path, outer)
        while waiting:
            now = min(waiting)
            if bound is not None and now >= bound:
                break
            self._round(path, (*outer, now), waiting)
            if self._emitted >= MANY:
                self._give_back()

    def _round(self, path: Path, rounds: Rounds, waiting: defaultdict[int, WaitingRound]) -> None:
        """Do a round of a loop of one stage and one shard with the updates that wait for it."""
        scope, outer, now = self.nest.scopes[path], rounds[:-1], rounds[-1]
        (stage,) = scope.stages
        given, late, due = waiting.pop(now)
        interval = self.interval.at(rounds)
        found = scope.through(stage, 0, _alone(given), _alone(late) if late else {}, due, interval)
        for index, delta in found.found.items():
            self._emitted += len(delta.updates)
            for place, (back,) in self._turned(path, index, [delta], rounds):
                waiting[now + 1].given[place].append(back)
        for index, then in found.wakes:
            if then[:-1] == outer:
                waiting[then[-1]].due.add(index)
            else:
                self.schedule.wake(ScheduledActivation((*path, index), then, 0))
        for index, then, delta in found.later:
            if then[:-1] == outer:
                waiting[then[-1]].late[index].append(delta)
            else:
                self.schedule.add(Address((*path, index), LATE, 0, then), [delta])
        scope.seal(found.stepped, interval)
        if scope.counted:
            scope.turns.turn(now, found.rows)

    def _waiting(self, path: Path, outer: Rounds) -> defaultdict[int, WaitingRound]:
        """Return the work that waits in a loop of one shard, in some rounds of the loops around it, by its own round, and remove it from the schedule."""
        waiting = defaultdict[int, WaitingRound](lambda: WaitingRound(defaultdict(list), defaultdict(list), set()))
        found, called = self.schedule.taken(path, outer)
        for number, each in found.items():
            round_ = waiting[number]
            while each:
                at, parts = each.popitem()
                indices = [at.place[-1]]
                if at.place[:-1] != path:
                    indices = [place[-1] for place, origin in self.nest.entered_traces(path) if origin == at.place]
                for index in indices:
                    (round_.late if at.what == LATE else round_.given)[index] += [delta for (delta,) in parts]
        for number, wakes in called.items():
            # Where an arrangement enters, only its updates are passed on.
            waiting[number].due.update(wake.place[-1] for wake in wakes if wake.place not in self.nest.origins)
        return waiting

    def _end(self, path: Path, outer: Rounds) -> None:
        """End a loop, in some rounds of the loops around it: its leaving updates come to its ports."""
        place, left = self._place(path), self._left.pop(path, {})
        self._emitted += sum(shard.rows for shards in left.values() for shard in shards)
        if (
            self._emitted >= MANY
        ):  # the memory of rounds of few rows, before the updates that have left are put together
            self._give_back()
        rows = inserted = 0
        counted = self.nest.scopes[path].counted
        # Equal collections leave by several ports: they are of one place.
        sums = {index: [shard.delta() for shard in shards] for index, shards in left.items()}
        for index, port in zip(self.nest.loop(path).leaving, place.ports, strict=True):
            if index in sums:
                deltas = [*sums[index]]
                self.schedule.add(Address((*path[:-1], port), HERE, 0, outer), deltas)
                if counted:
                    rows += sum(len(delta.updates) for delta in deltas)
                    inserted += sum(kernels.inserted(delta.updates) for delta in deltas)
        if counted:
            count = place.count(0)
            count.rows_out += rows
            count.inserted += inserted
            count.seconds += clock.perf_counter() - self._entered.pop(path, clock.perf_counter())

    def _place(self, path: Path) -> OperatorSlot:
        """Return the place of a loop."""
        return self.nest.scopes[path[:-1]].places[path[-1]]
