"""Spark's filters as conditions that a log is read with.

Spark applies each filter again to the rows that it gets. So a condition here may keep too many rows, never too few: what isn't surely the
same in both (a NaN, a type that Spark lacks) is kept.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import TYPE_CHECKING, Any

import polars as pl
from pyspark.sql import datasource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ddcli.expressions.types import Schema, Type

COMPARED: dict[Any, Callable[[Any, Any], Any]] = {
    datasource.EqualTo: eq,
    datasource.GreaterThan: gt,
    datasource.GreaterThanOrEqual: ge,
    datasource.LessThan: lt,
    datasource.LessThanOrEqual: le,
}
TEXTS: dict[Any, Callable[[pl.Expr, str], pl.Expr]] = {
    datasource.StringStartsWith: lambda column, text: column.str.starts_with(text),
    datasource.StringEndsWith: lambda column, text: column.str.ends_with(text),
    datasource.StringContains: lambda column, text: column.str.contains(text, literal=True),
}
EXACT = {"int8", "int16", "int32", "int64", "float32", "float64", "bool", "date", "string", "decimal", "datetime"}
"""The kinds of values that both compare in the same way, NaN aside."""


def keeping(filters: Iterable[Any], columns: Schema) -> pl.Expr | None:
    """Return the condition of all rows that these filters of Spark may keep; None: it is that of all rows."""
    found = [each for each in (_kept(one, columns) for one in filters) if each is not None]
    return reduce(and_, found) if found else None


def _kept(one: Any, columns: Schema) -> pl.Expr | None:
    """Return the condition of the rows that one filter may keep; None where it has none here."""
    inner = one
    while isinstance(inner, datasource.Not):
        inner = inner.child
    found = _column(inner.attribute, columns)
    if found is None:
        return None
    column, kind = found
    condition = _condition(one, column, kind)
    if condition is None:
        return None
    return condition | column.is_nan() if kind.is_float else condition


def _condition(one: Any, column: pl.Expr, kind: Type) -> pl.Expr | None:
    """Return a filter over a column: null where Spark's is, for values that aren't NaN."""
    if isinstance(one, datasource.Not):
        inner = _condition(one.child, column, kind)
        return None if inner is None else ~inner
    if isinstance(one, datasource.IsNull):
        return column.is_null()
    if isinstance(one, datasource.IsNotNull):
        return column.is_not_null()
    if kind.kind not in EXACT or kind.unit == "ns":
        return None
    if isinstance(one, datasource.In):
        if any(value is None for value in one.value):
            return None  # never false, but null: `not` of it keeps nothing
        return reduce(or_, [column == _literal(value, kind) for value in one.value]) if one.value else None
    if isinstance(one, datasource.EqualNullSafe):
        return column.is_null() if one.value is None else column.eq_missing(_literal(one.value, kind))
    if one.value is None:
        return None
    if (compare := COMPARED.get(type(one))) is not None:
        return compare(column, _literal(one.value, kind))  # type: ignore[no-any-return]
    if kind.kind == "string" and (test := TEXTS.get(type(one))) is not None:
        return test(column, one.value)
    return None


def _column(path: tuple[str, ...], columns: Schema) -> tuple[pl.Expr, Type] | None:
    """Return the column of a path, `a` or a field of a struct `a.b`, with its type; None for one that the log lacks under this name."""
    name, *fields = path
    if name not in columns:
        return None
    column, kind = pl.col(name), columns[name]
    for field in fields:
        inner = dict(kind.fields)
        if field not in inner:
            return None
        column, kind = column.struct.field(field), inner[field]
    return column, kind


def _literal(value: Any, kind: Type) -> pl.Expr:
    """Return a value of a filter, a moment in the zone of its column: polars compares no others."""
    return pl.lit(value).dt.convert_time_zone(kind.zone) if kind.zone else pl.lit(value)
