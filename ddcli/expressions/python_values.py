"""Python functions in a stage, called by record or in batches; their output as columns of the declared types: a value is kept without loss, or it is refused.

polars alone is too lenient for values from foreign code: it drops fields of a struct that the type lacks, and digits of a
timestamp beyond the unit, and its result for a value depends on the values before it in the column.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.errors import InputError
from ddcli.expressions.nanoseconds import Fine, counted
from ddcli.expressions.python import RAISED, failure, load_function
from ddcli.expressions.types import FLOATS, INTEGERS
from ddcli.privacy import preview, previewed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddcli.expressions.tree import PythonStep, State
    from ddcli.expressions.types import Schema, Type


class UnlikeError(ValueError):
    """A value that is not of a type."""


class UnfitError(ValueError):
    """A value, in `row`, that is not of the column's type."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def to_series(name: str, values: Sequence[Any], column: Type) -> pl.Series:
    """Return values as a polars column of a type; None is null, whether or not the type allows it.

    Raises UnfitError for a value that is not of the type.
    """
    dtype = column.to_polars()
    # polars raises RuntimeError for a decimal beyond 128 bits.
    refusals = (TypeError, ValueError, OverflowError, RuntimeError, pl.exceptions.PolarsError)
    if not {*map(type, values)} <= NATIVE.get(column.kind, frozenset()):
        kept = []
        for row, value in enumerate(values):
            try:
                kept.append(_plain(_number(value, column), column))
            except UnlikeError:
                raise UnfitError(row) from None
        values = kept
    try:
        return pl.Series(name, values, dtype=dtype, strict=True)
    except refusals:
        alone = []
        for row, value in enumerate(values):
            try:
                alone.append(pl.Series(name, [value], dtype=dtype, strict=True))
            except refusals:
                raise UnfitError(row) from None
        return pl.concat(alone)


def _plain(value: Any, column: Type) -> Any:
    """Return a value in the one Python class for its type, so that polars doesn't infer from the first value; raise UnlikeError for a value of another type."""
    if value is None:
        return None
    if isinstance(value, np.generic):
        value = value.item()
    return (PLAIN.get(column.kind) or LEAVES[column.kind])(value, column)


def _number(value: Any, column: Type) -> Any:
    """Return a bool as an integer for a column of integers, and a decimal as a float for one of floats; within a list they are refused."""
    if column.is_integer and isinstance(value, bool):
        return int(value)
    return float(value) if column.is_float and isinstance(value, bool | Decimal) else value


def _date(value: Any, _: Type) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise UnlikeError
    return value


def _datetime(value: Any, column: Type) -> datetime | int:
    """Return a moment, as a count for a type in nanoseconds. A value without a zone is in UTC if the type has one, as in text; a date is its first moment."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # noqa: DTZ001  # as naive as the date is
    if not isinstance(value, datetime) or _is_finer(value, column):
        raise UnlikeError
    if column.zone is None and value.tzinfo is not None:
        raise UnlikeError
    if column.unit == "ns":
        return counted(value)
    if column.zone is not None:
        return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return value


def _time(value: Any, _: Type) -> int:
    if not isinstance(value, time) or value.tzinfo is not None:
        raise UnlikeError
    return counted(value)


def _duration(value: Any, column: Type) -> timedelta | int:
    if not isinstance(value, timedelta) or _is_finer(value, column):
        raise UnlikeError
    return counted(value) if column.unit == "ns" else value


def _is_finer(value: datetime | timedelta, column: Type) -> bool:
    """Return whether a value has digits that its column lacks."""
    digits = value.microseconds if isinstance(value, timedelta) else value.microsecond
    return (column.unit == "ms" and digits % 1000 > 0) or (column.unit != "ns" and isinstance(value, Fine))


def _decimal(value: Any, _: Type) -> Decimal | float:
    """Return a number; polars rounds it to the type's digits, as a cast does."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int | float):
        raise UnlikeError
    if isinstance(value, Decimal) and not value.is_finite():
        raise UnlikeError
    return Decimal(value) if isinstance(value, int) else value


def _list(value: Any, column: Type) -> list[Any]:
    """Return the elements; a set is refused, as the order of its elements differs between processes."""
    if isinstance(value, np.ndarray | pl.Series):
        value = list(value)
    if not isinstance(value, list | tuple) or column.inner is None:
        raise UnlikeError
    return [_plain(each, column.inner) for each in value]


def _struct(value: Any, column: Type) -> dict[str, Any]:
    """Return the fields, null where one is missing."""
    fields = dict(column.fields)
    if not isinstance(value, dict) or not value.keys() <= fields.keys():
        raise UnlikeError
    return {name: _plain(value.get(name), kind) for name, kind in fields.items()}


def _leaf(*classes: type) -> Callable[[Any, Type], Any]:
    def leaf(value: Any, _: Type) -> Any:
        if not isinstance(value, classes) or (isinstance(value, bool) and bool not in classes):
            raise UnlikeError
        return value

    return leaf


PLAIN: dict[str, Callable[[Any, Type], Any]] = {
    "date": _date,
    "datetime": _datetime,
    "time": _time,
    "duration": _duration,
    "decimal": _decimal,
    "list": _list,
    "struct": _struct,
}
"""The checks of values that polars reads too leniently, by kind."""
LEAVES: dict[str, Callable[[Any, Type], Any]] = {
    **dict.fromkeys(INTEGERS, _leaf(int)),
    **dict.fromkeys(FLOATS, _leaf(float, int)),
    "bool": _leaf(bool),
    "string": _leaf(str),
    "binary": _leaf(bytes),
}
"""The checks of values that polars reads strictly in a plain column, by kind: within lists and structs it is lenient, and panics at some mixtures."""
NATIVE = {kind: frozenset({type(None), int}) for kind in INTEGERS} | {
    kind: frozenset({type(None), float}) for kind in FLOATS
}
NATIVE |= {kind: frozenset({type(None), one}) for kind, one in (("bool", bool), ("string", str), ("binary", bytes))}
"""The classes of values that polars makes into a column without conversion, by kind."""


ROW = "row"
TOGETHER = 1 << 15
"""Rows that are made into Python values at once. `iter_rows` of polars releases the GIL for a moment every 512 rows: too short for another thread to get it, and too often for one to be given it."""


class MisshapenError(TypeError):
    """An error in a function's result that its wrapper found; the message continues the function's name."""


class Foreign:
    """One Python step, ready to run."""

    def __init__(self, step: PythonStep, before: Schema):
        self.step, self.columns = step, list(before)
        self.output = dict(step.output)
        self.dtypes = {name: type_.to_polars() for name, type_ in step.output}
        self.function = self.written = load_function(step.function)
        """The function that is called, and the person's own one, which a wrapper may call."""
        self.parts: dict[str, str] = {}
        """The names for messages of columns that the function returns in another form."""

    def run(self, state: State) -> State:
        """Call the function on the frame's rows."""
        frame, rows, weights = state
        frame = frame.select(self.columns)
        given, chosen = self._batch(frame) if self.step.batch else self._records(frame)
        for name, type_ in self.output.items():
            row = null_row(given[name], type_)
            if row is not None:
                inside = given[name][row] is not None
                hint = f"declare it as `{type_}?`, or return a value"
                hint = (
                    f"its type {type_} refuses nulls inside; a `?` behind the inner type allows them"
                    if inside
                    else hint
                )
                problem = f"{self.step.function} returned null {'inside' if inside else 'for'} {self._called(name)}"
                where = self._row(frame, int(chosen[row]))
                raise InputError(problem + where, hint=None if name in self.parts else hint)
        whole = len(chosen) == frame.height and bool((chosen == np.arange(frame.height)).all())
        if whole:
            return given, rows, weights
        return given, chosen if rows is None else rows[chosen], None if weights is None else weights[chosen]

    def _called(self, name: str) -> str:
        return self.parts.get(name, f"`{name}`")

    def _row(self, frame: pl.DataFrame, row: int) -> str:
        return f" for the row {previewed(frame.row(row, named=True))!r}"

    def _records(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        values: dict[str, list[object]] = {name: [] for name in self.output}
        chosen: list[int] = []
        for row, record in enumerate(records_of(frame)):
            for given in self._call(frame, row, record):
                if not isinstance(given, dict) or given.keys() != self.output.keys():
                    other = "None" if given is None else type(given).__name__
                    got = f"the keys {sorted(given)}" if isinstance(given, dict) else other
                    problem = f"{self.step.function} returned {got}, expected the keys {sorted(self.output)}"
                    raise InputError(problem + self._row(frame, row))
                chosen.append(row)
                for name, value in given.items():
                    values[name].append(value)
        series = [self._series(frame, name, type_, values[name], chosen) for name, type_ in self.output.items()]
        return pl.DataFrame(series), np.array(chosen, dtype=np.int64)

    def _call(self, frame: pl.DataFrame, row: int, record: dict[str, object]) -> Iterable[object]:
        try:
            given = self.function(record)
            # A result that is not iterable is refused like a wrong record.
            return [given] if isinstance(given, dict) or not isinstance(given, Iterable) else list(given)
        except MisshapenError as error:
            raise InputError(f"{self.step.function} {error}{self._row(frame, row)}") from None
        except RAISED as error:
            raise failure(error, self.step.function, self.written, self._row(frame, row)) from error

    def _series(
        self, frame: pl.DataFrame, name: str, type_: Type, values: list[object], chosen: list[int]
    ) -> pl.Series:
        try:
            return to_series(name, values, type_)
        except UnfitError as error:
            problem = f"{self.step.function} returned {preview(name, values[error.row])!r} for {self._called(name)}"
            problem += f", expected {type_.required()}"
            raise InputError(problem + self._row(frame, chosen[error.row])) from None

    def _batch(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        name = self.step.function
        if ROW in frame.columns:
            raise InputError(
                f"{name}: the rows have a column `{ROW}` of their own", hint="rename it before the function"
            )
        try:
            given = self.function(frame.with_columns(pl.int_range(frame.height, dtype=pl.Int64).alias(ROW)))
        except MisshapenError as error:
            raise InputError(f"{name} {error}") from None
        except RAISED as error:
            argument, hint = (
                f" for a batch of {frame.height} rows",
                "by record, without `batch`, the row would be named",
            )
            raise failure(error, name, self.function, argument, hint) from error
        if not isinstance(given, pl.DataFrame):
            raise InputError(f"{name} returned {type(given).__name__}, expected a polars DataFrame")
        if set(given.columns) != {ROW, *self.output}:
            raise InputError(f"{name} returned the columns {given.columns}, expected {[ROW, *self.output]}")
        chosen = self._fitted(given[ROW], pl.Int64(), "int64")
        if chosen.null_count() or (len(chosen) and not (chosen >= 0).all()) or (chosen >= frame.height).any():
            raise InputError(f"{name} returned a `{ROW}` that was not in its batch")
        series = [
            self._fitted(given[key], self.dtypes[key], str(type_.required())) for key, type_ in self.output.items()
        ]
        return pl.DataFrame(series), chosen.to_numpy()

    def _fitted(self, series: pl.Series, dtype: pl.DataType, wanted: str) -> pl.Series:
        """Return a column in its declared type; integers may change their width, no other type converts."""
        if series.dtype == dtype:
            return series
        if (series.dtype.is_integer() and dtype.is_integer()) or series.dtype == pl.Null:
            fitted = series.cast(dtype, strict=False)
            if fitted.null_count() == series.null_count():
                return fitted
        raise InputError(f"{self.step.function} returned {series.dtype} for `{series.name}`, expected {wanted}")


def null_row(series: pl.Series, kind: Type) -> int | None:
    """Return a row with a null that the type refuses, at any depth; None if there is none."""
    if series.null_count() and not kind.nullable:
        return int(series.is_null().arg_max() or 0)
    if not kind.depth:
        return None
    there, values = series.is_not_null().arg_true(), series.drop_nulls()
    if kind.inner is not None:
        found = null_row(values.explode(empty_as_null=False, keep_nulls=False), kind.inner)
        return None if found is None else int(there[values.list.len().cum_sum().search_sorted(found, side="right")])
    rows = (null_row(values.struct.field(name), inner) for name, inner in kind.fields)
    return next((int(there[row]) for row in rows if row is not None), None)


def records_of(frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of a frame as records of Python values, as `iter_rows(named=True)` does."""
    names = frame.columns
    for at in range(0, frame.height, TOGETHER):
        columns = (series.to_list() for series in frame.slice(at, TOGETHER))
        yield from map(dict, map(zip, repeat(names), zip(*columns, strict=True)))
