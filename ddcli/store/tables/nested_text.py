"""Lists and structs in text: a value is JSON, whose elements and fields are read as columns of their types are.

A missing field is null, one that the struct lacks is ignored, as in the objects of NDJSON. A value fails as a whole if a part of it can't be read.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.expressions.json_text import Members, NoJsonError, as_text, is_array, read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ddcli.expressions.types import Type

    Cast = Callable[[pl.Series, Type], pl.Series]

WRONG = object()
"""A value that is not of its type."""
ROW, VALUE = "row", "value"


def nested_value(text: pl.Expr, kind: Type, cast: Cast) -> pl.Expr:
    """Return the lists or structs of a column of text, null where a text is none; `cast` turns texts into values of a plain type, null where it can't."""
    return text.map_batches(partial(_column, kind, cast), return_dtype=kind.to_polars(), is_elementwise=True)


def _column(kind: Type, cast: Cast, texts: pl.Series) -> pl.Series:
    found, wrong = _read([_tree(text) for text in texts], kind.or_null(), cast)
    return pl.select(pl.when(~wrong).then(found)).to_series().alias(texts.name)


def _tree(text: str | None) -> Any:
    """Return the value of a JSON text."""
    try:
        return None if text is None else read_json(text)
    except NoJsonError:
        return WRONG


def _read(values: Sequence[Any], kind: Type, cast: Cast) -> tuple[pl.Series, pl.Series]:
    """Return values of JSON as a column of a type, and the rows of those that are not of it."""
    wrong = [value is WRONG or (value is None and not kind.nullable) for value in values]
    if kind.inner is not None:
        found, bad = _lists(values, kind.inner, cast)
    elif kind.fields:
        found, bad = _structs(values, kind, cast)
    else:
        texts = pl.Series([None if value is WRONG else as_text(value) for value in values], dtype=pl.String)
        found = cast(texts, kind)
        bad = texts.is_not_null() & found.is_null()
    return found, bad | pl.Series(wrong, dtype=pl.Boolean)


def _lists(values: Sequence[Any], inner: Type, cast: Cast) -> tuple[pl.Series, pl.Series]:
    rows = [row for row, value in enumerate(values) if is_array(value) for _ in value]
    found, wrong = _read([each for value in values if is_array(value) for each in value], inner, cast)
    parts = pl.DataFrame([pl.Series(ROW, rows, pl.Int64), found.alias(VALUE), wrong.alias("wrong")])
    lists = parts.group_by(ROW, maintain_order=True).agg(VALUE, pl.col("wrong").any())
    whole = pl.DataFrame(
        {
            ROW: pl.int_range(len(values), eager=True),
            "is_list": pl.Series(map(is_array, values), dtype=pl.Boolean),
            "is_other": pl.Series([not is_array(value) and value is not None for value in values], dtype=pl.Boolean),
        }
    ).join(lists, on=ROW, how="left", maintain_order="left")
    none = pl.lit(pl.Series([[]], dtype=pl.List(inner.to_polars())))
    return (
        whole.select(pl.when("is_list").then(pl.coalesce(VALUE, none))).to_series(),
        whole.select(pl.col("is_other") | pl.col("wrong").fill_null(value=False)).to_series(),
    )


def _structs(values: Sequence[Any], kind: Type, cast: Cast) -> tuple[pl.Series, pl.Series]:
    objects = [_object(value) for value in values]
    there = pl.Series([isinstance(each, dict) for each in objects], dtype=pl.Boolean)
    wrong = pl.Series([each is WRONG for each in objects], dtype=pl.Boolean)
    fields: list[pl.Series] = []
    for name, inner in kind.fields:
        found, bad = _read([each.get(name) if isinstance(each, dict) else None for each in objects], inner, cast)
        fields.append(found.alias(name))
        wrong = wrong | (bad & there)
    whole = pl.DataFrame(fields).to_struct()
    return pl.select(pl.when(there).then(whole)).to_series(), wrong


def _object(value: Any) -> Any:
    """Return the members of an object by name; WRONG for another value, and where a name occurs twice."""
    if value is None:
        return None
    once = isinstance(value, Members) and max(Counter(name for name, _ in value).values(), default=1) == 1
    return dict(value) if once else WRONG
