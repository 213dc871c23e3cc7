"""Operators of the plan's linear chains, and calls of functions that remember: columns that need computing are computed, the others are the lanes of the input."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.dataclass import frozen
from ddcli.engine.kernels.gather import EQUAL, GREATER, LESS
from ddcli.engine.lanes import DIFF, NULL, Layout, decode, encode, time_names
from ddcli.engine.operators.linear import Constant, Inverted, Lane, LaneComparison, Linear, Logic, Permute, Plus, Select
from ddcli.engine.operators.memo import Answers, FormerAnswers, MemoizedCalls
from ddcli.engine.operators.shift import PythonShift
from ddcli.engine.times import LEAST
from ddcli.errors import InputError
from ddcli.expressions import stage
from ddcli.expressions.python import RAISED
from ddcli.expressions.python_values import Foreign, MisshapenError
from ddcli.expressions.stage import failing
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
from ddcli.plan.memo import OUTCOME, REASON
from ddcli.privacy import unnamed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from ddcli.circuit.operators import Failed, Traces
    from ddcli.engine.operators.base import Operator
    from ddcli.engine.pool import Pool
    from ddcli.plan import memo, physical, temporal


INT64 = Type("int64")


def python_shift(node: temporal.JoinFunction, pool: Pool, time: Sequence[Type], nt: int) -> PythonShift:
    """Return the operator of a function whose times are of the types `time`, one an input coordinate; `nt` counts rounds, too.

    A function for records returns (record, time, diff); one for batches returns columns of those names beside
    the record's. Both become columns of one output, checked like the output of any Python function.
    """
    (child,) = node.inputs
    names = [*time_names(len(time)), DIFF] if node.batch else [f"${at}" for at in range(len(time) + 1)]
    added = dict(zip(names, [*(kind.or_null() for kind in time), INT64], strict=True))
    foreign = Foreign(PythonStep(node.function, node.batch, tuple((node.schema | added).items())), child.schema)
    if not node.batch:
        foreign.function = _flat(foreign.function, names, node.schema.keys())
        foreign.parts = dict.fromkeys(names[:-1], "the time") | {names[-1]: "the diff"}

    def logic(frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        found, rows, _ = foreign.run((frame, None, None))
        times = np.empty((found.height, len(time)), np.int64)
        for at, name in enumerate(names[:-1]):
            times[:, at] = found[name].to_physical().cast(INT64.to_polars()).fill_null(LEAST).to_numpy()
        return found.select(list(node.schema)), rows, found[names[-1]].to_numpy(), times

    return PythonShift(logic, Layout(child.schema), Layout(node.schema), pool, nt)


def _flat(
    function: Callable[..., Iterable[Any]], names: Sequence[str], columns: AbstractSet[str]
) -> Callable[..., Iterator[Any]]:
    """Return the function with each (record, time, diff) as one record, in which time and diff have these names."""

    def flat(record: dict[str, Any]) -> Iterator[Any]:
        found = function(record)
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise MisshapenError(f"returned {unnamed(found)!r}, expected a list of (record, time, diff)")
        for given in found:
            if not isinstance(given, tuple) or len(given) != 3 or not isinstance(given[0], dict):
                raise MisshapenError(
                    f"returned {unnamed(given)!r}, expected (record, time, diff), the record as a dict"
                )
            data, time, diff = given
            if data.keys() != columns:
                raise MisshapenError(f"returned the keys {sorted(data)}, expected the keys {sorted(columns)}")
            times = time if isinstance(time, tuple) else (time,) * (len(names) - 1) if time is None else (time,)
            if len(times) != len(names) - 1:
                raise MisshapenError(f"returned the time {time!r}, expected {len(names) - 1} coordinates, or None")
            yield data | dict(zip(names, (*times, diff), strict=True))

    return flat


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


WAITS = {REASON: Type("string")}


class CallTurns:
    """The turns of an operator's shards to call its function, and the `calls` that are left to a run (None: any number).

    The shard that has the `turn` calls, so the function is called by one thread at a time. Others meanwhile encode results and write them.
    """

    def __init__(self, calls: int | None) -> None:
        self.calls = self.left = calls
        self.turn = threading.Lock()

    def take(self, count: int) -> None:
        """Count calls of the shard that has the turn. Raises MisshapenError if fewer are left."""
        if self.left is None:
            return
        if count > self.left:
            raise MisshapenError(f"was not called, as the run had used up its `calls: {self.calls}`,")
        self.left -= count


def memoized_calls(
    node: memo.MemoizedCalls,
    shard: int,
    nt: int,
    traces: Traces,
    pool: Pool,
    tell: Failed | None,
    turns: CallTurns,
) -> MemoizedCalls:
    """Return a shard of the operator of a function that remembers, at times of `nt` coordinates; `tell` receives records whose call failed."""
    arguments, results, reasons = Layout(node.inputs[0].schema), Layout(node.results), Layout(WAITS)
    calls = _Calls(node, pool, turns, lenient=tell is not None)
    lanes = []
    for name, kind in node.schema.items():
        lanes += lanes_as([*results.lanes(f"${name}")], node.results[f"${name}"], kind)

    def refused(changes: np.ndarray) -> None:
        assert tell is not None, "without it a call that fails ends the run"
        why = decode(changes, reasons, pool, at=arguments.width)[REASON].to_list()
        tell(np.delete(changes, range(arguments.width, arguments.width + reasons.width), axis=1), arguments, pool, why)

    return MemoizedCalls(
        traces.trace(node.answers, arguments, results, nt, shard),
        traces.trace(node.waiting, arguments, reasons, nt, shard),
        calls.answers,
        [lane for lane in lanes if isinstance(lane, int)],
        traces.former(node.answers, arguments, results, nt, shard) or FormerAnswers(),
        refused,
    )


class _Calls:
    """The calls of a function for records of one pool."""

    def __init__(self, node: memo.MemoizedCalls, pool: Pool, turns: CallTurns, *, lenient: bool) -> None:
        self.pool, self.turns, self.lenient = pool, turns, lenient
        self.arguments, self.results = Layout(node.inputs[0].schema), Layout(node.results)
        self._foreign = Foreign(
            PythonStep(node.function, node.batch, tuple(node.schema.items())), node.inputs[0].schema
        )
        self._made: dict[str, tuple[Any, BaseException | None]] = {}
        written, batch = self._foreign.function, node.batch

        def counted(given: Any) -> Any:
            turns.take(given.height if batch else 1)
            return written(given)

        function = written if turns.calls is None else counted
        self._foreign.function = function if batch or not lenient else self._once(function)

    def _once(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the function, called once for each record while the failing ones among others are found."""

        def call(record: dict[str, Any]) -> Any:
            known = repr(record)
            if known not in self._made:
                self._made[known] = _tried(function, record)
            given, raised = self._made[known]
            if raised is not None:
                raise raised
            return given

        return call

    def answers(self, records: np.ndarray) -> Answers:
        """Call the function for records, and return their results. Raises InputError, if it isn't lenient."""
        frame = decode(records, self.arguments, self.pool)
        with self.turns.turn:
            found, rows, errors = self._called(frame)
        sound = np.delete(np.arange(frame.height), [*errors])
        without = np.flatnonzero(np.bincount(rows, minlength=len(sound)) == 0)
        empty = pl.DataFrame({name: [None] for name in found.columns}, schema=found.schema)
        whole = pl.concat([found, *[empty] * bool(len(without))]).rename(lambda name: f"${name}")
        outcome = np.append(np.ones(found.height, np.int64), np.zeros(whole.height - found.height, np.int64))
        lanes = encode(whole.with_columns(pl.Series(OUTCOME, outcome)), self.results, self.pool)
        each = np.append(np.arange(found.height), np.full(len(without), found.height))
        why = pl.DataFrame({REASON: [error.problem for error in errors.values()]}, schema={REASON: pl.String})
        return (
            lanes[each] if len(without) else lanes,
            sound[np.append(rows, without)],
            np.array([*errors], np.int64),
            encode(why, Layout(WAITS), self.pool),
        )

    def _called(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray, dict[int, InputError]]:
        """Return what the function returns for the records on which it doesn't fail, the number of each one's record among these, and the errors of the others."""
        errors: dict[int, InputError] = {}
        try:
            found, rows = self._run(frame)
        except InputError:
            if not self.lenient:
                raise
            errors = dict(sorted(failing(self._run, frame)))
            found, rows = self._run(frame[np.delete(np.arange(frame.height), [*errors])])
        self._made.clear()
        return found, rows, errors

    def _run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        found, rows, _ = self._foreign.run((frame, None, None))
        return found, np.arange(frame.height) if rows is None else rows


def _tried(function: Callable[[Any], Any], record: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """Return what a function returns for a record, or the error that it raises. An iterator is read, as that can be done but once."""
    try:
        given = function(record)
        return [*given] if isinstance(given, Iterator) else given, None
    except RAISED as error:
        return None, error
