"""A step whose updates don't fit in memory: stage by stage, shard by shard, with what lies between the stages put away.

What is fed goes through the first stage slice by slice. From then on one shard after the other (as many at once as there are
threads) is taken through a stage: what was brought to it is read, its operators step, what they give is put away for the
stages that read it, their traces take in what is new and are handed over to whoever keeps them. So memory holds what a shard takes in
one stage, whatever the sizes of input, state and output. A loop takes all shards at once and holds what it works on, or is taken
through stage by stage in each round (`loop_tasks`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.engine import kernels, loop_tasks
from ddcli.engine.operators.base import Delta, Keeping
from ddcli.engine.schedule import WITHIN
from ddcli.engine.scope_tree import BROUGHT, HERE, LATE, Address, Memos, Nest, Path, Wake
from ddcli.engine.workers import LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import numpy as np

    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.base import Interval, Operator
    from ddcli.engine.places import Deltas, Pass
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Rounds
    from ddcli.engine.schedule import Leg
    from ddcli.engine.scope import Scope
    from ddcli.engine.scope_tree import Exchange
    from ddcli.engine.stages import Stage
    from ddcli.engine.trace.spine import Trace


@dataclass
class OutOfCore:
    """A scope with more than one shard, stepped once: whole, or a stage and a shard at a time.

    `give` is told of the outputs' updates, by place and shard, `hand_over` of each trace that is done with this step. `pools` has
    one for each shard, forgotten after each task that filled it.

    Nothing but what is exchanged goes from one stage to the next: each may have operators of its own, whose traces are as before
    the step until they are handed over. So stages and shards may be taken by different processes.
    """

    scope: Scope
    pools: Sequence[Pool]
    exchange: Exchange
    give: Callable[[int, int, Delta], None]
    hand_over: Callable[[Trace], None]
    memos: Memos = field(default_factory=dict)
    wakes: list[Wake] = field(default_factory=list)
    """When which operators of loops have something to do, as they say."""
    nest: Nest = field(init=False)
    readers: dict[Path, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Who wants what a place gives brought by key."""
    _found: set[tuple[Path, int]] = field(default_factory=set)
    """The operators of loops that go on where others were, by shard."""

    def __post_init__(self) -> None:
        scope = self.scope
        assert scope.workers.count > 1, "out of core means shard by shard"
        assert scope.depth == 0, "a loop steps in memory"
        self.nest = Nest(scope)
        for path, each in self.nest.scopes.items():
            assert not any(place.wraps for place in each.places), "what is filtered on read is read in memory"
            for index, place in enumerate(each.places):
                if place.route:
                    self.readers[*path, place.inputs[0]].append(index)

    def step(
        self,
        fed: Mapping[int, Iterable[Callable[[Pool], np.ndarray]]],
        shared: Mapping[int, Callable[[int, Pool], np.ndarray]],
        interval: Interval,
    ) -> None:
        """Close the interval, without loops. `fed` has the parts of what each source is fed, `shared` what a source that comes by shard is."""
        scope = self.scope
        shards = range(scope.workers.count)
        parts = [(index, part) for index, given in fed.items() for part in given]
        for stage in scope.stages:
            scope.announce(stage, len(shards))
            assert not stage.whole, "a loop that doesn't fit goes round by round, as tasks"

            def go(shard: int, stage: Stage = stage) -> None:
                if stage.first:
                    # Parts that lie beside each other: who reads a file from its beginning on goes through it once.
                    first, end = (len(parts) * at // len(shards) for at in (shard, shard + 1))
                    self.step_first(stage, shard, parts[first:end], interval)
                else:
                    self.step_shard(stage, shard, shared, interval)
                scope.progress.advance()

            scope.workers.each(go, shards, LARGE)

    # --- stages ---------------------------------------------------------------------------------------------------

    def step_first(
        self, stage: Stage, shard: int, parts: Iterable[tuple[int, Callable[[Pool], np.ndarray]]], interval: Interval
    ) -> None:
        """Take parts of what is fed, by place, through the first stage. Its operators keep nothing, so any shard's will do."""
        for index, part in parts:
            updates = part(self.pools[shard])
            result = self.scope.through(stage, shard, {index: Delta(updates)}, {}, (), interval)
            self._put_away((), stage, shard, result, ())
            del updates, result
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
        """Take a shard through a stage that others were before; in a loop, in the interval's rounds, where `called` places are to step."""
        scope, pool, rounds = self.nest.scopes[path], self.pools[shard], interval.rounds
        for index in (*stage.reads, *stage.places):
            self.go_on((*path, index), shard, interval)
        # Each begins, called or not: with it comes what waited for these rounds.
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
                at = Address((*path, index), BROUGHT, shard, rounds)
                updates = self.exchange.take(at, self.layout((*path, scope.places[index].inputs[0])), pool, last=True)
                if updates is not None:
                    routed[index] = Delta(updates)
            if scope.places[index].shifts:
                updates = self.exchange.take(
                    Address((*path, index), LATE, shard, rounds), self.layout((*path, index)), pool, last=True
                )
                if updates is not None:
                    late[index] = Delta(updates)
        if deltas or routed or late or due:
            result = scope.through(stage, shard, deltas, late, due, interval, routed)
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
        """Do a leg of a schedule for some shards; `pending` says where something waits for it."""
        interval = interval.at(leg.rounds)
        stage = self.nest.scopes[leg.path[:-1] if leg.action in WITHIN else leg.path].stages[leg.stage]
        if leg.action in ("whole", "rest"):
            loop_tasks.go_through(self, leg, stage, pending, interval)
            return
        for shard in shards:
            match leg.action:
                case "enter":
                    loop_tasks.enter(self, leg.path, shard, interval)
                case "sum":
                    loop_tasks.add_up(self, leg.path, shard, interval)
                case "end":
                    loop_tasks.end(self, leg.path, stage, shard, interval)
                case _:
                    due = {wake.place[-1] for wake in leg.due if wake.shard == shard}
                    self.step_shard(stage, shard, {}, interval, leg.path, due)
            self.forget(shard)

    def given(self, path: Path, stage: Stage, interval: Interval) -> dict[Path, Deltas]:
        """Return what a loop is given, of all shards, where it is given something."""
        read: dict[Path, Deltas] = {}
        for place in self.nest.given(path):
            none = self.nest.scopes[place[:-1]].places[place[-1]].none
            deltas = []
            for shard in range(self.scope.workers.count):
                self.go_on(place, shard, interval)
                at = Address(place, HERE, shard, interval.rounds)
                last = place[-1] in stage.seals
                updates = self.exchange.take(at, self.layout(place), self.pools[shard], last=last)
                deltas.append(none if updates is None else self.resumed(place, shard, updates))
            if any(len(delta.updates) for delta in deltas):
                read[place] = deltas
        return read

    # --- what is between ------------------------------------------------------------------------------------------

    def _put_away(self, path: Path, stage: Stage, shard: int, result: Pass, rounds: Rounds) -> None:
        """Send what a shard gave to those who read it."""
        scope = self.nest.scopes[path]
        fed = self.nest.feeds(path)
        for index, delta in list(result.found.items()):
            del result.found[index]
            if index in scope.kept and not path:
                self.give(index, shard, delta)
            elif index in scope.kept:
                loop_tasks.leave(self, (*path, index), shard, delta, rounds)
            # What a loop is fed was sent to all when it came, but for what is read where it is: that is found by one stage only.
            if index in stage.exports and (index not in fed or (*path, index) in self.nest.origins):
                self.send((*path, index), shard, delta.updates, rounds)
            for operator in self.operator((*path, index), shard):
                if operator.shared and isinstance(operator, Keeping) and index not in stage.seals:
                    operator.drop()
        for index, when, delta in result.later:
            at = Address((*path, index), LATE, shard, when)
            self.exchange.add(at, delta.updates, self.layout(at.place), self.pools[shard])
        self.wakes += [Wake((*path, index), when, shard) for index, when in result.wakes]

    def resumed(self, place: Path, shard: int, updates: np.ndarray) -> Delta:
        """Return what was put away as it was: where it is an arrangement's batch, that is what the trace will take in."""
        for operator in self.operator(place, shard):
            if operator.shared:
                if isinstance(operator, Keeping):
                    operator.batch = updates
                return Delta(updates, distinct=True)
        return Delta(updates)

    def send(self, place: Path, shard: int, updates: np.ndarray, rounds: Rounds) -> None:
        """Bring updates of a place to the shards whose keys they have, for each who reads them so; let others find them here."""
        if not len(updates):
            return
        path, index, scope = place[:-1], place[-1], self.nest.scopes[place[:-1]]
        for reader in self.readers[place]:
            at = Address((*path, reader), BROUGHT, shard, rounds)
            self.deal(at, updates, self.layout(place), scope.places[reader].route)
        if any(index in other.inputs and not other.route for other in scope.places) or (path and index in scope.kept):
            self.stays(place, shard, updates, rounds)

    def deal(self, at: Address, updates: np.ndarray, layout: Layout, lanes: Sequence[int]) -> None:
        """Send updates of a shard to an address, each to the shard that some of its lanes say."""
        parts = kernels.exchange([updates], tuple(lanes), self.scope.workers.count)
        for to, part in enumerate(parts):
            if len(part):
                self.exchange.add(at._replace(shard=to), part, layout, self.pools[at.shard])

    def stays(self, place: Path, shard: int, updates: np.ndarray, rounds: Rounds = ()) -> None:
        """Put updates away where those find them who read them by the same shard."""
        self.exchange.add(Address(place, HERE, shard, rounds), updates, self.layout(place), self.pools[shard])

    def layout(self, place: Path) -> Layout:
        """Return the layout of what a place gives."""
        layout = self.nest.scopes[place[:-1]].places[place[-1]].layout
        assert layout is not None, "what is put away has a layout"
        return layout

    def _stay(self, place: Path, shard: int, stage: Stage, rounds: Rounds) -> np.ndarray | None:
        """Return what an earlier stage gave at a place, and this shard finds there; where an arrangement enters a loop, what is new of it."""
        origin = self.nest.origins.get(place)
        if origin is not None and place[-1] in stage.members:
            if rounds[-1]:
                return None
            at = Address(origin, HERE, shard, rounds[:-1])
            return self.exchange.take(at, self.layout(origin), self.pools[shard], last=False)
        # What comes to a port is sent on, to stages after this one too.
        last = place[-1] in stage.seals or place[-1] in stage.members
        at = Address(place, HERE, shard, rounds)
        return self.exchange.take(at, self.layout(place), self.pools[shard], last=last)

    # --- traces ---------------------------------------------------------------------------------------------------

    def operator(self, place: Path, shard: int) -> Sequence[Operator]:
        """Return the operator of a place, if it has one."""
        shards = self.nest.scopes[place[:-1]].places[place[-1]].shards
        return shards[shard : shard + 1]

    def go_on(self, place: Path, shard: int, interval: Interval) -> None:
        """Have an operator of a loop be where those were who stepped it before in this interval, up to its rounds."""
        path, rounds = place[:-1], interval.rounds
        if not path or (place, shard) in self._found:
            return
        self._found.add((place, shard))
        for operator in self.operator(place, shard):
            loop_tasks.recall(self, operator, place, shard, interval.at(rounds[: len(path)]))

    def seal(self, path: Path, stage: Stage, shard: int, interval: Interval) -> None:
        """Have traces take in what is new, and hand them over: those that others read when all of them have, others at once.

        Those of a loop are put off: they go on in its next rounds.
        """
        for index in {*stage.members, *stage.seals}:
            for operator in self.operator((*path, index), shard):
                if stage.takes_in(index, shared=operator.shared):
                    if not path:
                        operator.close(interval)
                    self.nest.scopes[path].seal_shard(index, shard, interval)
                    if path:
                        loop_tasks.put_off(self, operator, (*path, index), shard)
                        continue
                    for trace in operator.traces:
                        self.hand_over(trace)

    def forget(self, shard: int) -> None:
        """Let go of the values of a shard that is done, and of what was recalled of it: a task may take other shards after it."""
        self.pools[shard].forget()
        for place, owner in [found for found in self._found if found[1] == shard]:
            self._found.discard((place, owner))
            for operator in self.operator(place, shard):
                if operator.revisiting is not None:
                    operator.revisiting.close()
                for trace in operator.traces:
                    trace.resume(())
