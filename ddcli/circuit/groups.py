"""Operators of the plan's reductions that are no sums: aggregate calls become functions of gathered rows."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.circuit.linear import column_name, column_of, kernel_aggregates, value_layout
from ddcli.engine import kernels
from ddcli.engine.kernels import DiffOverflow
from ddcli.engine.lanes import Layout, decode, encode, hashed_lanes, ranks
from ddcli.engine.operators.groups import positive
from ddcli.engine.operators.reduce_aggregates import (
    Aggregate,
    Gather,
    GatheredGroups,
    SumOverflow,
    TopRows,
)
from ddcli.engine.operators.reduce_replay import distinct_floats
from ddcli.engine.pool import PUBLIC
from ddcli.engine.records import encode_records
from ddcli.errors import DdError, EngineError, InputError
from ddcli.expressions import stage
from ddcli.expressions.aggregates import aggregate_expression
from ddcli.expressions.python import RAISED, failure, load_function
from ddcli.expressions.tree import Cast, Literal, MapStep
from ddcli.expressions.types import POOLED, Type
from ddcli.plan import groupings, windows
from ddcli.plan.shape import accumulated, cells, is_gathered
from ddcli.plan.words import ALL
from ddcli.privacy import previewed, unnamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ddcli.engine.lanes import Lanes
    from ddcli.engine.pool import Pool
    from ddcli.expressions.aggregates import AggregateCall
    from ddcli.expressions.tree import Expression
    from ddcli.plan.physical import OfGroups

    Record = tuple[Any, ...]

MOST_COPIES = 2**30
"""The copies of records that polars gets at once, at most: so a wrong diff fills no memory."""


@singledispatch
def aggregates(node: OfGroups, pool: Pool) -> list[Aggregate]:
    """Return the aggregates that compute a node's records of each group, over the values of its arrangement."""
    raise AssertionError(type(node), pool)


@aggregates.register(groupings.Group)
def _(node: groupings.Group, pool: Pool) -> list[Aggregate]:
    (arranged,) = node.inputs
    values = value_layout(arranged.schema, node.by)
    found: list[Aggregate] = []
    for at, call in enumerate(node.calls):
        if is_gathered(call):
            (kind,) = cells(at, call).values()
            found.append(Gather(kind.lanes, gathered_function(call, len(found), kind, values, pool)))
        else:
            found += kernel_aggregates(call, values)
    return found


def summing_calls(node: groupings.Accumulate | groupings.Group) -> list[AggregateCall]:
    """Return the call that each aggregate of a reduction belongs to, in the order of the aggregates."""
    calls = accumulated(node.calls).values() if isinstance(node, groupings.Accumulate) else node.calls
    values = value_layout(node.inputs[0].schema, node.by)
    return [call for call in calls for _ in ([call] if is_gathered(call) else kernel_aggregates(call, values))]


def sum_error(
    error: SumOverflow, node: groupings.Accumulate | groupings.Group | windows.WindowedGroup, pool: Pool
) -> DdError:
    """Return the error of a sum that left its type in the words of the pipeline file: its place, its text, the group."""
    by = node.inputs[0].key if isinstance(node, windows.WindowedGroup) else node.by  # type: ignore[attr-defined]
    key = Layout({name: node.schema[name] for name in by})
    (values,) = decode(np.array([error.key], np.int64), key, pool).rows(named=True)
    shown = [f"{name} = {value!r}" for name, value in previewed(values).items() if name != ALL]
    group = f", in the group where {', '.join(shown)}" if shown else ""
    if isinstance(node, windows.WindowedGroup):
        call = node.calls[error.aggregate].aggregate
    else:
        call = summing_calls(node)[error.aggregate] if error.aggregate >= 0 else None
    if call is None or call.function == "count":
        return DiffOverflow(f"the number of records leaves the 64-bit range{group}")
    (argument,) = call.args
    written = argument.written
    if argument.type.kind != "decimal":
        problem, hint = "integer overflow", "sum a decimal, which holds 38 digits: {}(cast({} as decimal(38, 0)))"
    elif argument.type.scale:
        problem, hint = "more than 38 digits", "sum fewer digits behind the point: {}(cast({} as decimal(38, 0)))"
    else:
        problem, hint = "more than 38 digits", "sum floats: {}(cast({} as float64))"
    where = f"in `{call.function}({written})`{group}"
    return InputError(f"{problem} {where}", span=argument.span, hint=hint.format(call.function, written))


@aggregates.register(groupings.TopK)
def _(node: groupings.TopK, pool: Pool) -> list[Aggregate]:
    """Keep the first rows of each group: all columns of the result that are not its key."""
    arranged = node.arranged
    by = arranged.key
    values = value_layout(arranged.schema, by)
    result = value_layout(node.schema, by)
    ranked = [name for name in values.names if name not in result.schema]
    take = tuple(values.take(result.names))
    hashed = Layout({name: kind for name, kind in values.schema.items() if kind.kind in POOLED})
    if ranked:
        lanes = tuple(values.take(hashed.names)) if pool.secret != PUBLIC else ()
        keys = tuple(values.take(ranked))
        return [TopRows(node.k, keys, take, hashed=lanes, ranks=lambda rows: ranks(rows, hashed, pool))]

    def first_rows(given: GatheredGroups) -> Lanes:
        """Sort by values, where lanes have no order, and take rows until there are k."""
        rows = given.rows[given.rows[:, -1] > 0]
        frame = decode(np.ascontiguousarray(rows[:, 1:]), values, pool)
        key = decode(np.ascontiguousarray(given.keys[rows[:, 0]]), Layout({n: arranged.schema[n] for n in by}), pool)
        order = pl.DataFrame([pl.Series("\0instance", rows[:, 0].copy())]).hstack(key).hstack(frame)
        lanes = ranks(rows, values, pool, 1)
        for at in range(values.width):
            order = order.with_columns(pl.Series(f"\0lane{at}", lanes[:, at].copy()))
        names = ["\0instance", *(name for name, _ in node.order_by), *(f"\0lane{at}" for at in range(values.width))]
        descending = [False, *(descends for _, descends in node.order_by), *(False for _ in range(values.width))]
        nulls_last = [True, *(not descends for _, descends in node.order_by), *(True for _ in range(values.width))]
        place = (
            order.with_row_index("\0at").sort(names, descending=descending, nulls_last=nulls_last)["\0at"].to_numpy()
        )
        rows = rows[place]
        ends = np.cumsum(rows[:, -1])
        starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1))
        before = ends - rows[:, -1] - np.repeat((ends - rows[:, -1])[starts], np.diff(np.append(starts, len(rows))))
        taken = np.minimum(rows[:, -1], node.k - before)
        out = np.column_stack([rows[:, :1], rows[:, 1:-1][:, list(take)], taken])[taken > 0]
        return np.ascontiguousarray(out[np.argsort(out[:, 0], kind="stable")])

    return [Gather(len(take), first_rows, single=False)]


def gathered_function(
    call: AggregateCall, position: int, kind: Type, values: Layout, pool: Pool
) -> Callable[[GatheredGroups], Lanes]:
    """Return the function that computes a call's lanes for gathered groups: each row repeated, sorted, handed to polars.

    It raises SumOverflow, naming the aggregate by its `position`. Each float is taken once, and floats are summed exactly.
    """
    if call.function in ("sum", "avg") and call.args[0].type.is_float:
        floats = column_of(values, column_name(call.args[0]))
        return lambda given: distinct_floats(given, floats, mean=call.function == "avg")
    expression = aggregate_expression(call).alias("value")
    out = Layout({"value": kind})

    def column(rows: Lanes, name: str) -> pl.Series:
        return decode(rows, values, pool, [name], at=1).to_series()

    def evaluate(given: GatheredGroups) -> Lanes:
        instances = given.rows[:, 0][np.flatnonzero(np.diff(given.rows[:, 0], prepend=-1))]
        rows = given.rows[given.rows[:, -1] > 0]
        if rows[:, -1].sum(dtype=np.float64) > MOST_COPIES:
            raise EngineError(
                f"{call.text()} takes records as often as they occur, and here that is more than {MOST_COPIES:,} times",
                hint="make the records distinct before, or use count, sum, avg, min or max, which weigh them instead",
            )
        rows = np.repeat(rows, rows[:, -1], axis=0)
        columns = [pl.Series("instance", rows[:, 0].copy())]
        columns += [
            column(rows, column_name(argument)).alias(f"a{at}")
            for at, argument in enumerate(call.args)
            if not isinstance(argument, Literal)
        ]
        columns += [column(rows, column_name(key)).alias(f"o{at}") for at, (key, _) in enumerate(call.order_by)]
        frame = pl.DataFrame(columns)
        values_of = [name for name, kind in frame.schema.items() if name[0] == "a" and kind != pl.Struct]
        names = ["instance", *(f"o{at}" for at in range(len(call.order_by))), *values_of]
        descending = [False, *(descends for _, descends in call.order_by), *(False for _ in values_of)]
        frame = frame.sort(names, descending=descending, nulls_last=[not descends for descends in descending])
        some = pl.col("a0").is_not_null().any().alias("some")
        found = frame.group_by("instance", maintain_order=True).agg(expression, some)
        if call.function in ("sum", "avg"):  # null where it left its type
            failed = found.filter(pl.col("value").is_null() & pl.col("some"))["instance"]
            if len(failed):
                raise SumOverflow(tuple(given.keys[failed[0]].tolist()), position)
        found = found.drop("some")
        every = pl.DataFrame({"instance": pl.Series(instances.copy())})
        found = every.join(found, on="instance", how="left", maintain_order="left")
        found = found.with_columns(pl.col("value").cast(kind.to_polars()))
        result = np.empty((len(instances), out.width + 2), np.int64)
        result[:, 0] = instances
        encode(found, out, pool, result, 1)
        result[:, -1] = 1
        return result

    return evaluate


@aggregates.register(groupings.PythonReduce)
def _(node: groupings.PythonReduce, pool: Pool) -> list[Aggregate]:
    """Call a Python function `(key, [(value, count), ...]) -> [(value, count), ...]` a group.

    Key and values are tuples of Python values in the order of their columns.
    """
    (arranged,) = node.inputs
    values = value_layout(arranged.schema, node.by)
    key = Layout({name: arranged.schema[name] for name in node.by})
    out = value_layout(node.schema, node.by)
    function = load_function(node.function)

    def reduce(given: GatheredGroups) -> Lanes:
        rows = given.rows
        if not len(rows):
            return np.empty((0, out.width + 2), np.int64)
        if hashed_lanes(values):
            ordered = np.concatenate([rows[:, :1], ranks(rows, values, pool, 1), rows], axis=1)
            rows = np.ascontiguousarray(kernels.sort_by(ordered, range(1 + values.width))[:, 1 + values.width :])
        decoded = decode(np.ascontiguousarray(rows[:, 1:-1]), values, pool)
        keys = decode(given.keys, key, pool)
        columns = {name: decoded[name] for name in values.names}
        columns |= {name: keys[name].gather(rows[:, 0]) for name in node.values if name not in columns}
        records = list(zip(*(columns[name].to_list() for name in node.values), strict=True)) or [()] * len(rows)
        groups = keys.rows()
        found: list[tuple[object, ...]] = []
        places: list[tuple[int, int]] = []
        starts = np.flatnonzero(np.diff(rows[:, 0], prepend=-1)).tolist()
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            instance = int(rows[start, 0])
            counted = list(zip(records[start:stop], rows[start:stop, -1].tolist(), strict=True))
            for record, count in _called(node.function, function, groups[instance], counted, out):
                found.append(record)
                places.append((instance, count))
        result = np.empty((len(found), out.width + 2), np.int64)
        try:
            result[:, 1:-1] = encode_records(found, out, pool)
        except DdError as error:
            raise InputError(f"the reducer `{node.function}`: {error.problem}", hint=error.hint) from error
        result[:, [0, -1]] = np.array(places, np.int64).reshape(-1, 2)
        return result

    return [Gather(out.width, reduce, single=False)]


def _called(
    name: str, function: Callable[..., Any], key: Record, counted: list[tuple[Record, int]], out: Layout
) -> Iterator[tuple[Record, int]]:
    """Call a reducer and check its result."""
    hint = (
        "a reducer takes (key, [(value, count), ...]) and returns [(value, count), ...]; values are tuples of columns"
    )
    try:
        results = list(function(key, counted))
    except RAISED as error:
        raise failure(error, f"the reducer `{name}`", function, f" for the group {unnamed(key)}", hint) from error
    for result in results:
        good = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], int) and abs(result[1]) < 2**63
        if not good or not isinstance(result[0], tuple) or len(result[0]) != len(out.names):
            raise InputError(
                f"the reducer `{name}` returned {unnamed(result)!r} for the group {unnamed(key)}", hint=hint
            )
        yield result


def multiplicity(function: Expression | None) -> Callable[[Lanes], Lanes]:
    """Return the function of counts that a threshold applies, vectorised; None is distinct.

    It is evaluated for existing records only: a count of zero stays zero, even if the expression would return another number.
    """
    if function is None:
        return positive
    run = stage.FusedSteps({"count": Type("int64")}, (MapStep((("count", Cast(function, Type("int64"))),)),))

    def apply(counts: Lanes) -> Lanes:
        result = np.zeros_like(counts)
        there = counts != 0
        result[there] = run.run(pl.DataFrame({"count": counts[there]})).frame["count"].to_numpy()
        return result

    return apply
