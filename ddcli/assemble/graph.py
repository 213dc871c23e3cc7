"""Where plan and engine meet: each physical node becomes an operator over lanes, a loop a scope of its own.

The plan knows names and types, the engine lanes; this module is the dictionary between them and decides nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ddcli.assemble.groups import accumulations, aggregates, multiplicity, python_reducer, told, top, value_layout
from ddcli.assemble.linear import linear_operator, order_lanes
from ddcli.assemble.shifts import python_shift
from ddcli.engine.dataflow import Scope
from ddcli.engine.lanes import Layout, decode_records
from ddcli.engine.loop import Entry, Limit, Loop, Variable
from ddcli.engine.operators.grouping import Accumulate, Group, Multiplicity
from ddcli.engine.operators.join import Arrange, Entered, Join
from ddcli.engine.operators.linear import Concat, Consolidate, Inspect, Permute
from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.operators.reduce_evaluate import SumOverflow
from ddcli.engine.operators.shift import Delay, EnterAt, Shift, Waiting
from ddcli.engine.operators.threshold import Threshold
from ddcli.engine.operators.upsert import Upsert
from ddcli.expressions.types import Type
from ddcli.plan import loops, physical
from ddcli.plan.logical import digest
from ddcli.plan.loops import level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import polars as pl

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.dataflow import Deltas, Handle
    from ddcli.engine.operators.base import Delta, Interval, Operator
    from ddcli.engine.operators.imported import Imported
    from ddcli.engine.operators.reduce_aggregates import Aggregate
    from ddcli.engine.pool import Pool
    from ddcli.engine.rounds import Rounds
    from ddcli.expressions.types import Schema
    from ddcli.plan.logical import Node

INT64 = Type("int64")
SHOWN = 3
"""Records of a collection that a message shows."""


class Traces(Protocol):
    """Gives the trace of a stateful node: an empty one, or what a state holds under its fingerprint."""

    def trace(self, identity: str, key: Layout, value: Layout, nt: int) -> Trace:
        """Return the trace of the arrangement `identity`, whose records have these keys and values; each shard asks for its own."""


@dataclass
class Assembled:
    """A scope that computes a physical graph: where inputs go in, outputs come out, and how both are laid out."""

    scope: Scope
    sources: dict[str, Handle] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    leaving: dict[str, Handle] = field(default_factory=dict)
    outputs: dict[str, Layout] = field(default_factory=dict)
    arranged: dict[str, list[Trace]] = field(default_factory=dict)
    """The shards' traces of those outputs that are arrangements: what they hold is read from there."""

    def step(self, fed: Mapping[str, Delta | Deltas], interval: Interval) -> dict[str, Delta]:
        """Close an interval, of which `fed` has the inputs' updates by name; return those of the outputs."""
        sources = {self.sources[name].index: delta for name, delta in fed.items()}
        found = self.scope.step(sources, interval)
        return {name: self.scope.whole(handle, found) for name, handle in self.leaving.items()}


def assemble(
    graph: physical.PhysicalGraph,
    scope: Scope,
    traces: Traces,
    pool: Pool,
    show: Callable[[str, pl.DataFrame], None],
    time: Sequence[Type] = (INT64,),
    indexed: Mapping[str, Import | Upserts] | None = None,
) -> Assembled:
    """Fill `scope` with the operators of `graph`; `show` is given what an `inspect` sees, `time` are its coordinates' types.

    `indexed` are the sources that are arranged as they come: arrangements that others keep, fed by shard, and upserts.
    """
    left: dict[str, list[int]] = defaultdict(list)
    for node in graph.nodes:
        if isinstance(node, loops.Leave):
            left[node.inputs[0].fingerprint].append(node.which)
    assembly = _Assembly(scope, None, _Surroundings(traces, pool, show, time, left, indexed or {}))
    result = Assembled(scope)
    for name, node in graph.outputs.items():
        handle = assembly.handle(node)
        if isinstance(node, physical.Arranged):
            shards = assembly.arranged[node.fingerprint]
            result.arranged[name] = [shard.trace for shard in shards if isinstance(shard, Arrange | Upsert)]
        else:
            result.leaving[name] = handle
            scope.keep(handle)
            result.outputs[name] = Layout(node.schema)
    for scan in graph.scans().values():
        handle = assembly.handle(scan)
        result.sources[scan.name] = assembly.fed.get(scan.name, handle)
        result.layouts[scan.name] = Layout(scan.schema)
    return result


@dataclass(frozen=True, slots=True)
class _Told:
    """A reduction whose overflow is told in the words of the pipeline file: the engine knows no columns."""

    operator: Group
    node: physical.Accumulate | physical.Group
    pool: Pool

    @property
    def wakes(self) -> list[Rounds]:
        return self.operator.wakes

    def begin(self, interval: Interval) -> Iterable[Rounds]:
        return self.operator.begin(interval)

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        try:
            return self.operator.step(deltas, interval)
        except SumOverflow as error:
            raise told(error, self.node, self.pool) from error

    def seal(self, interval: Interval) -> None:
        self.operator.seal(interval)

    def close(self, interval: Interval) -> None:
        self.operator.close(interval)


@dataclass(frozen=True)
class Import:
    """An arrangement that another dataflow keeps: its key, all its columns, and its shards."""

    key: tuple[str, ...]
    schema: Schema
    shards: Sequence[Imported]


@dataclass(frozen=True)
class Upserts:
    """A source fed with rows [key | value | present | order]: its key and all its columns. The last row of a key says its value."""

    key: tuple[str, ...]
    schema: Schema


@dataclass(frozen=True)
class _Surroundings:
    """What is the same for all scopes; `left` gives, by loop, which of its bodies are read outside."""

    traces: Traces
    pool: Pool
    show: Callable[[str, pl.DataFrame], None]
    time: Sequence[Type]
    left: dict[str, list[int]]
    indexed: Mapping[str, Import | Upserts]


@dataclass
class _Assembly:
    """The filling of one scope. A node that depends on no round of the scope's loop is placed outside, and enters."""

    scope: Scope
    outside: _Assembly | None
    surroundings: _Surroundings
    handles: dict[str, Handle] = field(default_factory=dict)
    arranged: dict[str, Sequence[Arrange | Entered | Imported | Upsert]] = field(default_factory=dict)
    fed: dict[str, Handle] = field(default_factory=dict)
    """Of the sources that are arranged as they come: where they are fed."""
    indexed: dict[str, tuple[Handle, Sequence[Imported | Upsert]]] = field(default_factory=dict)
    """And where their updates come out, arranged."""
    ports: dict[tuple[str, int], Handle] = field(default_factory=dict)
    entering: list[tuple[Node, Entry]] = field(default_factory=list)
    variables: dict[int, Handle] = field(default_factory=dict)

    @property
    def pool(self) -> Pool:
        return self.surroundings.pool

    def handle(self, node: Node) -> Handle:
        """Return the place of a node in this scope."""
        known = self.handles.get(node.fingerprint)
        if known is None:
            known = self.handles[node.fingerprint] = self.place(node)
        return known

    def place(self, node: Node) -> Handle:
        if level(node) < self.scope.depth:
            return self.enter(node)
        if isinstance(node, loops.Leave):
            return self.leave(node)
        width = Layout(node.schema).width
        if isinstance(node, loops.Variable):
            return self.variable(node.index, width)
        if isinstance(node, physical.Scan):
            return self.scan(node)
        if isinstance(node, physical.Arranged) and (source := self.is_source(node)):
            handle, self.arranged[node.fingerprint] = self.source(source)
            return handle
        inputs = [self.handle(child) for child in node.inputs]
        shards = [self.operator(node, shard) for shard in range(self.scope.workers.count)]
        if isinstance(shards[0], Arrange):
            self.arranged[node.fingerprint] = [shard for shard in shards if isinstance(shard, Arrange)]
        shifts = isinstance(node, physical.EquiJoin | physical.EnterAt)
        handle = self.scope.add(shards, *inputs, width=width, route=route(node), shifts=shifts)
        if self.times > 1 and isinstance(node, physical.EquiJoin):
            # The lattice join of two closed times may be open: a join's updates wait for it.
            delays = [Delay(self.waiting_trace(node, Layout(node.schema)), self.scope.depth) for _ in shards]
            handle = self.scope.add(delays, handle, width=width)
        return handle

    # --- sources --------------------------------------------------------------------------------------------------

    def scan(self, node: physical.Scan) -> Handle:
        """Return the place of a source; where it is arranged as it comes, of its rows column by column as the node says."""
        width = Layout(node.schema).width
        indexed = self.surroundings.indexed.get(node.name)
        if indexed is None:
            return self.scope.source(width)
        handle, shards = self.source(node.name)
        lanes = Layout(indexed.schema).take(node.schema)
        return self.scope.add([Permute(lanes, self.scope.nt) for _ in shards], handle, width=width)

    def is_source(self, node: physical.Arranged) -> str | None:
        """Return the name of the source that is the very arrangement that a node asks for, as it comes."""
        (scan,) = node.inputs
        if not isinstance(scan, physical.Scan) or scan.name not in self.surroundings.indexed:
            return None
        indexed = self.surroundings.indexed[scan.name]
        same = indexed.key == node.key and list(indexed.schema.items()) == list(node.schema.items())
        return scan.name if same else None

    def source(self, name: str) -> tuple[Handle, Sequence[Imported | Upsert]]:
        """Return where the updates of a source that is arranged as it comes are, and what keeps it."""
        if name not in self.indexed:
            indexed = self.surroundings.indexed[name]
            width = Layout(indexed.schema).width
            shards: Sequence[Imported | Upsert]
            if isinstance(indexed, Import):
                shards = indexed.shards
                handle = self.fed[name] = self.scope.fed(shards, width + self.scope.nt + 1)
            else:
                key = Layout({column: indexed.schema[column] for column in indexed.key})
                value = value_layout(indexed.schema, indexed.key)
                trace = self.surroundings.traces.trace
                shards = [
                    Upsert(trace(digest("upserts", name), key, value, self.scope.nt))
                    for _ in range(self.scope.workers.count)
                ]
                self.fed[name] = self.scope.source(width + 2)
                handle = self.scope.add(shards, self.fed[name], width=width, route=range(key.width))
            self.indexed[name] = handle, shards
        return self.indexed[name]

    # --- loops ----------------------------------------------------------------------------------------------------

    def enter(self, node: Node) -> Handle:
        """Let a collection from outside into the loop: from its first round on, an arrangement as it stands."""
        assert self.outside is not None
        self.outside.handle(node)
        if isinstance(node, physical.Arranged):
            shards = [Entered(shard) for shard in self.outside.arranged[node.fingerprint]]
            trace = shards[0].trace
            handle = self.scope.fed(shards, trace.nk + trace.nv + trace.nt + 1)
            self.arranged[node.fingerprint] = shards
            self.entering.append((node, Entry(handle, shards)))
        else:
            handle = self.scope.source(Layout(node.schema).width)
            self.entering.append((node, Entry(handle)))
        return handle

    def leave(self, node: loops.Leave) -> Handle:
        (iterate,) = node.inputs
        assert isinstance(iterate, loops.Iterate)
        if (iterate.fingerprint, node.which) not in self.ports:
            self.loop(iterate)
        return self.ports[iterate.fingerprint, node.which]

    def loop(self, node: loops.Iterate) -> None:
        """Add a loop: a scope of its own with the nodes that depend on its round."""
        scope = Scope(self.scope.nt + 1, self.scope.depth + 1, self.scope.workers)
        inner = _Assembly(scope, self, self.surroundings)
        layouts = [Layout(initial.schema) for initial in node.initials]
        places = [inner.variable(at, layout.width) for at, layout in enumerate(layouts)]
        bodies = [inner.handle(body) for body in node.bodies]
        left = sorted(set(self.surroundings.left[node.fingerprint]))

        def show(at: int, changes: np.ndarray) -> str:
            shown = np.ascontiguousarray(changes[:SHOWN])
            records = decode_records(shown, layouts[at], self.pool)
            return ", ".join(f"{record} {diff:+d}" for record, diff in zip(records, shown[:, -1].tolist(), strict=True))

        loop = Loop(
            scope,
            [Variable(*each) for each in zip(places, bodies, node.names, strict=False)],
            [entry for _, entry in inner.entering],
            [bodies[which] for which in left],
            Limit(node.bound, node.guard),
            show,
        )
        inputs = [self.handle(outer) for outer in (*node.initials, *(outer for outer, _ in inner.entering))]
        widths = [Layout(node.bodies[which].schema).width for which in left]
        for which, port in zip(left, self.scope.add_inner(loop, *inputs, widths=widths), strict=True):
            self.ports[node.fingerprint, which] = port

    def variable(self, index: int, width: int) -> Handle:
        """Return the place of one of the loop's variables."""
        if index not in self.variables:
            self.variables[index] = self.scope.source(width)
        return self.variables[index]

    # --- operators ------------------------------------------------------------------------------------------------

    @singledispatchmethod
    def operator(self, node: Node, shard: int) -> Operator:
        """Return a shard of the operator of a node."""
        raise AssertionError(type(node))

    @operator.register(physical.Linear)
    def _(self, node: physical.Linear, shard: int) -> Operator:
        return linear_operator(node, self.pool, self.scope.nt)

    @operator.register(physical.Sum)
    def _(self, node: physical.Sum, shard: int) -> Operator:
        return Concat(node.signs, Layout(node.schema).width + self.scope.nt + 1)

    @operator.register(physical.Consolidate)
    def _(self, node: physical.Consolidate, shard: int) -> Operator:
        return Consolidate()

    @operator.register(physical.Show)
    def _(self, node: physical.Show, shard: int) -> Operator:
        from ddcli.engine.updates import to_frame

        layout = Layout(node.schema)

        def show(updates: np.ndarray) -> None:
            self.surroundings.show(node.label, to_frame(updates, layout, self.pool, self.scope.nt))

        return Inspect(show)

    @operator.register(physical.Arranged)
    def _(self, node: physical.Arranged, shard: int) -> Operator:
        source = Layout(node.inputs[0].schema)
        key, value = split_layout(node)
        return Arrange(source.take(node.schema), self.trace(node, key, value))

    @operator.register(physical.EquiJoin)
    def _(self, node: physical.EquiJoin, shard: int) -> Operator:
        left, right = node.inputs
        assert isinstance(left, physical.Arranged)
        assert isinstance(right, physical.Arranged)
        lanes = {"left": Layout(left.schema), "right": Layout(right.schema)}
        nk = split_layout(left)[0].width
        # [key | left values | right values]: the right's values begin where the left's row ends.
        offset = {"left": 0, "right": lanes["left"].width - nk}
        take = [lane + offset[side] for _, side, source in node.columns for lane in lanes[side].lanes(source)]
        return Join(self.arranged[left.fingerprint][shard], self.arranged[right.fingerprint][shard], take)

    @operator.register(physical.EnterAt)
    def _(self, node: physical.EnterAt, shard: int) -> Operator:
        return EnterAt(self.scope.nt)

    @operator.register(physical.Shift)
    def _(self, node: physical.Shift, shard: int) -> Operator:
        return Shift(self.scope.nt, lower=node.lower, upper=node.upper)

    @operator.register(physical.PythonShift)
    def _(self, node: physical.PythonShift, shard: int) -> Operator:
        return python_shift(node, self.pool, self.surroundings.time, self.scope.nt)

    @operator.register(physical.Delay)
    def _(self, node: physical.Delay, shard: int) -> Operator:
        return Delay(self.waiting_trace(node, Layout(node.schema)), self.scope.depth)

    @operator.register(physical.OrderLanes)
    def _(self, node: physical.OrderLanes, shard: int) -> Operator:
        return Permute(order_lanes(node), self.scope.nt)

    @operator.register(physical.Accumulate)
    def _(self, node: physical.Accumulate, shard: int) -> Operator:
        key = Layout({name: node.schema[name] for name in node.by})
        values = value_layout(node.inputs[0].schema, node.by)
        reduce = Reduce(key.width, values.width, self.times, accumulations(node))
        return _Told(
            Accumulate(reduce, self.output_trace(node, node.by), self.waiting(node, node.by), self.scope.depth),
            node,
            self.pool,
        )

    @operator.register(physical.Group)
    def _(self, node: physical.Group, shard: int) -> Operator:
        return _Told(self.group(node, node.by, aggregates(node, self.pool), shard), node, self.pool)

    @operator.register(physical.PythonGroup)
    def _(self, node: physical.PythonGroup, shard: int) -> Operator:
        return self.group(node, node.by, [python_reducer(node, self.pool)], shard)

    @operator.register(physical.Top)
    def _(self, node: physical.Top, shard: int) -> Operator:
        (arranged,) = node.inputs
        assert isinstance(arranged, physical.Arranged)
        return self.group(node, arranged.key, [top(node, self.pool)], shard)

    @operator.register(physical.Multiplicity)
    def _(self, node: physical.Multiplicity, shard: int) -> Operator:
        arranged = self.own_arranged(node, shard)
        threshold = Threshold(Layout(node.schema).width, self.times, multiplicity(node.function))
        if self.scope.nt == 1:
            return Multiplicity(threshold, arranged)
        record = tuple(node.schema)
        output, waiting = self.output_trace(node, record), self.waiting(node, record)
        return Group(threshold, arranged, output, waiting, self.scope.depth)

    @property
    def times(self) -> int:
        """Return the number of time lanes that are no rounds: what a reduction sees of time."""
        return self.scope.nt - self.scope.depth

    def group(self, node: Node, by: Sequence[str], found: list[Aggregate], shard: int) -> Group:
        (arranged,) = node.inputs
        key = Layout({name: node.schema[name] for name in by})
        reduce = Reduce(key.width, value_layout(arranged.schema, by).width, self.times, found)
        output, waiting = self.output_trace(node, by), self.waiting(node, by)
        return Group(reduce, self.own_arranged(node, shard), output, waiting, self.scope.depth)

    def own_arranged(self, node: Node, shard: int) -> Arrange | Imported | Upsert:
        """Return the arrangement that a reduction reads. It is of this scope: a reduction of what entered would be outside."""
        arranged = self.arranged[node.inputs[0].fingerprint][shard]
        assert not isinstance(arranged, Entered)
        return arranged

    def trace(self, node: Node, key: Layout, value: Layout) -> Trace:
        return self.surroundings.traces.trace(node.fingerprint, key, value, self.scope.nt)

    def output_trace(self, node: Node, by: Sequence[str]) -> Trace:
        key = Layout({name: node.schema[name] for name in by})
        return self.trace(node, key, value_layout(node.schema, by))

    def waiting_trace(self, node: Node, data: Layout) -> Trace:
        """Return the trace of what waits for its time: that is the key, the data its value."""
        times = Layout({f"$time{at}": INT64 for at in range(self.scope.nt)})
        return self.surroundings.traces.trace(f"{node.fingerprint}-waiting", times, data, self.scope.nt)

    def waiting(self, node: Node, by: Sequence[str]) -> Waiting | None:
        """Return where a reduction keeps what it must evaluate later; in totally ordered time that is nothing."""
        if self.times == 1:
            return None
        return Waiting(self.waiting_trace(node, Layout({name: node.schema[name] for name in by})), self.scope.depth)


def route(node: Node) -> Sequence[int]:
    """Return the lanes of a node's input by which its rows find their shard; none where they stay in theirs."""
    if isinstance(node, physical.Arranged):
        return Layout(node.inputs[0].schema).take(node.key)
    if isinstance(node, physical.Accumulate):
        return range(Layout({name: node.schema[name] for name in node.by}).width)
    if isinstance(node, physical.Consolidate | physical.Show):
        return range(Layout(node.schema).width)
    return ()


def split_layout(node: physical.Arranged) -> tuple[Layout, Layout]:
    """Return the layouts of an arrangement's key and value."""
    key = Layout({name: node.schema[name] for name in node.key})
    return key, Layout({name: node.schema[name] for name in node.value})
