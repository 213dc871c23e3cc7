"""A step whose updates don't fit in memory: stage by stage, shard by shard, with the updates between stages in scratch files.

The inputs go through the first stage slice by slice. From then on one shard after the other (as many at once as there are
threads) passes a stage: its updates are read, its operators step, their updates are stored for the
stages that read them, and their traces take in the new updates and are handed over to the state. So memory holds only the updates of a shard in
one stage, for any sizes of input, state and output. A loop takes all shards at once and holds its working set, or goes
stage by stage in each round (`loop_tasks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.engine import kernels, loop_tasks
from ddcli.engine.buffer_pool import BufferPool
from ddcli.engine.operators.base import Delta, StatefulOperator
from ddcli.engine.schedule import WITHIN
from ddcli.engine.scope_tree import BROUGHT, HERE, LATE, Address, Path, ScheduledActivation
from ddcli.engine.spill_store import SpillStore
from ddcli.engine.workers import LARGE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    import numpy as np

    from ddcli.engine.lanes import Columns
    from ddcli.engine.places import StageResult
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.schedule import Leg
    from ddcli.engine.stages import Stage


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
                at = Address((*path, index), BROUGHT, shard, rounds)
                updates = self.exchange.take(at, self.layout((*path, source)), pool, last=True)
                if updates is not None:
                    routed[index, source] = Delta(updates)
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

    def _put_away(self, path: Path, stage: Stage, shard: int, result: StageResult, rounds: Rounds) -> None:
        """Send a shard's updates to the stages that read them."""
        scope = self.nest.scopes[path]
        fed = self.nest.feeds(path)
        for index, delta in list(result.found.items()):
            del result.found[index]
            if index in scope.kept and not path:
                self.give(index, shard, delta)
            elif index in scope.kept:
                loop_tasks.leave(self, (*path, index), shard, delta, rounds)
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
