"""The engine's operators over lanes, from the nodes of the physical plan; and their context: traces, pools, facts about inputs, the receiver of failing records.

The plan knows names and types, the engine lanes; this module is the dictionary between them and decides nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

from ddcli.circuit.groups import aggregates, multiplicity, sum_error
from ddcli.circuit.linear import accumulations, asked_columns, keeping, linear_operator, order_lanes, value_layout
from ddcli.dataclass import dataclass
from ddcli.engine.lanes import Layout, ranks, to_frame
from ddcli.engine.operators.groups import Accumulate, Group, Local, Negative, Threshold
from ddcli.engine.operators.join import Arrange, Entered, FewerRows, HalfJoin, Join, PairRoom, RowCount
from ddcli.engine.operators.linear import Concat, Consolidate, Inspect, Once, Permute
from ddcli.engine.operators.reduce import CHUNK, Reduce
from ddcli.engine.operators.reduce_aggregates import Gather
from ddcli.engine.operators.shift import Delay, DelayedRows, EnterAt, Shift
from ddcli.engine.operators.upsert import OrderedUpsert, Snapshots, Upsert
from ddcli.engine.pool import PUBLIC, Pool
from ddcli.engine.records import decode_records
from ddcli.engine.trace.trace_import import Filtered
from ddcli.expressions.tree import FilterStep
from ddcli.expressions.types import POOLED, Type
from ddcli.plan import asof, groupings, logical, loops, memo, physical, physical_joins, temporal, windows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import polars as pl

    from ddcli.circuit.python_calls import CallTurns
    from ddcli.engine.operators.base import Operator
    from ddcli.engine.operators.join import Readable
    from ddcli.engine.operators.memo import FormerAnswers
    from ddcli.engine.operators.reduce import Reader
    from ddcli.engine.operators.reduce_aggregates import Aggregate
    from ddcli.engine.operators.running_windows import RunningWindow
    from ddcli.engine.scope import Scope
    from ddcli.engine.trace.spine import Trace
    from ddcli.engine.trace.trace_import import Imported
    from ddcli.errors import DdError
    from ddcli.plan.node import Node
    from ddcli.sources.slices import InputFacts

    Failed = Callable[[np.ndarray, Layout, Pool, Sequence[str]], None]
    """Receives updates on which an expression fails, with their layout, the pool of their values, and why, each."""


T = TypeVar("T")
INT64 = Type("int64")


class Traces(Protocol):
    """Returns the trace of a stateful node: an empty one, or the one that a state holds under its fingerprint."""

    def trace(
        self, identity: str, key: Layout, value: Layout, nt: int, shard: int, by: Sequence[int] | None = None
    ) -> Trace:
        """Return a shard's trace of the arrangement `identity`, whose records have these keys and values.

        `by` are the lanes that partition its rows, by default the key's.
        """

    def former(self, identity: str, key: Layout, value: Layout, nt: int, shard: int) -> FormerAnswers | None:
        """Return a shard's results of a function that remembers, where a state holds them and its trace does not."""
        return None


@dataclass(frozen=True)
class CircuitContext:
    """The data that all scopes share.

    `pools` has a pool for all shards, or one for each if no updates pass from one shard to another in memory. `show` receives the updates of an
    `inspect`; `time` has the coordinates' types. `facts` has more on inputs that are upserts or snapshots. `failed` receives the records on
    which an expression fails; without it they end the run. `joined` are the identities of arrangements that only joins read.
    """

    traces: Traces
    pools: Pool | Sequence[Pool]
    show: Callable[[str, pl.DataFrame], None]
    time: Sequence[Type] = (INT64,)
    facts: Mapping[str, InputFacts] = field(default_factory=dict)
    failed: Failed | None = None
    joined: frozenset[str] = frozenset()

    def pool(self, shard: int) -> Pool:
        """Return the pool of a shard."""
        return self.pools if isinstance(self.pools, Pool) else self.pools[shard]


class LazyShards(Sequence[T]):
    """The results of `make` for each of `count` shards, made once each. Threads may ask for different shards."""

    def __init__(self, make: Callable[[int], T], count: int) -> None:
        self._make = make
        self._made: dict[int, T] = {}
        self._shards = range(count)

    def __len__(self) -> int:
        return len(self._shards)

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...

    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return [self[shard] for shard in self._shards[at]]
        shard = self._shards[at]
        if shard not in self._made:
            self._made[shard] = self._make(shard)
        return self._made[shard]


def shards_of(make: Callable[[int], T], count: int, *, lazily: bool) -> Sequence[T]:
    """Return the shards of an operator, made now or when each is first asked for."""
    return LazyShards(make, count) if lazily else [make(shard) for shard in range(count)]


def _reporting(
    operator: Group | Local | RunningWindow,
    node: groupings.Accumulate | groupings.Group | windows.WindowedGroup,
    pool: Pool,
) -> Operator:
    """Have a reduction's overflow reported in the words of the pipeline file: the engine knows no columns."""
    operator.report = lambda error: sum_error(error, node, pool)
    return operator


@dataclass
class Operators:
    """The operators of the nodes of one scope, and those that keep its arrangements, by node: one for each shard."""

    scope: Scope
    context: CircuitContext
    arranged: dict[str, Sequence[Arrange | Entered | Filtered | Imported | Upsert]] = field(default_factory=dict)
    _linear: dict[tuple[str, int], Operator] = field(default_factory=dict)
    _turns: dict[str, CallTurns] = field(default_factory=dict)
    _rooms: dict[str, PairRoom] = field(default_factory=dict)

    def pool(self, shard: int) -> Pool:
        return self.context.pool(shard)

    @singledispatchmethod
    def operator(self, node: Node, shard: int) -> Operator:
        """Return a shard of the operator of a node."""
        raise AssertionError(type(node))

    @operator.register(physical.Linear)
    def _(self, node: physical.Linear, shard: int) -> Operator:
        # It keeps nothing: shards with one pool share it, so that expressions are made once.
        known = node.fingerprint, id(self.pool(shard))
        if known not in self._linear:
            self._linear[known] = self._linear_of(node, shard)
        return self._linear[known]

    def _linear_of(self, node: physical.Linear, shard: int) -> Operator:
        tell = self.context.failed
        if tell is None or self.scope.depth:  # in a loop a record fails in a round, and an error log has no rounds
            return linear_operator(node, self.pool(shard), self.scope.nt)
        layout, pool = Layout(node.inputs[0].schema), self.pool(shard)
        return linear_operator(node, pool, self.scope.nt, lambda rows, why: tell(rows, layout, pool, why))

    @operator.register(memo.MemoizedCalls)
    def _(self, node: memo.MemoizedCalls, shard: int) -> Operator:
        from ddcli.circuit.python_calls import CallTurns, memoized_calls  # few pipelines have functions in Python

        around = self.context
        turns = self._turns.setdefault(node.answers, CallTurns(node.calls))
        return memoized_calls(node, shard, self.scope.nt, around.traces, self.pool(shard), around.failed, turns)

    @operator.register(logical.SignedSum)
    def _(self, node: logical.SignedSum, shard: int) -> Operator:
        return Concat(node.signs, Layout(node.schema).width + self.scope.nt + 1)

    @operator.register(logical.Consolidate)
    def _(self, node: logical.Consolidate, shard: int) -> Operator:
        return Consolidate()

    @operator.register(logical.Inspect)
    def _(self, node: logical.Inspect, shard: int) -> Operator:
        layout = Layout(node.schema)

        def show(updates: np.ndarray) -> None:
            self.context.show(node.label, to_frame(updates, layout, self.pool(shard), self.scope.nt))

        return Inspect(show)

    @operator.register(physical.Arrangement)
    def _(self, node: physical.Arrangement, shard: int) -> Operator:
        source = Layout(node.inputs[0].schema)
        key, value = split_layout(node)
        joined = node.fingerprint in self.context.joined
        # It has a trace even if it is imported: then another pipeline's state keeps it.
        trace = self.context.traces.trace(node.fingerprint, key, value, self.scope.nt, shard)
        return Arrange(source.take(node.schema), trace, joined=joined)

    @operator.register(logical.Upsert)
    def _(self, node: logical.Upsert, shard: int) -> Operator:
        facts, pool = self.context.facts[node.name], self.pool(shard)
        key = Layout({name: node.schema[name] for name in node.key})

        def tied(row: np.ndarray) -> DdError:
            (values,) = decode_records(row[None], key, pool)
            return facts.tied(dict(zip(node.key, values, strict=True)), int(row[-2]))

        trace = self.output_trace(node, node.key, shard)
        if node.lasting:
            return OrderedUpsert(trace, tied, facts.truncations)
        return Upsert(trace, tied, facts.truncations)

    @operator.register(logical.Snapshots)
    def _(self, node: logical.Snapshots, shard: int) -> Operator:
        facts, pool = self.context.facts[node.name], self.pool(shard)
        key = Layout({name: node.schema[name] for name in node.key or node.schema})

        def twice(row: np.ndarray) -> DdError:
            (values,) = decode_records(row[None], key, pool)
            return facts.twice(dict(zip(node.key, values, strict=True)), int(row[-2]))

        trace = self.output_trace(node, node.key or tuple(node.schema), shard)
        return Snapshots(trace, facts.snapshots, twice if node.key else None, facts.deleted)

    @operator.register(logical.Once)
    def _(self, node: logical.Once, shard: int) -> Operator:
        return Once(self.output_trace(node, tuple(node.schema), shard))

    @operator.register(logical.Watched)
    def _(self, node: logical.Watched, shard: int) -> Operator:
        facts, pool, layout = self.context.facts[node.name], self.pool(shard), Layout(node.schema)

        def found(rows: np.ndarray) -> None:
            (values,) = decode_records(rows[:1], layout, pool)
            time, count = rows[0, -2:].tolist()
            facts.negative(dict(zip(layout.names, values, strict=True)), time, count, len(rows))

        return Negative(self.output_trace(node, layout.names, shard), found)

    @operator.register(physical.Filtered)
    def _(self, node: physical.Filtered, shard: int) -> Operator:
        (whole,) = node.inputs
        filters = [FilterStep(condition) for condition in node.conditions]
        asked = Layout(whole.schema).take(asked_columns(whole.schema, filters))
        keep = keeping(whole.schema, filters, self.pool(shard))
        return Filtered(self.arranged[whole.fingerprint][shard].trace, keep, asked)

    @operator.register(physical.EquiJoin)
    def _(self, node: physical.EquiJoin, shard: int) -> Operator:
        left, right = node.inputs
        assert isinstance(left, physical.Arrangement)
        assert isinstance(right, physical.Arrangement)
        lanes = {"left": Layout(left.schema), "right": Layout(right.schema)}
        nk = split_layout(left)[0].width
        # [key | left values | right values]: the right's values begin where the left's row ends, the key is there once.
        offset = {"left": 0, "right": lanes["left"].width - nk}
        found = [(side, lane) for _, side, source in node.columns for lane in lanes[side].lanes(source)]
        take = [lane if lane < nk else lane + offset[side] for side, lane in found]
        one, other = (self.arranged[side.fingerprint][shard].trace for side in (left, right))
        return Join(one, other, take, self._room(node))

    @operator.register(physical_joins.HalfJoin)
    def _(self, node: physical_joins.HalfJoin, shard: int) -> Operator:
        lanes, nk = lookup_lanes(node)
        at = {lane: place for place, lane in reversed([*enumerate(lanes)])}
        given, found = (Layout(each.schema) for each in node.inputs)
        take: list[int] = []
        for _, side, source in node.columns:
            if side == "left":
                take += [at[lane] for lane in given.lanes(source)]
            else:
                # [key | values of the updates | values of the rows]: the key is there once.
                take += [lane if lane < nk else len(lanes) - nk + lane for lane in found.lanes(source)]
        given_lanes = None if node.is_in_order else lanes
        return HalfJoin(given_lanes, self.looked_up(node, shard), nk, take, new=node.new, room=self._room(node))

    def _room(self, node: Node) -> PairRoom | None:
        """Return the room for rows that all shards of a join share."""
        room = self.scope.pairs
        return room and self._rooms.setdefault(node.fingerprint, PairRoom(room.size, each=room.each))

    @operator.register(physical_joins.RowCount)
    def _(self, node: physical_joins.RowCount, shard: int) -> Operator:
        lanes, nk = lookup_lanes(node)
        return RowCount(None if node.is_in_order else lanes, self.looked_up(node, shard), nk, new=node.new)

    @operator.register(physical_joins.FewerRows)
    def _(self, node: physical_joins.FewerRows, shard: int) -> Operator:
        return FewerRows(self.scope.nt, fewer=node.fewer)

    @operator.register(physical_joins.DeltaJoin)
    def _(self, node: physical_joins.DeltaJoin, shard: int) -> Operator:
        return Concat([1] * len(node.inputs), Layout(node.schema).width + self.scope.nt + 1)

    @operator.register(loops.EnterAt)
    def _(self, node: loops.EnterAt, shard: int) -> Operator:
        return EnterAt(self.scope.nt)

    @operator.register(temporal.Shift)
    def _(self, node: temporal.Shift, shard: int) -> Operator:
        return Shift(self.scope.nt, lower=node.lower, upper=node.upper)

    @operator.register(temporal.JoinFunction)
    def _(self, node: temporal.JoinFunction, shard: int) -> Operator:
        from ddcli.circuit.python_calls import python_shift

        return python_shift(node, self.pool(shard), self.context.time, self.scope.nt)

    @operator.register(temporal.Delay)
    def _(self, node: temporal.Delay, shard: int) -> Operator:
        return Delay(self.waiting_trace(node, Layout(node.schema), shard), self.scope.depth)

    @operator.register(physical.OrderLanes)
    def _(self, node: physical.OrderLanes, shard: int) -> Operator:
        return Permute(order_lanes(node), self.scope.nt)

    @operator.register(groupings.Accumulate)
    def _(self, node: groupings.Accumulate, shard: int) -> Operator:
        reduce = reduction(node, self.times)
        return _reporting(
            Accumulate(
                reduce, self.output_trace(node, node.by, shard), self.waiting(node, node.by, shard), self.scope.depth
            ),
            node,
            self.pool(shard),
        )

    @operator.register(physical.OfGroups)
    def _(self, node: physical.OfGroups, shard: int) -> Operator:
        found = self.group(node, node.arranged.key, aggregates(node, self.pool(shard)), shard)
        return _reporting(found, node, self.pool(shard)) if isinstance(node, groupings.Group) else found

    @operator.register(windows.WindowedGroup)
    def _(self, node: windows.WindowedGroup, shard: int) -> Operator:
        from ddcli.circuit.windows import TOGETHER, deciding_lanes, window
        from ddcli.engine.operators.asof import Neighbours

        (arranged,) = node.inputs
        assert isinstance(arranged, physical.Arrangement)
        pool = self.pool(shard)
        calls = window(node, pool)
        if node.reach is None or self.scope.nt > 1:
            return _reporting(self.group(node, arranged.key, [calls], shard, chunk=TOGETHER), node, pool)
        key, values = split_layout(arranged)
        near = Neighbours(key.width, values.width, calls, node.reach, deciding_lanes(node, pool))
        return _reporting(Local(near, self.inputs(node, shard)), node, pool)

    @operator.register(windows.RunningGroup)
    def _(self, node: windows.RunningGroup, shard: int) -> Operator:
        from ddcli.circuit.windows import ContinuedCalls, mark_layout
        from ddcli.engine.operators.running_windows import Running, RunningWindow

        (arranged,) = node.inputs
        assert isinstance(arranged, physical.Arrangement)
        pool = self.pool(shard)
        if self.scope.nt > 1:
            from ddcli.circuit.windows import TOGETHER, window

            return _reporting(self.group(node, arranged.key, [window(node, pool)], shard, chunk=TOGETHER), node, pool)
        calls = ContinuedCalls(node, pool)
        key, values = split_layout(arranged)
        running = Running(key.width, values.width, calls.order, calls)
        marks = self.trace(node, key, mark_layout(node), shard)
        return _reporting(RunningWindow(running, self.inputs(node, shard), marks), node, pool)

    @operator.register(asof.AsofGroup)
    def _(self, node: asof.AsofGroup, shard: int) -> Operator:
        from ddcli.engine.operators.asof import AsofJoin

        (arranged,) = node.inputs
        assert isinstance(arranged, physical.Arrangement)
        key, values = split_layout(arranged)
        pool = self.pool(shard)
        hashed = any(kind.kind in POOLED for kind in values.schema.values()) and pool.secret != PUBLIC

        def ranked(rows: np.ndarray) -> np.ndarray:
            return ranks(rows, values, pool, 1)

        right = values.lanes(node.rights[0]).start if node.rights else values.width
        sizes = (key.width, values.width, node.lanes, right)
        join = AsofJoin(*sizes, ranked if hashed else None, inner=node.inner, strict=node.strict)
        if self.scope.nt == 1:
            return Local(join, self.inputs(node, shard))
        return self.group(node, arranged.key, [Gather(join.width, join.gathered, single=False)], shard)

    @operator.register(groupings.Threshold)
    def _(self, node: groupings.Threshold, shard: int) -> Operator:
        inputs = self.inputs(node, shard)
        threshold = Threshold(Layout(node.schema).width, self.times, multiplicity(node.function))
        if self.scope.nt == 1:
            return Local(threshold, inputs)
        record = tuple(node.schema)
        output, waiting = self.output_trace(node, record, shard), self.waiting(node, record, shard)
        return Group(threshold, inputs, output, waiting, self.scope.depth)

    @property
    def times(self) -> int:
        """Return the number of time lanes that are no rounds: a reduction sees only these."""
        return self.scope.nt - self.scope.depth

    def group(self, node: Node, by: Sequence[str], found: list[Aggregate], shard: int, chunk: int = CHUNK) -> Group:
        (arranged,) = node.inputs
        key = Layout({name: node.schema[name] for name in by})
        reduce = Reduce(key.width, value_layout(arranged.schema, by).width, self.times, found, chunk=chunk)
        output, waiting = self.output_trace(node, by, shard), self.waiting(node, by, shard)
        return Group(reduce, self.inputs(node, shard), output, waiting, self.scope.depth)

    def looked_up(self, node: physical_joins.RowLookup, shard: int) -> Readable:
        """Return the trace in which updates are looked up."""
        return self.arranged[node.arranged.fingerprint][shard].trace

    def inputs(self, node: Node, shard: int) -> Reader:
        """Return the trace that a reduction reads. It is in this scope: a reduction of a collection from outside would be outside."""
        arranged = self.arranged[node.inputs[0].fingerprint][shard]
        assert not isinstance(arranged, Entered | Filtered)
        return arranged.trace

    def trace(self, node: Node, key: Layout, value: Layout, shard: int) -> Trace:
        self._check_kept(node)
        return self.context.traces.trace(node.fingerprint, key, value, self.scope.nt, shard)

    def output_trace(self, node: Node, by: Sequence[str], shard: int) -> Trace:
        key = Layout({name: node.schema[name] for name in by})
        return self.trace(node, key, value_layout(node.schema, by), shard)

    def waiting_trace(self, node: Node, data: Layout, shard: int) -> Trace:
        """Return the trace of updates that wait for their time: the time is the key, the data the value, which partitions them."""
        self._check_kept(node)
        nt = self.scope.nt
        times = Layout({f"$time{at}": INT64 for at in range(nt)})
        by = range(nt, nt + data.width)
        return self.context.traces.trace(node.fingerprint + physical.WAITING, times, data, nt, shard, by)

    def _check_kept(self, node: Node) -> None:
        """Refuse a trace to a node that says that it keeps no state: the next change of the pipeline would drop it, and results would be wrong without a word."""
        assert node.keeps_state(len(self.context.time)), f"{type(node).__name__}.keeps_state must be true"

    def waiting(self, node: Node, by: Sequence[str], shard: int) -> DelayedRows | None:
        """Return the trace of work that a reduction must do later; in totally ordered time there is none."""
        if self.times == 1:
            return None
        return DelayedRows(
            self.waiting_trace(node, Layout({name: node.schema[name] for name in by}), shard), self.scope.depth
        )


def reduction(node: groupings.Accumulate, nt: int) -> Reduce:
    """Return the reduction of an accumulation, over times of `nt` coordinates."""
    key = Layout({name: node.schema[name] for name in node.by})
    return Reduce(key.width, value_layout(node.inputs[0].schema, node.by).width, nt, accumulations(node))


def split_layout(node: physical.Arrangement) -> tuple[Layout, Layout]:
    """Return the layouts of an arrangement's key and value."""
    key = Layout({name: node.schema[name] for name in node.key})
    return key, Layout({name: node.schema[name] for name in node.value})


def lookup_lanes(node: physical_joins.RowLookup) -> tuple[list[int], int]:
    """Return the lanes of updates with the lookup's lanes first, and the number of these."""
    layout = Layout(node.inputs[0].schema)
    key = layout.take(one for one, _ in node.on)
    return key + [lane for lane in range(layout.width) if lane not in key], len(key)
