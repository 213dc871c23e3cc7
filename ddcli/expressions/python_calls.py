"""Python functions in a stage: called by record or in batches, their output checked against the declared columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.errors import InputError
from ddcli.expressions.python import RAISED, failure, load_function
from ddcli.expressions.python_values import UnfitError, to_series
from ddcli.privacy import preview, previewed

if TYPE_CHECKING:
    from ddcli.expressions.steps import PythonStep, State
    from ddcli.expressions.types import Schema, Type

ROW = "row"


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
            if not type_.nullable and given[name].null_count():
                row = int(chosen[int(given[name].is_null().arg_max() or 0)])
                hint = f"declare it as `{type_}?`, or return a value"
                problem = f"{self.step.function} returned null for {self._called(name)}"
                raise InputError(problem + self._row(frame, row), hint=None if name in self.parts else hint)
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
        for row, record in enumerate(frame.iter_rows(named=True)):
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
