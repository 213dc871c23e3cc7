"""Where plan and engine meet: each physical node becomes an operator over lanes.

The plan knows names and types, the engine lanes; this module is the dictionary between them and decides nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Protocol

from ddcli.assemble.groups import accumulations, aggregates, multiplicity, python_reducer, told, top, value_layout
from ddcli.assemble.linear import linear_operator, order_lanes
from ddcli.engine.lanes import Layout
from ddcli.engine.operators.grouping import Accumulate, Group, Multiplicity
from ddcli.engine.operators.join import Arrange, Join
from ddcli.engine.operators.linear import Concat, Consolidate, Inspect, Permute
from ddcli.engine.operators.reduce import Reduce
from ddcli.engine.operators.reduce_evaluate import SumOverflow
from ddcli.engine.operators.threshold import Threshold
from ddcli.plan import physical

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import polars as pl

    from ddcli.engine.arrangement.trace import Trace
    from ddcli.engine.dataflow import Handle, Scope
    from ddcli.engine.operators.base import Delta, Interval, Operator
    from ddcli.engine.operators.reduce_aggregates import Aggregate
    from ddcli.engine.pool import Pool
    from ddcli.plan.logical import Node


class Traces(Protocol):
    """Gives the trace of a stateful node: an empty one, or what a state holds under its fingerprint."""

    def trace(self, identity: str, key: Layout, value: Layout, nt: int) -> Trace:
        """Return the trace of the arrangement `identity`, whose records have these keys and values."""


@dataclass
class Assembled:
    """A scope that computes a physical graph: where inputs go in, and how inputs and outputs are laid out."""

    scope: Scope
    sources: dict[str, Handle] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    outputs: dict[str, Layout] = field(default_factory=dict)


def assemble(
    graph: physical.PhysicalGraph, scope: Scope, traces: Traces, pool: Pool, show: Callable[[str, pl.DataFrame], None]
) -> Assembled:
    """Fill `scope` with the operators of `graph`; `show` is given what an `inspect` sees."""
    assembly = _Assembly(scope, traces, pool, show)
    result = Assembled(scope)
    for node in graph.nodes:
        handle = assembly.place(node)
        if isinstance(node, physical.Scan):
            result.sources[node.name] = handle
            result.layouts[node.name] = Layout(node.schema)
    for name, node in graph.outputs.items():
        scope.output(name, assembly.handles[node.fingerprint])
        result.outputs[name] = Layout(node.schema)
    return result


@dataclass(frozen=True, slots=True)
class _Told:
    """A reduction whose overflow is told in the words of the pipeline file: the engine knows no columns."""

    operator: Operator
    node: physical.Accumulate | physical.Group
    pool: Pool

    def step(self, deltas: Sequence[Delta], interval: Interval) -> Delta:
        try:
            return self.operator.step(deltas, interval)
        except SumOverflow as error:
            raise told(error, self.node, self.pool) from error

    def seal(self, interval: Interval) -> None:
        self.operator.seal(interval)


@dataclass
class _Assembly:
    scope: Scope
    traces: Traces
    pool: Pool
    show: Callable[[str, pl.DataFrame], None]
    handles: dict[str, Handle] = field(default_factory=dict)
    arranged: dict[str, Arrange] = field(default_factory=dict)

    def place(self, node: Node) -> Handle:
        if isinstance(node, physical.Scan):
            handle = self.scope.source(Layout(node.schema).width)
        else:
            operator = self.operator(node)
            if isinstance(operator, Arrange):
                self.arranged[node.fingerprint] = operator
            handle = self.scope.add(operator, *(self.handles[child.fingerprint] for child in node.inputs))
        self.handles[node.fingerprint] = handle
        return handle

    @singledispatchmethod
    def operator(self, node: Node) -> Operator:
        raise AssertionError(type(node))

    @operator.register(physical.Linear)
    def _(self, node: physical.Linear) -> Operator:
        return linear_operator(node, self.pool, self.scope.nt)

    @operator.register(physical.Sum)
    def _(self, node: physical.Sum) -> Operator:
        return Concat(node.signs, Layout(node.schema).width + self.scope.nt + 1)

    @operator.register(physical.Consolidate)
    def _(self, node: physical.Consolidate) -> Operator:
        return Consolidate()

    @operator.register(physical.Show)
    def _(self, node: physical.Show) -> Operator:
        from ddcli.engine.updates import to_frame

        layout = Layout(node.schema)

        def show(updates: np.ndarray) -> None:
            self.show(node.label, to_frame(updates, layout, self.pool, self.scope.nt))

        return Inspect(show)

    @operator.register(physical.Arranged)
    def _(self, node: physical.Arranged) -> Operator:
        source = Layout(node.inputs[0].schema)
        key, value = split_layout(node)
        trace = self.traces.trace(node.fingerprint, key, value, self.scope.nt)
        return Arrange(source.take(node.schema), trace)

    @operator.register(physical.EquiJoin)
    def _(self, node: physical.EquiJoin) -> Operator:
        left, right = node.inputs
        assert isinstance(left, physical.Arranged)
        assert isinstance(right, physical.Arranged)
        lanes = {"left": Layout(left.schema), "right": Layout(right.schema)}
        nk = split_layout(left)[0].width
        # [key | left values | right values]: the right's values begin where the left's row ends.
        offset = {"left": 0, "right": lanes["left"].width - nk}
        take = [lane + offset[side] for _, side, source in node.columns for lane in lanes[side].lanes(source)]
        return Join(self.arranged[left.fingerprint], self.arranged[right.fingerprint], take)

    @operator.register(physical.OrderLanes)
    def _(self, node: physical.OrderLanes) -> Operator:
        return Permute(order_lanes(node), self.scope.nt)

    @operator.register(physical.Accumulate)
    def _(self, node: physical.Accumulate) -> Operator:
        key = Layout({name: node.schema[name] for name in node.by})
        values = value_layout(node.inputs[0].schema, node.by)
        reduce = Reduce(key.width, values.width, self.scope.nt, accumulations(node))
        return _Told(Accumulate(reduce, self._output_trace(node, node.by)), node, self.pool)

    @operator.register(physical.Group)
    def _(self, node: physical.Group) -> Operator:
        return _Told(self._group(node, node.by, aggregates(node, self.pool)), node, self.pool)

    @operator.register(physical.PythonGroup)
    def _(self, node: physical.PythonGroup) -> Operator:
        return self._group(node, node.by, [python_reducer(node, self.pool)])

    @operator.register(physical.Top)
    def _(self, node: physical.Top) -> Operator:
        (arranged,) = node.inputs
        assert isinstance(arranged, physical.Arranged)
        return self._group(node, arranged.key, [top(node, self.pool)])

    @operator.register(physical.Multiplicity)
    def _(self, node: physical.Multiplicity) -> Operator:
        (arranged,) = node.inputs
        threshold = Threshold(Layout(arranged.schema).width, self.scope.nt, multiplicity(node.function))
        return Multiplicity(threshold, self.arranged[arranged.fingerprint])

    def _group(self, node: Node, by: Sequence[str], found: list[Aggregate]) -> Operator:
        (arranged,) = node.inputs
        key = Layout({name: node.schema[name] for name in by})
        reduce = Reduce(key.width, value_layout(arranged.schema, by).width, self.scope.nt, found)
        return Group(reduce, self.arranged[arranged.fingerprint], self._output_trace(node, by))

    def _output_trace(self, node: Node, by: Sequence[str]) -> Trace:
        key = Layout({name: node.schema[name] for name in by})
        return self.traces.trace(node.fingerprint, key, value_layout(node.schema, by), self.scope.nt)


def split_layout(node: physical.Arranged) -> tuple[Layout, Layout]:
    """Return the layouts of an arrangement's key and value."""
    key = Layout({name: node.schema[name] for name in node.key})
    return key, Layout({name: node.schema[name] for name in node.value})
