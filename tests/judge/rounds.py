"""A dataflow whose steps are done by turns in memory, out of core, as tasks, and as tasks that leave what goes between them in files.

What a run on a cluster does, less its state: each task makes operators of its own, with traces as the step before left them, and
finds what was sent to it. A step in memory or out of core begins with new operators, too, as after a restart. No process is started, so that
many cases can be judged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddcli.circuit.graph import assemble
from ddcli.circuit.operators import CircuitContext, LazyShards
from ddcli.engine.executor import Executor
from ddcli.engine.heap import BufferPool
from ddcli.engine.pool import Pool
from ddcli.engine.process import Workers
from ddcli.engine.schedule import Schedule
from ddcli.engine.scope import Scope
from ddcli.engine.scope_tree import Address, ScopeTree
from ddcli.engine.spill_store import SpillStore, run_loop
from ddcli.engine.times import Frontier
from ddcli.engine.trace.spine import Trace
from ddcli.plan.loops import Iterate
from ddcli.store.batch.file import BatchLayout
from ddcli.store.files.gate import Files
from ddcli.store.scratch.spill import FileExchange, Spill
from tests.judge.frontiers import BEGINNING
from tests.secret import SECRET

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ddcli.circuit.graph import Assembled
    from ddcli.engine.lanes import Layout
    from ddcli.engine.operators.base import Delta
    from ddcli.engine.rounds import Interval
    from ddcli.engine.schedule import WorkItem
    from ddcli.engine.stages import Deltas
    from ddcli.expressions.types import Type
    from ddcli.plan.physical import PhysicalGraph


WAYS = ("memory", "spilled", "tasks", "files")
"""The ways to do a step."""


class Lasting(Pool):
    """A pool that stays with its traces."""

    def forget(self) -> None:
        """Keep all."""


class Kept:
    """Traces as the last step left them, by whom they are made anew for each task."""

    def __init__(self, nt: int) -> None:
        self.beginning = Frontier([(BEGINNING,) * nt])
        self.layouts: dict[str, Layout] = {}
        self.known: dict[tuple[str, int], Trace] = {}
        self.left: dict[tuple[str, int], Trace] = {}
        self.made: dict[int, tuple[Trace, tuple[str, int]]] = {}

    def trace(self, identity: str, key: Layout, value: Layout, nt: int, shard: int, _by: object = None) -> Trace:
        known = self.known.get((identity, shard))
        layout = self.layouts.get(identity)
        if layout is None:
            layout = self.layouts[identity] = BatchLayout(key, value, nt).record
        if known is None:
            trace = Trace(key.width, value.width, nt, since=self.beginning, layout=layout)
        else:
            trace = Trace(key.width, value.width, nt, since=known.since, batches=known.batches, layout=layout)
            trace.upper = known.upper
        self.made[id(trace)] = trace, (identity, shard)
        return trace

    def on_trace_ready(self, trace: Trace) -> None:
        """Take in a trace that is done with its step."""
        _, name = self.made[id(trace)]
        assert name not in self.left, f"{name} was handed over twice"
        assert not trace.runs
        self.left[name] = trace

    def commit(self) -> None:
        """Have the next step begin with what this one left."""
        self.known |= self.left
        self.left, self.made = {}, {}


class Parcel(NamedTuple):
    """What was sent, in memory."""

    to: Address
    updates: np.ndarray

    @property
    def size(self) -> int:
        return self.updates.nbytes


@dataclass
class Post:
    """What a task sends and finds, in memory (the engine's protocol `Exchange`)."""

    incoming: Mapping[Address, Iterable[Parcel]]
    sent: list[Parcel] = field(default_factory=list)

    def add(self, to: Address, updates: np.ndarray, _layout: Layout, _pool: Pool) -> None:
        self.sent.append(Parcel(to, updates.copy()))

    def take(self, at: Address, layout: Layout, pool: Pool, *, last: bool) -> np.ndarray | None:
        assert last in (True, False)
        parts = self.parts(at, layout, pool)
        return np.concatenate(parts) if parts else None

    def parts(self, at: Address, _layout: Layout, _pool: Pool) -> list[np.ndarray]:
        return [parcel.updates.copy() for parcel in self.incoming.get(at, ())]

    def flush(self) -> None:
        """Do nothing."""


class Rounds:
    """Steps of a physical graph, each done as chance will have it. Files are left in `folder`."""

    def __init__(
        self,
        graph: PhysicalGraph,
        types: list[Type],
        shards: int,
        chance: random.Random,
        folder: Path,
        ways: Sequence[str] = WAYS,
    ) -> None:
        assert shards > 1, "tasks are of shards"
        looped = any(
            isinstance(node, Iterate) for node in graph.nodes
        )  # a loop that doesn't fit goes round by round, as tasks
        self.ways = [way for way in ways if way != "spilled" or not looped]
        self.graph, self.types, self.shards, self.chance, self.folder = graph, types, shards, chance, folder
        self.pool = Lasting(SECRET)
        self.kept = Kept(len(types))
        self.written = 0
        self.share = chance.choice([0, 0.1, 0.3, 0.6])
        self.made = self._assembled()
        self.work_items: list[WorkItem] = []
        """What was done as tasks."""

    def step(self, fed: Mapping[str, Delta], interval: Interval) -> dict[str, Deltas]:
        """Close an interval; return the outputs' updates."""
        made = self.made = self._assembled()
        self.way = self.chance.choice(self.ways)
        if self.way == "memory":
            found = made.step(fed, interval)
            for trace, _ in list(self.kept.made.values()):
                self.kept.on_trace_ready(trace)
        elif self.way == "spilled":
            found = self._out_of_core(made, fed, interval)
        else:
            found = self._as_tasks(made, fed, interval)
        self.kept.commit()
        return found

    def _out_of_core(self, made: Assembled, fed: Mapping[str, Delta], interval: Interval) -> dict[str, Deltas]:
        found, give = _giving(made)
        spill = Spill(self.folder, Files(), self.chance.choice([0, 1000]))
        parts = [(made.sources[name].index, lambda _, m=delta.updates: m) for name, delta in fed.items()]
        try:
            store = SpillStore(made.nest, [self.pool] * self.shards, spill, self.kept.on_trace_ready)
            work_items = Schedule(made.nest, range(self.shards)).work_items()
            Executor(made.nest, interval, store, give, parts).run(work_items)
        finally:
            spill.clear()
        return found

    def _assembled(self) -> Assembled:
        scope = Scope(len(self.types), workers=Workers(self.shards, 1))
        context = CircuitContext(self.kept, self.pool, lambda *_: None, self.types)
        return assemble(self.graph, scope, context, parted=True, lazily=True)

    def _little(self, _moving: int, _kept: int) -> bool:
        return self.chance.random() < self.share

    def _as_tasks(self, made: Assembled, fed: Mapping[str, Delta], interval: Interval) -> dict[str, Deltas]:
        found, give = _giving(made)
        schedule = Schedule(ScopeTree(made.scope), range(self.shards), self._little, lambda sent: sent.size)
        memos = {}
        for item, waiting in schedule.work_items():
            self.work_items.append(item)
            for shards in self._groups(item):
                _renew(made.scope)
                mine = {at: parts for at, parts in waiting.items() if at.shard in shards}
                exchange = self._exchange(mine)
                known = {at: memo for at, memo in memos.items() if at[1] in shards}
                nest = ScopeTree(made.scope)
                store = SpillStore(nest, [self.pool] * self.shards, exchange, self.kept.on_trace_ready, memos=known)
                task = Executor(nest, interval, store, give)
                if not item.path and made.scope.stages[item.stage].first:
                    parts = [(made.sources[name].index, lambda _, m=delta.updates: m) for name, delta in fed.items()]
                    task.read(nest.scope.stages[item.stage], shards[0], parts if 0 in shards else [], BufferPool())
                elif item.action in ("whole", "rest"):
                    run_loop(store, item, mine, interval)
                else:
                    task.perform(item, shards)
                exchange.flush()
                for sent in exchange.sent:
                    schedule.add(sent.to, sent)
                for wake in store.wakes:
                    schedule.wake(wake)
                memos |= store.memos
        moving, _ = schedule.left()
        assert not moving, f"nobody has read {list(moving)}"
        return found

    def _groups(self, item: WorkItem) -> list[tuple[int, ...]]:
        """Return the shards of a work item's tasks, in any order."""
        if item.action in ("whole", "rest"):
            return [item.shards]
        shards = self.chance.sample(item.shards, len(item.shards))
        at = self.chance.choice([len(shards), len(shards), self.chance.randint(1, len(shards))])
        return [group for group in (tuple(shards[:at]), tuple(shards[at:])) if group]

    def _exchange(self, mine: Mapping[Address, list]) -> Post | FileExchange:
        if self.way == "tasks":
            return Post(mine)
        self.written += 1
        return FileExchange(self.folder, Files(), str(self.written), mine)


def _giving(made: Assembled) -> tuple[dict[str, Deltas], Callable[[int, int, Delta], None]]:
    """Return the outputs' updates, and the function that adds those of a shard of an operator."""
    found: dict[str, Deltas] = defaultdict(list)

    def give(index: int, _shard: int, delta: Delta) -> None:
        for name, handle in made.leaving.items():
            if handle.index == index:
                found[name].append(delta)

    return found, give


def _renew(scope: Scope) -> None:
    """Have operators be made anew."""
    for place in scope.places:
        if isinstance(place.shards, LazyShards):
            place.shards._made.clear()
        if place.inner is not None:
            _renew(place.inner.scope)
