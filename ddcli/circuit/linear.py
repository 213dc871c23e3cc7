"""Operators of the plan's linear chains, and its sums: columns that need computing are computed, the others are the lanes of the input. Aggregates become descriptions of lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine.kernels.gather import EQUAL, GREATER, LESS
from ddcli.engine.lanes import NULL, Layout, decode
from ddcli.engine.operators.linear import Constant, Inverted, Lane, LaneComparison, Linear, Logic, Permute, Plus, Select
from ddcli.engine.operators.reduce_aggregates import (
    Aggregate,
    Count,
    CountDistinct,
    ExactSum,
    First,
    FloatMean,
    FloatSum,
    LaneRun,
    Number,
    maximum,
    minimum,
)
from ddcli.expressions import stage
from ddcli.expressions.tree import (
    Call,
    Cast,
    Column,
    Expression,
    FilterStep,
    Literal,
    MapStep,
    PythonStep,
    Step,
    UnnestStep,
)
from ddcli.expressions.types import FLAGGED, POOLED, Schema, Type
from ddcli.plan.shape import accumulated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from ddcli.engine.operators.base import Operator
    from ddcli.engine.pool import Pool
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.plan import groupings, physical


INT64 = Type("int64")


def asked_columns(schema: Schema, steps: Sequence[Step]) -> list[str]:
    """Return the columns that filters look at, one at least: all that there are for those in Python."""
    if not all(isinstance(each, FilterStep) for each in steps):
        return [*schema]
    found = {name for each in steps if isinstance(each, FilterStep) for name in each.condition.columns()}
    return sorted(found) or [*schema][:1]


def keeping(schema: Schema, steps: Sequence[Step], pool: Pool) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that selects those rows of a matrix with the lanes of `schema` first that filters keep, in their order."""
    asked = asked_columns(schema, steps)
    run, layout = stage.FusedSteps({name: schema[name] for name in asked}, tuple(steps)), Layout(schema)

    def keep(updates: np.ndarray) -> np.ndarray:
        if not len(updates):
            return updates
        rows = run.run(decode(updates, layout, pool, asked)).rows
        kept: np.ndarray = updates if rows is None else updates[rows]
        return kept

    return keep


def linear_operator(
    node: physical.Linear, pool: Pool, nt: int, failed: Callable[[np.ndarray, Sequence[str]], None] | None = None
) -> Operator:
    """Return the operator of a linear chain: lanes are permuted, and compared, if nothing has to be computed.

    `failed`, if given, receives the updates on which it fails; they have no result.
    """
    given = node.inputs[0].schema
    source = Layout(given)
    origins = _origins(given, node.steps)
    sums = {name: origin for name, origin in origins.items() if isinstance(origin, ColumnOffset)}
    if sums:
        # Sums, too, are computed as expressions if any other column is computed.
        refuse = _linear(node, origins | dict.fromkeys(sums), pool, nt, failed)
        if any(origin is None for origin in origins.values()) or not _only_maps(node):
            return refuse
        lanes: list[Lane] = []
        for name, kind in node.schema.items():
            lanes += _lanes(origins[name], kind, given, source)
        assert isinstance(refuse, Linear)
        return Permute(lanes, nt, refuse)
    return _linear(node, origins, pool, nt, failed)


def _only_maps(node: physical.Linear) -> bool:
    return all(isinstance(step, MapStep) for step in node.steps)


def _lanes(origin: Origin, kind: Type, given: Schema, source: Layout) -> list[Lane]:
    """Return the lanes of a column that comes from one column of the input or from none."""
    if isinstance(origin, ColumnOffset):
        (lane,) = source.lanes(origin.column.name)
        plus = Plus(lane, origin.number)
        return [Constant(0), plus] if kind.nullable else [plus]
    if isinstance(origin, Literal):
        return literal_lanes(origin, kind)
    assert origin is not None
    return lanes_as(list(source.lanes(origin.name)), given[origin.name], kind)


def _linear(
    node: physical.Linear,
    origins: dict[str, Origin],
    pool: Pool,
    nt: int,
    failed: Callable[[np.ndarray, Sequence[str]], None] | None,
) -> Operator:
    """Return the operator of a chain without sums of its own."""
    given = node.inputs[0].schema
    source = Layout(given)
    computed = Layout({name: kind for name, kind in node.schema.items() if origins.get(name) is None})
    lanes: list[Lane] = []
    for name, kind in node.schema.items():
        origin = origins.get(name)
        if origin is None:
            lanes += [source.width + lane for lane in computed.lanes(name)]
        else:
            lanes += _lanes(origin, kind, given, source)
    if not computed.width and _only_maps(node):
        return Permute(lanes, nt)
    only = MapStep(tuple((name, Column(name, kind)) for name, kind in computed.schema.items()))
    comparisons = None if computed.width else _comparisons(given, node.steps)
    if comparisons is not None:
        return Select(comparisons, lanes, nt)
    run, every = stage.FusedSteps(given, (*node.steps, only)), stage.FusedSteps(given, tuple(node.steps))

    def logic(steps: stage.FusedSteps, layout: Layout) -> Logic:
        def result(frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray | None, np.ndarray | None]:
            found = steps.run(frame)
            return found.frame, found.rows, found.weights

        return Logic(result, tuple(sorted(steps.needs)), layout)

    def sift(frame: pl.DataFrame, updates: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        assert failed is not None
        sound = np.ones(frame.height, np.bool_)
        errors = dict(run.failing(frame))
        sound[list(errors)] = False
        failed(updates(~sound), [error.logged for _, error in sorted(errors.items())])
        return sound

    operator = Linear(logic(run, computed), logic(every, Layout(node.schema)), source, lanes, pool, nt)
    if failed is not None:
        operator.sift = sift
    return operator


ORDERS = {
    "<": LESS,
    "<=": LESS | EQUAL,
    "=": EQUAL,
    "<>": LESS | GREATER,
    ">=": GREATER | EQUAL,
    ">": GREATER,
}


def _comparisons(given: Schema, steps: Sequence[Step]) -> list[LaneComparison] | None:
    """Return the comparisons of lanes that the filters among steps come to; None where they take more than that."""
    found: list[LaneComparison] = []
    for at, step in enumerate(steps):
        if isinstance(step, FilterStep):
            origins, conditions = _origins(given, steps[:at]), [step.condition]
            while conditions:
                call = conditions.pop()
                if isinstance(call, Call) and call.function == "and":
                    conditions += call.args
                elif compared := _comparison(call, origins, given):
                    found.append(compared)
                else:
                    return None
        elif not isinstance(step, MapStep):
            return None
    return found


def _comparison(call: Expression, origins: dict[str, Origin], given: Schema) -> LaneComparison | None:
    """Return a comparison of two columns of one lane, or of one with an integer, if the expression is one."""
    if not isinstance(call, Call) or call.function not in ORDERS:
        return None
    one, other = (_origin(argument, origins) for argument in call.args)
    orders = ORDERS[call.function]
    if isinstance(one, Literal):
        # 1 < x is x > 1.
        one, other, orders = other, one, orders & EQUAL | (orders & LESS) << 2 | (orders & GREATER) >> 2
    if not isinstance(one, Column):
        return None
    source, kind = Layout(given), given[one.name]
    if kind.nullable or kind.lanes > 1 or (kind.kind in POOLED and (call.function not in ("=", "<>") or kind.fields)):
        return None
    (lane,) = source.lanes(one.name)
    signed = kind.is_integer and kind.kind != "uint64"
    if isinstance(other, Literal) and isinstance(other.value, int):
        return LaneComparison(lane, orders, number=other.value) if signed else None
    if not isinstance(other, Column):
        return None
    beside = given[other.name]
    alike = beside == kind or (signed and beside.is_integer and beside.kind != "uint64" and not beside.nullable)
    return LaneComparison(lane, orders, *source.lanes(other.name)) if alike else None


@frozen
class ColumnOffset:
    """A column of 64-bit integers that are never null, and a number that is added."""

    column: Column
    number: int


Origin = Column | Literal | ColumnOffset | None
"""The source of a column: the input column whose lanes it has, a literal, a sum; None: it must be computed."""


def _origins(given: Schema, steps: Sequence[Step]) -> dict[str, Origin]:
    """Return the origin of each column after `steps`."""
    origins: dict[str, Origin] = {name: Column(name, kind) for name, kind in given.items()}
    for step in steps:
        if isinstance(step, MapStep):
            origins = {name: _origin(expression, origins) for name, expression in step.columns}
        elif isinstance(step, UnnestStep):
            origins = origins | {step.name: None}
        elif isinstance(step, PythonStep):
            origins = dict.fromkeys(name for name, _ in step.output)
    return origins


def _origin(expression: Expression, origins: dict[str, Origin]) -> Origin:
    if isinstance(expression, Literal):
        null = expression.value is None and expression.type.kind != "null"
        return expression if null or (isinstance(expression.value, int) and expression.type.kind == "int64") else None
    if isinstance(expression, Cast) and isinstance(expression.argument, Column):
        have, want = expression.argument.type, expression.type
        widens = have.is_integer and want.kind == "int64" and have.kind != "uint64"
        widens = widens or (have.is_float and want.kind == "float64")
        # A narrow nullable integer holds its null in the lane, an int64 in a flag beside it: that takes a look at values.
        widens = widens and not (have.nullable and (have.kind in FLAGGED) != (want.kind in FLAGGED))
        return origins.get(expression.argument.name) if widens else None
    if isinstance(expression, Call) and expression.function in ("+", "-") and len(expression.args) == 2:
        return _sum(expression, origins)
    return origins.get(expression.name) if isinstance(expression, Column) else None


def _sum(call: Call, origins: dict[str, Origin]) -> Origin:
    one, other = call.args
    if call.function == "+" and isinstance(one, Literal):
        one, other = other, one
    if not isinstance(one, Column) or not isinstance(other, Literal) or not isinstance(other.value, int):
        return None
    origin = origins.get(one.name)
    if not isinstance(origin, Column) or {one.type, origin.type, call.type} != {INT64}:
        return None
    return ColumnOffset(origin, other.value if call.function == "+" else -other.value)


def lanes_as(lanes: list[int], have: Type, want: Type) -> list[Lane]:
    """Return the lanes of a column under a type that differs in nulls or integer width: at most a flag is added or dropped."""
    had = have.nullable and have.kind in FLAGGED
    wants = want.nullable and want.kind in FLAGGED
    if had and not wants:
        if want.nullable:
            raise AssertionError((have, want))
        return list(lanes[1:])
    return [Constant(0), *lanes] if wants and not had else list(lanes)


def literal_lanes(literal: Literal, kind: Type) -> list[Lane]:
    """Return the lanes of null or of an integer."""
    if isinstance(literal.value, int):
        return [Constant(0), Constant(literal.value)] if kind.nullable else [Constant(literal.value)]
    if kind.kind in FLAGGED:  # of one that is never null, a filter has dropped the rows
        return [Constant(1), Constant(0)] if kind.nullable else [Constant(0)]
    return [Constant(NULL), Constant(0)] if kind.is_wide else [Constant(NULL)]


def order_lanes(node: physical.OrderLanes) -> list[Lane]:
    """Return the lanes of a node whose additional columns hold lanes of others, inverted where their order descends."""
    source = Layout(node.inputs[0].schema)
    further: dict[str, list[Lane]] = {}
    for name, column, inverted in node.lanes:
        for at, lane in enumerate(source.lanes(column)):
            further[name if not at else f"{name}.{at}"] = [Inverted(lane) if inverted else lane]
    lanes: list[Lane] = []
    for name in node.schema:
        lanes += further.get(name) or list(source.lanes(name))
    return lanes


def accumulations(node: groupings.Accumulate) -> list[Aggregate]:
    """Return the sums of an accumulation beside the number of records, over its input's value lanes."""
    values = value_layout(node.inputs[0].schema, node.by)
    found: list[Aggregate] = []
    for call in accumulated(node.calls).values():
        found += kernel_aggregates(call, values)
    return found


def value_layout(schema: Schema, by: Sequence[str]) -> Layout:
    """Return the layout of an arrangement's values."""
    return Layout({name: kind for name, kind in schema.items() if name not in by})


def column_of(values: Layout, name: str) -> LaneRun:
    """Return a column's lanes, and how null shows in them."""
    kind = values.schema[name]
    lanes = values.lanes(name)
    null = ("flag" if kind.kind in FLAGGED else "in_band") if kind.nullable else "none"
    return LaneRun(lanes.start, len(lanes), null)  # type: ignore[arg-type]


def kernel_aggregates(call: AggregateCall, values: Layout) -> list[Aggregate]:
    """Return the kernels that compute a call's cells, in their order."""
    if not call.args:
        return [Count()]
    argument = call.args[0]
    assert isinstance(argument, Column)
    column = column_of(values, argument.name)
    kind = values.schema[argument.name]
    if call.function == "count":
        return [CountDistinct(column) if call.distinct else Count(column)]
    if call.function == "avg" and kind.is_float:
        return [FloatMean(column)]
    if call.function in ("sum", "avg"):
        wide = kind.kind == "decimal" or (call.function == "avg" and kind.kind in ("int64", "uint64"))
        total: Aggregate = (
            FloatSum(column) if kind.is_float else ExactSum(column, _number(kind), "wide" if wide else "signed")
        )
        return [total, Count(column)] if call.function == "avg" or call.type.nullable else [total]
    if call.function in ("min", "bool_and"):
        return [minimum(column)]
    if call.function in ("max", "bool_or"):
        return [maximum(column)]
    order = dict.fromkeys(lane for key, _ in call.order_by for lane in column_of(values, column_name(key)).lanes)
    lanes = column.lanes
    ties = [lane for lane in lanes if lane not in order]
    return [First((*order, *ties), lanes, None, column.nothing, last=call.function == "last")]


def column_name(expression: object) -> str:
    """Return the name of the column that an expression is."""
    assert isinstance(expression, Column)
    return expression.name


def _number(kind: Type) -> Number:
    if kind.is_wide:
        return "wide"
    return "unsigned" if kind.kind == "uint64" else "signed"
