"""The store of updates between the stages of a step out of core, and between the rounds of its loops.

In memory an operator lives from stage to stage and from round to round. Out of core its knowledge is stored: the updates that its traces took in,
the groups to evaluate in later rounds. The next worker of its shard, in this process or another, restores the operator from these.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.base import Delta, StatefulOperator
from ddcli.engine.operators.join import Entered
from ddcli.engine.scope_tree import CALLED, EXCHANGED, HERE, KEPT, Address, Memos, Path, ScheduledActivation, ScopeTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from ddcli.engine.operators.base import Operator
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Interval, Rounds
    from ddcli.engine.scope import Scope
    from ddcli.engine.scope_tree import Exchange
    from ddcli.engine.stages import Stage
    from ddcli.engine.trace.spine import Trace

LANES = Layout({})
"""The layout of keys, without types: the values behind their hashes are not needed before the groups are read, which have them."""


@dataclass
class SpillStore:
    """The stored data of a step out of core: updates by place and shard, and operators between rounds.

    `give` receives the outputs' updates, by place and shard, `on_trace_ready` each trace that is done with this step. `pools` has
    one for each shard, forgotten after each task that filled it.
    """

    scope: Scope
    pools: Sequence[Pool]
    exchange: Exchange
    give: Callable[[int, int, Delta], None]
    on_trace_ready: Callable[[Trace], None]
    memos: Memos = field(default_factory=dict)
    wakes: list[ScheduledActivation] = field(default_factory=list)
    """The calls at later rounds that operators of loops want."""
    nest: ScopeTree = field(init=False)
    readers: dict[Path, list[int]] = field(default_factory=lambda: defaultdict(list))
    """The readers that need a place's updates dealt by key."""
    _found: set[tuple[Path, int]] = field(default_factory=set)
    """The restored operators of loops, by shard."""

    def __post_init__(self) -> None:
        scope = self.scope
        assert scope.workers.count > 1, "out of core means shard by shard"
        assert scope.depth == 0, "a loop steps in memory"
        self.nest = ScopeTree(scope)
        for path, each in self.nest.scopes.items():
            assert not any(place.wraps for place in each.places), "a trace that is filtered on read is read in memory"
            for index, place in enumerate(each.places):
                if place.route:
                    self.readers[*path, place.inputs[0]].append(index)

    def resumed(self, place: Path, shard: int, updates: np.ndarray) -> Delta:
        """Return stored updates unchanged: an arrangement's batch are the updates that its trace will take in."""
        for operator in self.operator(place, shard):
            if operator.shared:
                if isinstance(operator, StatefulOperator):
                    operator.batch = updates
                return Delta(updates, distinct=True)
        return Delta(updates)

    def send(self, place: Path, shard: int, updates: np.ndarray, rounds: Rounds) -> None:
        """Send updates of a place to the shards of their keys, for each reader that is partitioned by them; leave them here for the other readers."""
        if not len(updates):
            return
        path, index, scope = place[:-1], place[-1], self.nest.scopes[place[:-1]]
        for reader in self.readers[place]:
            at = Address((*path, reader), EXCHANGED, shard, rounds)
            self.partition(at, updates, self.layout(place), scope.places[reader].route)
        if any(index in other.inputs and not other.route for other in scope.places) or (path and index in scope.kept):
            self.keep_local(place, shard, updates, rounds)

    def partition(self, at: Address, updates: np.ndarray, layout: Layout, lanes: Sequence[int]) -> None:
        """Send updates of a shard to an address, each to the shard of some of its lanes."""
        parts = kernels.exchange([updates], tuple(lanes), self.scope.workers.count)
        for to, part in enumerate(parts):
            if len(part):
                self.exchange.add(at._replace(shard=to), part, layout, self.pools[at.shard])

    def keep_local(self, place: Path, shard: int, updates: np.ndarray, rounds: Rounds = ()) -> None:
        """Store updates for the readers in the same shard."""
        self.exchange.add(Address(place, HERE, shard, rounds), updates, self.layout(place), self.pools[shard])

    def layout(self, place: Path) -> Layout:
        """Return the layout of a place's updates."""
        layout = self.nest.scopes[place[:-1]].places[place[-1]].layout
        assert layout is not None, "stored updates have a layout"
        return layout

    # --- operators and their traces -------------------------------------------------------------------------------

    def operator(self, place: Path, shard: int) -> Sequence[Operator]:
        """Return the operator of a place, if it has one."""
        shards = self.nest.scopes[place[:-1]].places[place[-1]].shards
        return shards[shard : shard + 1]

    def resume(self, place: Path, shard: int, interval: Interval) -> None:
        """Restore an operator of a loop to its state after the earlier rounds of this interval, which other workers may have stepped."""
        path, rounds = place[:-1], interval.rounds
        if not path or (place, shard) in self._found:
            return
        self._found.add((place, shard))
        for operator in self.operator(place, shard):
            self.recall(operator, place, shard, interval.at(rounds[: len(path)]))

    def seal(self, path: Path, stage: Stage, shard: int, interval: Interval) -> None:
        """Have traces take in the new updates, and hand them over: shared ones when all readers are done, others at once.

        A loop's updates are stored: they continue in its next rounds.
        """
        for index in {*stage.members, *stage.seals}:
            for operator in self.operator((*path, index), shard):
                if stage.takes_in(index, shared=operator.shared):
                    if not path:
                        operator.close(interval)
                    self.nest.scopes[path].seal_shard(index, shard, interval)
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
                here = Address(origin, HERE, shard, rounds[:-1])
                updates = self.exchange.take(here, self.layout(origin), pool, last=False)
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
