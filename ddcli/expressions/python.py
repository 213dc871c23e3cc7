"""Python functions that a pipeline names: their import, and their calls in a stage, by record or in batches, with output checked against declared columns.

Their module may import any other.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from ddcli.errors import InputError, SpecError, suggestion
from ddcli.expressions.python_values import UnfitError, to_series

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.errors import Span, Text
    from ddcli.expressions.steps import PythonStep, State
    from ddcli.expressions.types import Schema, Type


RAISED = (Exception, SystemExit)
"""The errors that a function may raise for a record. A function that wants to exit must not end a process that does more than call it."""


class AtHand(str):
    """The name of a function that a program passes as an object, which needs no import.

    The name identifies the function while `held`, the program's object, is alive.
    """

    __slots__ = ("function", "held")
    function: Callable[..., Any]
    held: object

    def __new__(cls, function: Callable[..., Any], role: str, held: object) -> Self:
        """Return the name of `function`, which plays a `role` for the program's object."""
        called = getattr(held, "__qualname__", type(held).__qualname__)
        named = super().__new__(cls, f"{called} at {id(held):#x} ({role})")
        named.function = function
        named.held = held
        return named


class Named(str):
    """The name `module:function` of a function that a pipeline file names, with the definition that is known without running it.

    It is searched in the pipeline's `folder`, then in the environment. Names are equal if they mean the same function of the same
    text: `meaning` is the hash of its definition, `text` the digest of its module. `span` is its place in the file.
    """

    __slots__ = ("folder", "meaning", "span", "text")
    folder: str
    text: str
    meaning: str
    span: Span | None

    def __new__(cls, name: str, folder: str, text: str = "", meaning: str = "", span: Span | None = None) -> Self:
        named = super().__new__(cls, name)
        named.folder, named.text, named.meaning, named.span = folder, text, meaning, span
        return named

    def __getnewargs__(self) -> tuple[str, str, str, str, Span | None]:  # type: ignore[override]
        return str(self), self.folder, self.text, self.meaning, self.span

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Named):
            return str(self) == str(other) and (self.folder, self.text) == (other.folder, other.text)
        return str(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()


def named(name: Text, folder: str, given: int, what: str) -> Named:
    """Return the name of a function with its definition in its module's text; it will be called with `given` arguments, described by `what`.

    Runs nothing. Raises SpecError, at the place of the name, if it doesn't exist or can't be called with these.
    """
    from ddcli.expressions.definition import define

    try:
        found = define(name.value, folder)
    except SpecError as error:
        raise SpecError(error.problem, span=name.span, hint=error.hint) from error
    if refusal := found.refusal(given):
        raise SpecError(f"`{name.value}` {refusal}", span=name.span, hint=f"it is called with {what}")
    return Named(name.value, folder, found.text, found.meaning, name.span)


def load_function(name: str) -> Callable[..., Any]:
    """Return the function `module:function`, or the one that a program has passed. This runs its module. Raises SpecError."""
    if isinstance(name, AtHand):
        return name.function
    span = name.span if isinstance(name, Named) else None
    module_name, _, function_name = name.partition(":")
    try:
        if isinstance(name, Named):
            from ddcli.expressions.modules import imported

            module = imported(module_name, name.folder, name.text)
        else:
            module = importlib.import_module(module_name)
    except SpecError as error:
        raise SpecError(error.problem, span=span, hint=error.hint) from error
    except RAISED as error:  # a user's module may raise anything while it is imported
        problem = f"module `{module_name}` can't be imported: {message_of(error)}"
        where = "it is looked for beside the pipeline file and in the environment"
        raise SpecError(problem, span=span, hint=where if isinstance(error, ImportError) else None) from error
    found = getattr(module, function_name, None)
    if not callable(found):
        named = [each for each in vars(module) if callable(getattr(module, each))]
        hint = suggestion(function_name, named, "", mark="`")
        raise SpecError(f"module `{module_name}` has no function `{function_name}`", span=span, hint=hint or None)
    function: Callable[..., Any] = found
    return function


def failure(
    error: BaseException, name: str, function: Callable[..., Any], argument: str, hint: str | None = None
) -> Exception:
    """Return the error to raise for the `error` of a function; `argument` names the row or batch of the call.

    A lack of memory need not be the record's fault, so a `MemoryError` stays one: Spark repeats the task in a fresh process.
    """
    if isinstance(error, MemoryError):
        return MemoryError(f"in {name}{argument}")
    return InputError(f"{name} raised {message_of(error)}{argument}", place=line_of(error, function), hint=hint)


def message_of(error: BaseException) -> str:
    r"""Return the name and the message of an exception, in a line.

    >>> message_of(ValueError("no such\n  day")), message_of(ValueError())
    ('ValueError: no such day', 'ValueError')
    """
    lines = (line.strip() for line in str(error).splitlines())
    return ": ".join(filter(None, [type(error).__name__, " ".join(filter(None, lines))]))


def line_of(error: BaseException, function: Callable[..., Any]) -> str | None:
    """Return the innermost line of the function's own file that an exception came through, or None."""
    code, found, at = getattr(function, "__code__", None), None, error.__traceback__
    while code is not None and at is not None:
        if at.tb_frame.f_code.co_filename == code.co_filename:
            found = f"{code.co_filename}:{at.tb_lineno}"
        at = at.tb_next
    return found


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
        return f" for the row {frame.row(row, named=True)!r}"

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
            problem = f"{self.step.function} returned {values[error.row]!r} for {self._called(name)}"
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
