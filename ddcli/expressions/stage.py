"""A stage: linear steps fused into one, and its run over a frame: each step's values and checks in one polars query.

A stage is a function of the row alone, so it can be run on any part of the input. It is made once and run often, on three rows or on
ten million: its types, needed columns, polars expressions and checks, which depend only on its steps, are computed once.
Unneeded columns are neither read nor evaluated, and a row that a filter drops is not evaluated by later steps.

Small frames take the eager engine, whose fixed cost is small; large ones the lazy one, which computes a
subexpression that values and checks share only once. On large frames column ranges settle some checks beforehand.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.errors import InputError
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import (
    Call,
    Column,
    ExplodeStep,
    Expression,
    FilterStep,
    Literal,
    MapStep,
    PythonStep,
    StageResult,
    Step,
    UnnestStep,
)
from ddcli.expressions.types import INTEGERS, cheapest
from ddcli.privacy import preview

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ddcli.expressions.lower import Check
    from ddcli.expressions.ranges import Range
    from ddcli.expressions.tree import State, TableCall
    from ddcli.expressions.types import Schema


FEW, LARGE = 1_000, 20_000
"""The most rows that one thread computes alone, and the least for which a query is planned first."""
TOGETHER = 64
"""The most checks in one query: polars' time grows faster than their number."""
LONGEST_SERIES = 10_000_000
"""The most records that one record becomes: a series is a list in memory."""
RANGED = {*INTEGERS, "decimal"}
"""The kinds of types whose columns' least and largest values are computed."""
VALUE, CHECK, HEIGHT = "\0value", "\0check", "\0height"


@dataclass(frozen=True)
class Lowered:
    """Named values, and the checks that go with them, as polars expressions."""

    parts: list[list[pl.Expr]]
    values: list[pl.Expr]
    checks: list[Check]

    def is_like(self, other: Lowered) -> bool:
        """Return whether the values are computed in the same way as another's with as many names."""
        return len(self.parts) == len(other.parts) == 0 and all(
            value.meta.eq(its) for value, its in zip(self.values, other.values, strict=True)
        )

    def with_parts(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with the columns that deep values and checks read."""
        for step in self.parts:
            frame = frame.with_columns(step)
        return frame


class Evaluation:
    """Expressions over a frame, lowered once for all small frames, and for each large one by the ranges of its columns."""

    def __init__(
        self, expressions: Sequence[Expression], names: Sequence[str], lower: Callable[[Lowering], list[pl.Expr]]
    ):
        self.names, self.lower = list(names), lower
        self.plain = all(isinstance(e, Column) and e.name == n for n, e in zip(names, expressions, strict=False))
        self.plain = self.plain and len(expressions) == len(names)
        self.general = self._lowered({})
        computed = (
            {node for e in expressions for node in e.walk() if not isinstance(node, Column)}
            if self.general.checks
            else set()
        )
        read = {c for node in computed for c in node.children if isinstance(c, Column) and c.type.kind in RANGED}
        self.ranged = sorted({column.name for column in read})
        self._wide: tuple[dict[str, Range], Lowered] = {}, self.general
        """The latest wide ranges of columns, and the expressions lowered for them."""

    def _lowered(self, ranges: dict[str, Range]) -> Lowered:
        low = Lowering(ranges)
        values = [value.alias(name) for name, value in zip(self.names, self.lower(low), strict=True)]
        return Lowered(low.parts, values, low.checks)

    def run(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the values as a frame with the same number of rows; raises InputError at the first failing one."""
        if self.plain:
            return frame.select(self.names)
        large = frame.height >= LARGE
        lowered = self._lowered_for(frame) if large and self.ranged else self.general
        checks = lowered.checks if frame.height else []
        # polars returns one row where no expression reads a column; a column of the frame sets the height.
        height = pl.col(frame.columns[0]).alias(HEIGHT)
        whole = lowered.with_parts(frame)

        def select(values: list[pl.Expr]) -> pl.DataFrame:
            if large and (len(lowered.values) > 1 or checks):  # these may share subexpressions
                return whole.lazy().select(values).collect()
            # Handing a few rows to other threads takes longer than computing them.
            return whole.select_seq(values) if frame.height < FEW else whole.select(values)

        failing = [check.failing.any().alias(f"{CHECK}{i}") for i, check in enumerate(checks)]
        found = select([height, *lowered.values, *failing[:TOGETHER]])
        for first in range(0, len(checks), TOGETHER):
            flags = found if first == 0 else select(failing[first : first + TOGETHER])
            for i, check in enumerate(checks[first : first + TOGETHER], start=first):
                if flags.item(0, f"{CHECK}{i}"):
                    raise failure(whole, check)
        return found.select(self.names)

    def _lowered_for(self, frame: pl.DataFrame) -> Lowered:
        """Return the lowering for the ranges of a frame's columns; for wider ranges, which also fit later frames, if these need no check."""
        wide, lowered = self._wide
        if wide and not lowered.checks:
            found = self._ranges(frame, wide)
            if all(wide[name][0] <= least and most <= wide[name][1] for name, (least, most) in found.items()):
                return lowered
        ranges = self._ranges(frame, self.ranged)
        latest = {name: _widened(least, most) for name, (least, most) in ranges.items()}
        if latest != wide:
            lowered = self._lowered(latest)
            for name in (
                () if lowered.checks else self.ranged
            ):  # in the frames after it, only needed ranges are computed
                fewer = {other: latest[other] for other in latest if other != name}
                without = self._lowered(fewer)
                if not without.checks and without.is_like(lowered):
                    latest, lowered = fewer, without
            self._wide = latest, lowered  # in one assignment, since several threads evaluate
        return self._lowered(ranges) if lowered.checks else lowered

    def _ranges(self, frame: pl.DataFrame, names: Collection[str]) -> dict[str, Range]:
        columns = [frame.get_column(name).to_physical() for name in names]
        least, most = ([getattr(each, end)() for each in columns] for end in ("min", "max"))
        return {name: (a, b) for name, a, b in zip(names, least, most, strict=True) if a is not None}


def _widened(least: int, most: int) -> Range:
    """Return the range from 0, or the power of two below it, to that above it.

    >>> _widened(3, 900), _widened(-5, 7)
    ((0, 1023), (-8, 7))
    """
    bits = max(least.bit_length(), most.bit_length())
    return -(1 << bits) if least < 0 else 0, (1 << bits) - 1


def evaluation(columns: Sequence[tuple[str, Expression]]) -> Evaluation:
    """Return the evaluation of named expressions."""
    expressions = [expression for _, expression in columns]
    return Evaluation(expressions, [name for name, _ in columns], lambda low: low.values(expressions))


def failure(frame: pl.DataFrame, check: Check) -> InputError:
    """Return the error for the first row on which a check is true."""
    row = frame.select(check.failing.fill_null(value=False).alias(VALUE)).to_series().arg_max() or 0
    problem = f"{check.problem} in `{check.expression.written}`"
    shown, logged = values_texts(frame, row, check.expression)
    return InputError(problem + shown, span=check.expression.span, hint=check.hint, logged=problem + logged)


def values_texts(frame: pl.DataFrame, row: int, expression: Expression) -> tuple[str, str]:
    """Return a row's values of the columns that an expression reads, for a message and for a log, which hides none of them."""
    columns = {node.name: node for node in expression.walk() if isinstance(node, Column)}
    one = frame.slice(row, 1).select(list(columns)).to_dict(as_series=False)
    found = [(name, text, one[name][0]) for name, node in sorted(columns.items()) if (text := _shown(node))]
    return _worded([(text, preview(name, value)) for name, text, value in found]), _worded([each[1:] for each in found])


def _worded(shown: Sequence[tuple[str, Any]]) -> str:
    return ", in the row where " + ", ".join(f"{text} = {value!r}" for text, value in shown) if shown else ""


def _shown(column: Column) -> str:
    """Return a column's name for people: for one that the plan adds, its text in the file, "" if it has none."""
    if not column.name.startswith(("#", "$")):
        return column.name
    return column.span.text if column.span else ""


def _operation(step: Step, before: Schema, after: tuple[str, ...]) -> Callable[[State], State]:
    if isinstance(step, FilterStep):
        return _filter(step, after)
    if isinstance(step, MapStep):
        return _map(step, after)
    if isinstance(step, UnnestStep):
        return _unnest(step, after)
    if isinstance(step, ExplodeStep):
        return _explode(step, after)
    assert isinstance(step, PythonStep)
    from ddcli.expressions.python_values import Foreign

    return Foreign(step, before).run


def picked(rows: np.ndarray | None, chosen: np.ndarray) -> np.ndarray:
    """Return the input row numbers of the chosen rows."""
    return chosen if rows is None else rows[chosen]


def _filter(step: FilterStep, after: tuple[str, ...]) -> Callable[[State], State]:
    values = evaluation([(VALUE, step.condition)])

    def run(state: State) -> State:
        frame, rows, weights = state
        mask = values.run(frame).to_series()
        if mask.null_count():
            mask = mask.fill_null(value=False)
        kept = frame if tuple(frame.columns) == after else frame.select(after)
        if mask.all():
            return kept, rows, weights
        chosen = mask.arg_true().to_numpy().astype(np.int64)
        left = kept.filter(mask) if len(chosen) else kept.clear()
        return left, picked(rows, chosen), None if weights is None else weights[chosen]

    return run


def _map(step: MapStep, after: tuple[str, ...]) -> Callable[[State], State]:
    # A column that no later step needs is not evaluated, and so can't fail either.
    values = evaluation([(name, expression) for name, expression in step.columns if name in after])

    def run(state: State) -> State:
        frame, rows, weights = state
        return values.run(frame), rows, weights

    return run


def _unnest(step: UnnestStep, after: tuple[str, ...]) -> Callable[[State], State]:
    values = Evaluation(step.call.args, [VALUE], lambda low: [_elements(low, step.call)])
    values.plain = False
    others = [name for name in after if name != step.name]

    def run(state: State) -> State:
        frame, rows, weights = state
        lists = values.run(frame).to_series()
        counts = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
        chosen = np.repeat(np.arange(frame.height, dtype=np.int64), counts)
        elements = lists.filter(pl.Series(counts > 0)).explode().alias(step.name)
        columns = frame.select(others)[chosen].get_columns() if others else []
        given = pl.DataFrame([*columns, elements]).select(after)
        return given, picked(rows, chosen), None if weights is None else weights[chosen]

    return run


def _elements(low: Lowering, call: TableCall) -> pl.Expr:
    """Return the list of each row's elements."""
    args = low.values(call.args)
    if call.function == "unnest":
        return args[0]
    first, last, step = args
    whole = Call(call.function, call.args, call.type, span=call.args[0].span)
    if not isinstance(call.args[2], Literal) or not call.args[2].value:
        low.fail(whole, step == 0, "a step of zero")
    end = last + pl.when(step > 0).then(1).otherwise(-1)
    low.fail(whole, pl.when(step > 0).then(end < last).otherwise(end > last), "integer overflow")
    # In floats, which no difference overflows; a length near the limit is exact in them.
    longer = (last.cast(pl.Float64) - first.cast(pl.Float64)) / step.cast(pl.Float64) >= LONGEST_SERIES
    hint = f"one record becomes at most {LONGEST_SERIES:,} records".replace(",", " ")
    low.fail(whole, longer & (step != 0), "a series of too many values", hint)
    known = first.is_not_null() & last.is_not_null() & step.is_not_null() & (step != 0) & ~longer
    safe = [pl.when(known).then(part).otherwise(other) for part, other in ((first, 0), (end, 0), (step, 1))]
    return pl.int_ranges(*safe, dtype=pl.Int64)


def _explode(step: ExplodeStep, after: tuple[str, ...]) -> Callable[[State], State]:
    values = evaluation([(VALUE, step.weight)])

    def run(state: State) -> State:
        frame, rows, weights = state
        found = values.run(frame).to_series()
        if found.null_count():
            row = int(found.is_null().arg_max() or 0)
            problem = f"a null multiplicity in `{step.weight}`"
            shown, logged = values_texts(frame, row, step.weight)
            hint = "coalesce(x, 0) drops such rows"
            raise InputError(problem + shown, span=step.weight.span, hint=hint, logged=problem + logged)
        factor = found.cast(pl.Int64).to_numpy()
        return frame.select(after), rows, factor if weights is None else _product(step, weights, factor)

    return run


def _product(step: ExplodeStep, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = pl.Series(a).cast(pl.Int128) * pl.Series(b).cast(pl.Int128)
    found = wide.cast(pl.Int64, strict=False)
    if found.null_count():
        raise InputError(f"integer overflow in multiplicities by `{step.weight}`", span=step.weight.span)
    return found.to_numpy()


PARTS = 16
"""The number of parts into which a frame is cut in the search for a failing row."""


@dataclass(frozen=True)
class FusedSteps:
    """Steps over rows of a schema, first to last."""

    schema_in: Schema
    steps: tuple[Step, ...]

    @cached_property
    def schemas(self) -> tuple[Schema, ...]:
        """The schema before each step, and after the last."""
        found = [dict(self.schema_in)]
        for step in self.steps:
            found.append(step.schema(found[-1]))
        return tuple(found)

    @property
    def schema(self) -> Schema:
        """The columns of the output, in order."""
        return self.schemas[-1]

    @cached_property
    def kept(self) -> tuple[tuple[str, ...], ...]:
        """The columns needed before each step, and after the last, in order.

        At least one column, if there is any: a frame without columns has no number of rows.
        """
        found = [tuple(self.schema)]
        for step, before in zip(reversed(self.steps), reversed(self.schemas[:-1]), strict=True):
            needed = step.reads(frozenset(found[-1]), before)
            ordered = tuple(name for name in before if name in needed)
            found.append(ordered or cheapest(before))
        return tuple(reversed(found))

    @property
    def needs(self) -> frozenset[str]:
        """The input columns that a run's frame must have, at least one."""
        return frozenset(self.kept[0])

    @cached_property
    def _operations(self) -> list[Callable[[State], State]]:
        """The steps, lowered."""
        steps = zip(self.steps, self.schemas, self.kept[1:], strict=False)
        return [_operation(step, before, after) for step, before, after in steps]

    def failing(self, frame: pl.DataFrame) -> Iterator[tuple[int, InputError]]:
        """Yield the rows on which the stage fails, each with its error."""
        return failing(self.run, frame)

    def run(self, frame: pl.DataFrame) -> StageResult:
        """Return the output for a frame with the needed columns, of the types of `schema_in`; other columns are ignored.

        Raises InputError naming the expression, the problem and the first failing row's values.
        """
        state: State = (frame, None, None)
        for operation in self._operations:
            state = operation(state)
        frame, rows, weights = state
        names = list(self.schema)
        return StageResult(frame if frame.columns == names else frame.select(names), rows, weights)


def failing(run: Callable[[pl.DataFrame], object], frame: pl.DataFrame) -> Iterator[tuple[int, InputError]]:
    """Yield the rows on which `run` fails, each with its error: it runs ever smaller parts of the frame.

    A stage is a function of the row alone, so if a part of the frame fails, one of its rows fails by itself.
    """
    parts = [(0, frame.height)]
    while parts:
        start, end = parts.pop()
        try:
            run(frame.slice(start, end - start))
        except InputError as error:
            if end - start == 1:
                yield start, error
                continue
            size = -(-(end - start) // PARTS)
            parts += [(at, min(at + size, end)) for at in reversed(range(start, end, size))]
