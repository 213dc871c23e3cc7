"""Passes of a step over the shards of a dataflow: side by side for many updates, in one pass over all of them for few.

Both are the same graph, assembled over traces with the same contents: the shards' traces, and for one pass traces that read all shards' and
keep new updates until a shard is stepped by itself again. So a few updates are neither distributed to shards nor exchanged between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.circuit.operators import Traces
from ddcli.engine import kernels
from ddcli.engine.operators.base import Delta
from ddcli.engine.trace.spine import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.circuit.graph import Assembled
    from ddcli.engine.lanes import Layout
    from ddcli.engine.process import Workers
    from ddcli.engine.rounds import Interval
    from ddcli.engine.stages import Deltas
    from ddcli.engine.times import Frontier


class UnitedTrace(Trace):
    """The sum of the traces of some `shards`; the lanes `by` determine the shard of a row.

    Its oldest batches belong to the shards, and it does not merge them; behind them are its own. So no shard may be stepped
    before the union has distributed its own batches to the shards, and the union not before it has gathered theirs.
    """

    _theirs = 0
    """The number of the oldest batches, which are the shards'."""

    def __init__(self, shards: Sequence[Trace], by: Sequence[int]) -> None:
        first = shards[0]
        super().__init__(first.nk, first.nv, first.nt, since=first.since, layout=first.layout)
        self._shards = shards
        self._by = tuple(by)
        self._gathered = False

    def gather(self, upper: Frontier) -> None:
        """Take the shards' batches, which are all before `upper`."""
        if self._gathered:
            return
        self._gathered = True
        self.upper = upper
        self.batches = [batch for shard in self._shards for batch in shard.batches]
        self._theirs = self._resident = len(self.batches)
        self._settle()

    def partition(self, upper: Frontier, each: Callable[..., list[Any]]) -> None:
        """Distribute its own rows, which are all before `upper`, to the shards; `each` is as in `exchange`."""
        if not self._gathered:
            return
        own = [batch.matrix() for batch in self.batches[self._theirs :]]
        self._gathered = False
        self.batches, self._merges, self._theirs, self._waiting = [], [], 0, 0
        for shard in self._shards:
            shard.set_logical_compaction(self._own)
        if own:
            # With unchanged times: readers of a shard may still distinguish them.
            parts = kernels.exchange([kernels.merge(own)], self._by, len(self._shards), each)
            for shard, part in zip(self._shards, parts, strict=True):
                shard.insert(part, upper)

    def _settle(self) -> None:
        super()._settle()
        self._settled = max(self._settled, self._theirs)


FEW = 4_000
"""The number of updates of a step below which one pass over all shards is faster than several side by side."""


class ShardTraces(Traces):
    """The traces of a dataflow's shards, empty at first. `known` maps each node with traces to the lanes that partition its rows, and to its shards."""

    def __init__(self, since: Frontier) -> None:
        self.since = since
        self.known: dict[str, tuple[Sequence[int], list[Trace]]] = {}

    def trace(
        self, identity: str, key: Layout, value: Layout, nt: int, shard: int, by: Sequence[int] | None = None
    ) -> Trace:
        """Return an empty trace, as a dataflow begins without state."""
        trace = Trace(key.width, value.width, nt, since=self.since)
        _, shards = self.known.setdefault(identity, (range(key.width) if by is None else by, []))
        assert len(shards) == shard, "the shards of a node are made in order, and once"
        shards.append(trace)
        return trace


class UnitedTraces(Traces):
    """The traces that each read all shards of a node, which `ShardTraces` has made."""

    def __init__(self, shards: ShardTraces) -> None:
        self._shards = shards
        self.made: list[UnitedTrace] = []

    def trace(
        self, identity: str, key: Layout, value: Layout, nt: int, shard: int, by: Sequence[int] | None = None
    ) -> Trace:
        """Return the trace of all shards of a node."""
        by, shards = self._shards.known[identity]
        self.made.append(UnitedTrace(shards, by))
        return self.made[-1]


class ShardedDataflow:
    """The steps of a dataflow with several workers, each in the faster way. `assemble` returns the graph for one worker over given traces."""

    def __init__(
        self,
        sharded: Assembled,
        shards: ShardTraces,
        workers: Workers,
        assemble: Callable[[Traces], Assembled],
    ) -> None:
        self.sources = sharded.sources
        self._sharded = sharded
        self._workers = workers
        self._assemble = assemble
        self._united = UnitedTraces(shards)
        self._whole: Assembled | None = None
        self._kept: list[UnitedTrace] = []
        """The traces of kept arrangements, whose shards handles may read at any time."""

    def step(self, fed: dict[str, Delta | Deltas], interval: Interval) -> dict[str, Deltas]:
        """Close an interval, as `Assembled.step` does."""
        if sum(map(_rows, fed.values())) >= FEW:
            self._partition(self._united.made, interval.lower)
            return self._sharded.step(fed, interval)
        if self._whole is None:
            self._whole = self._assemble(self._united)
            kept = {id(trace) for traces in self._whole.arranged.values() for trace in traces}
            self._kept = [trace for trace in self._united.made if id(trace) in kept]
        for trace in self._united.made:
            trace.gather(interval.lower)
        found = self._whole.step({name: _sum(given) for name, given in fed.items()}, interval)
        self._partition(self._kept, interval.upper)
        return found

    def _partition(self, traces: Sequence[UnitedTrace], upper: Frontier) -> None:
        for trace in traces:
            trace.partition(upper, self._workers.each)


def _rows(given: Delta | Deltas) -> int:
    """Return the number of updates."""
    return given.rows if isinstance(given, Delta) else sum(delta.rows for delta in given)


def _sum(deltas: Delta | Deltas) -> Delta:
    """Return the updates of all shards, in the order that each shard's have."""
    if isinstance(deltas, Delta):
        return deltas
    return deltas[0] if len(deltas) == 1 else Delta(kernels.merge([delta.updates for delta in deltas]), distinct=True)
