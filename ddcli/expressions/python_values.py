"""Python values as a column of a type: a value is kept without loss, or it is refused.

polars alone is too lenient for values from foreign code: it drops fields of a struct that the type lacks, and digits of a
timestamp beyond the unit, and its result for a value depends on the values before it in the column.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ddcli.expressions.nanoseconds import Fine, counted
from ddcli.expressions.types import FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from ddcli.expressions.types import Type


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
    import polars as pl

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
    import numpy as np

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
    import numpy as np
    import polars as pl

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
