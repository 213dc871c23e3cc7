"""Python functions in a stage: called by record or in batches, their output checked against the declared columns."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from ddcli.errors import InputError, SpecError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ddcli.expressions.execute import State
    from ddcli.expressions.stage import Python
    from ddcli.expressions.types import Schema, Type

ROW = "row"


class AtHand(str):
    """The name of a function that comes along with it, as a program gives it: nothing is imported.

    The name tells functions apart as long as they are held, which `held` is, the object that the program made.
    """

    __slots__ = ("function", "held")
    function: Callable[..., Any]
    held: object

    def __new__(cls, function: Callable[..., Any], role: str, held: object) -> Self:
        """Return the name of `function`, which plays a `role` for what the program gave."""
        called = getattr(held, "__qualname__", type(held).__qualname__)
        named = super().__new__(cls, f"{called} at {id(held):#x} ({role})")
        named.function = function
        named.held = held
        return named


def load_function(name: str) -> Callable[..., Any]:
    """Return the function that `module:function` names, or that is at hand; raises SpecError.

    The caller has put its folder on sys.path.
    """
    if isinstance(name, AtHand):
        return name.function
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise SpecError(f"`{name}` names no function", hint="write module:function")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        problem = f"module `{module_name}` can't be imported: {type(error).__name__}: {error}"
        raise SpecError(problem, hint="it is looked for beside the pipeline file and in the environment") from error
    found = getattr(module, function_name, None)
    if not callable(found):
        meant = did_you_mean(function_name, [each for each in vars(module) if callable(getattr(module, each))])
        hint = f"did you mean `{meant}`?" if meant else None
        raise SpecError(f"module `{module_name}` has no function `{function_name}`", hint=hint)
    function: Callable[..., Any] = found
    return function


@cache
def meaning(name: str) -> str:
    """Return a hash of what a function does, as far as its own text says: comments and formatting are no part of it.

    Empty where there is no text to be had, as of one written in C.
    """
    if isinstance(name, AtHand):
        return ""
    try:
        text = textwrap.dedent(inspect.getsource(load_function(name)))
        return hashlib.sha256(ast.unparse(ast.parse(text)).encode()).hexdigest()[:12]
    except (OSError, TypeError, SyntaxError, SpecError):
        return ""


class Foreign:
    """One Python step, ready to run."""

    def __init__(self, step: Python, before: Schema):
        self.step, self.columns = step, list(before)
        self.output = dict(step.output)
        self.dtypes = {name: type_.to_polars() for name, type_ in step.output}
        self.function = load_function(step.function)

    def run(self, state: State) -> State:
        """Call the function on the frame's rows."""
        frame, rows, weights = state
        frame = frame.select(self.columns)
        given, chosen = self._batch(frame) if self.step.batch else self._records(frame)
        for name, type_ in self.output.items():
            if not type_.nullable and given[name].null_count():
                row = int(chosen[int(given[name].is_null().arg_max() or 0)])
                hint = f"declare it as `{type_}?`, or give a value"
                raise InputError(f"{self.step.function} gave null for `{name}`{self._told(frame, row)}", hint=hint)
        whole = len(chosen) == frame.height and bool((chosen == np.arange(frame.height)).all())
        if whole:
            return given, rows, weights
        return given, chosen if rows is None else rows[chosen], None if weights is None else weights[chosen]

    def _told(self, frame: pl.DataFrame, row: int) -> str:
        return f" for the row {frame.row(row, named=True)!r}"

    def _records(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        values: dict[str, list[object]] = {name: [] for name in self.output}
        chosen: list[int] = []
        for row, record in enumerate(frame.iter_rows(named=True)):
            for given in self._call(frame, row, record):
                if not isinstance(given, dict) or given.keys() != self.output.keys():
                    got = f"the keys {sorted(given)}" if isinstance(given, dict) else type(given).__name__
                    problem = f"{self.step.function} gave {got}, expected the keys {sorted(self.output)}"
                    raise InputError(problem + self._told(frame, row))
                chosen.append(row)
                for name, value in given.items():
                    values[name].append(value)
        series = [self._series(frame, name, type_, values[name], chosen) for name, type_ in self.output.items()]
        return pl.DataFrame(series), np.array(chosen, dtype=np.int64)

    def _call(self, frame: pl.DataFrame, row: int, record: dict[str, object]) -> Iterable[object]:
        try:
            given = self.function(record)
            return [given] if isinstance(given, dict) else list(given)
        except Exception as error:
            problem = f"{self.step.function} raised {type(error).__name__}: {error}{self._told(frame, row)}"
            raise InputError(problem) from error

    def _series(
        self, frame: pl.DataFrame, name: str, type_: Type, values: list[object], chosen: list[int]
    ) -> pl.Series:
        try:
            return pl.Series(name, values, dtype=self.dtypes[name], strict=True)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
            for row, value in zip(chosen, values, strict=True):
                try:
                    pl.Series(name, [value], dtype=self.dtypes[name], strict=True)
                except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
                    problem = f"{self.step.function} gave {value!r} for `{name}`, expected {type_.required()}"
                    raise InputError(problem + self._told(frame, row)) from None
            raise

    def _batch(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, np.ndarray]:
        name = self.step.function
        if ROW in frame.columns:
            raise InputError(
                f"{name}: the rows have a column `{ROW}` of their own", hint="rename it before the function"
            )
        try:
            given = self.function(frame.with_columns(pl.int_range(frame.height, dtype=pl.Int64).alias(ROW)))
        except Exception as error:
            problem = f"{name} raised {type(error).__name__}: {error} for a batch of {frame.height} rows"
            raise InputError(problem, hint="by record, without `batch`, the row would be named") from error
        if not isinstance(given, pl.DataFrame):
            raise InputError(f"{name} gave {type(given).__name__}, expected a polars DataFrame")
        if set(given.columns) != {ROW, *self.output}:
            raise InputError(f"{name} gave the columns {given.columns}, expected {[ROW, *self.output]}")
        chosen = self._fitted(given[ROW], pl.Int64(), "int64")
        if chosen.null_count() or (len(chosen) and not (chosen >= 0).all()) or (chosen >= frame.height).any():
            raise InputError(f"{name} gave a `{ROW}` that was not in its batch")
        series = [
            self._fitted(given[key], self.dtypes[key], str(type_.required())) for key, type_ in self.output.items()
        ]
        return pl.DataFrame(series), chosen.to_numpy()

    def _fitted(self, series: pl.Series, dtype: pl.DataType, wanted: str) -> pl.Series:
        """Return a column in its declared type; integers may change their width, nothing else converts."""
        if series.dtype == dtype:
            return series
        if (series.dtype.is_integer() and dtype.is_integer()) or series.dtype == pl.Null:
            fitted = series.cast(dtype, strict=False)
            if fitted.null_count() == series.null_count():
                return fitted
        raise InputError(f"{self.step.function} gave {series.dtype} for `{series.name}`, expected {wanted}")
