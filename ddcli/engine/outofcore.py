"""A step whose updates don't fit in memory: stage by stage, shard by shard, with what lies between the stages put away.

What is fed goes through the first stage slice by slice. From then on one shard after the other (as many at once as there are
threads) is taken through a stage: what was brought to it is read, its operators step, what they give is put away for the
stages that read it, their traces take in what is new and are handed over to whoever keeps them. So memory holds what a shard takes in
one stage, whatever the sizes of input, state and output. A loop takes all shards at once and holds what it works on.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta, Keeping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.dataflow import Scope
    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.base import Interval, Operator
    from ddcli.engine.places import Deltas, Pass
    from ddcli.engine.pool import Pool
    from ddcli.engine.stages import Stage

LARGE = 1 << 40
"""Rows that are worth a thread: here each task is."""


class Address(NamedTuple):
    """Where updates wait for a shard: at the place whose operator they were `brought` to by its key, or else that gave them."""

    place: int
    brought: bool
    shard: int


class Exchange(Protocol):
    """Updates that are put away until their shard is taken through a stage. Threads may add at once."""

    def add(self, to: Address, updates: np.ndarray, layout: Layout, pool: Pool) -> None:
        """Put updates away, whose data has a layout; the values behind their hashes are in `pool`."""

    def take(self, at: Address, layout: Layout, pool: Pool, *, last: bool) -> np.ndarray | None:
        """Return all that was added, None for nothing, with its values in `pool`; the `last` time nothing is left."""


@dataclass
class OutOfCore:
    """A scope with more than one shard, stepped once: whole, or a stage and a shard at a time.

    `give` is told of the outputs' updates, by place and shard, `hand_over` of each trace that is done with this step. `pools` has
    one for each shard, forgotten after each task that filled it unless it `remembers`, as one must that is shared by all.

    Nothing but what is exchanged goes from one stage to the next: each may have operators of its own, whose traces are as before
    the step until they are handed over. So stages and shards may be taken by different processes.
    """

    scope: Scope
    pools: Sequence[Pool]
    exchange: Exchange
    give: Callable[[int, int, Delta], None]
    hand_over: Callable[[Trace], None]
    remembers: bool = False
    _readers: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        scope = self.scope
        assert scope.workers.count > 1, "out of core means shard by shard"
        assert scope.depth == 0, "a loop steps in memory"
        assert not any(place.wraps for place in scope.places), "what is filtered on read is read in memory"
        scope.prepare()
        for index, place in enumerate(scope.places):
            if place.route:
                self._readers[place.inputs[0]].append(index)

    def step(
        self,
        fed: Mapping[int, Iterable[Callable[[Pool], np.ndarray]]],
        shared: Mapping[int, Callable[[int, Pool], np.ndarray]],
        interval: Interval,
    ) -> None:
        """Close the interval. `fed` has the parts of what each source is fed, `shared` what a source that comes by shard is."""
        scope = self.scope
        shards = range(scope.workers.count)
        parts = [(index, part) for index, given in fed.items() for part in given]
        for stage in scope.stages:
            scope.announce(stage, 1 if stage.whole else len(shards))
            if stage.whole:
                self.step_inner(stage, interval)
                continue

            def go(shard: int, stage: Stage = stage) -> None:
                if stage.first:
                    self.step_first(stage, shard, parts[shard :: len(shards)], interval)
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
            self._put_away(stage, shard, self.scope.through(stage, shard, {index: Delta(updates)}, {}, (), interval))
            del updates
            self._forget(shard)

    def step_shard(
        self,
        stage: Stage,
        shard: int,
        shared: Mapping[int, Callable[[int, Pool], np.ndarray]],
        interval: Interval,
    ) -> None:
        """Take a shard through a stage that others were before."""
        scope, pool = self.scope, self.pools[shard]
        due = {
            index
            for index in stage.places
            for operator in self._operator(index, shard)
            if list(operator.begin(interval))
        }
        deltas, routed = {}, {}
        for index in stage.reads:
            updates = shared[index](shard, pool) if index in shared else self._stay(index, shard, stage)
            if updates is not None and len(updates):
                deltas[index] = self._resumed(index, shard, updates)
        for index in stage.places:
            if scope.places[index].route:
                layout = self._layout(scope.places[index].inputs[0])
                updates = self.exchange.take(Address(index, True, shard), layout, pool, last=True)
                if updates is not None:
                    routed[index] = Delta(updates)
        if deltas or routed or due:
            self._put_away(stage, shard, scope.through(stage, shard, deltas, {}, due, interval, routed))
        del deltas, routed
        self._seal(stage, shard, interval)
        for index in (*stage.reads, *stage.places):
            for operator in self._operator(index, shard):
                for trace in operator.traces:
                    trace.release()
        self._forget(shard)

    def step_inner(self, stage: Stage, interval: Interval) -> None:
        """Step a scope within, with all its input in memory."""
        (index,) = stage.places
        place, shards = self.scope.places[index], range(self.scope.workers.count)
        inner = place.inner
        assert inner is not None
        read: dict[int, Deltas | None] = {}
        for i in {*place.inputs}:
            none = self.scope.places[i].none
            found = [self._stay(i, shard, stage) for shard in shards]
            deltas = [none if each is None else self._resumed(i, shard, each) for shard, each in enumerate(found)]
            read[i] = deltas if any(len(delta.updates) for delta in deltas) else None
        given = [read[i] for i in place.inputs]
        begun = list(inner.begin(interval))
        if begun or any(given):
            for port, left in zip(place.ports, self.scope.step_within(index, given, interval), strict=True):
                for shard, delta in enumerate(left or ()):
                    if len(delta.updates):  # the port's own stage passes it on
                        self._stays(port, shard, delta)
            inner.wakes.clear()
        inner.close(interval)
        del given, read
        for shard in shards:
            self._seal(stage, shard, interval)
        for trace in inner.traces:
            self.hand_over(trace)

    # --- what is between ------------------------------------------------------------------------------------------

    def _put_away(self, stage: Stage, shard: int, result: Pass) -> None:
        """Send what a shard gave to those who read it."""
        for index, delta in list(result.found.items()):
            del result.found[index]
            if index in self.scope.kept:
                self.give(index, shard, delta)
            if index in stage.exports:
                self._send(index, shard, delta)
            for operator in self._operator(index, shard):
                if operator.shared and isinstance(operator, Keeping) and index not in stage.seals:
                    operator.drop()

    def _resumed(self, index: int, shard: int, updates: np.ndarray) -> Delta:
        """Return what was put away as it was: where it is an arrangement's batch, that is what the trace will take in."""
        for operator in self._operator(index, shard):
            if operator.shared:
                if isinstance(operator, Keeping):
                    operator.batch = updates
                return Delta(updates, distinct=True)
        return Delta(updates)

    def _send(self, index: int, shard: int, delta: Delta) -> None:
        """Bring updates of a place to the shards whose keys they have, for each who reads them so; let others find them here."""
        if not len(delta.updates):
            return
        layout, pool = self._layout(index), self.pools[shard]
        for reader in self._readers[index]:
            parts = kernels.exchange([delta.updates], self.scope.places[reader].route, self.scope.workers.count)
            for to, part in enumerate(parts):
                if len(part):
                    self.exchange.add(Address(reader, True, to), part, layout, pool)
        if any(index in other.inputs and not other.route for other in self.scope.places):
            self._stays(index, shard, delta)

    def _stays(self, index: int, shard: int, delta: Delta) -> None:
        self.exchange.add(Address(index, False, shard), delta.updates, self._layout(index), self.pools[shard])

    def _layout(self, index: int) -> Layout:
        layout = self.scope.places[index].layout
        assert layout is not None, "what is put away has a layout"
        return layout

    def _stay(self, index: int, shard: int, stage: Stage) -> np.ndarray | None:
        """Return what an earlier stage gave at a place, and this shard finds there."""
        if self.scope.places[index].layout is None:
            return None
        # What comes to a port is sent on, to stages after this one too.
        last = index in stage.seals or index in stage.members
        return self.exchange.take(Address(index, False, shard), self._layout(index), self.pools[shard], last=last)

    # --- traces ---------------------------------------------------------------------------------------------------

    def _operator(self, index: int, shard: int) -> Sequence[Operator]:
        """Return the operator of a place, if it has one."""
        shards = self.scope.places[index].shards
        return shards[shard : shard + 1]

    def _seal(self, stage: Stage, shard: int, interval: Interval) -> None:
        """Have traces take in what is new, and hand them over: those that others read when all of them have, others at once."""
        for index in {*stage.members, *stage.seals}:
            for operator in self._operator(index, shard):
                if index in (stage.seals if operator.shared else stage.members):
                    operator.close(interval)
                    self.scope.seal_shard(index, shard, interval)
                    for trace in operator.traces:
                        self.hand_over(trace)

    def _forget(self, shard: int) -> None:
        if not self.remembers:
            self.pools[shard].forget()
