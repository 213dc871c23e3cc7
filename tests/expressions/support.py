"""Short ways to parse and evaluate in tests, through the real path: text, tree, stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.errors import Span, Text
from ddcli.expressions.parse import parse_scalar
from ddcli.expressions.reductions import parse_reduction
from ddcli.expressions.stage import FusedSteps
from ddcli.expressions.tree import MapStep
from ddcli.expressions.types import ColumnScope, Schema, Type, parse_type

if TYPE_CHECKING:
    from ddcli.expressions.aggregates import Reduction
    from ddcli.expressions.tree import Expression


def text(value: str) -> Text:
    """Return an expression's text as it stands in a file, from column 5 of line 3."""
    return Text(value, Span("p.yaml", 3, 5, len(value), "    " + value))


def schema(columns: dict[str, str]) -> Schema:
    """Return a schema from the texts of types."""
    found: dict[str, Type | None] = {name: parse_type(type_) for name, type_ in columns.items()}
    assert all(found.values()), found
    return found  # type: ignore[return-value]


def scalar(value: str, columns: dict[str, str] | None = None, **qualified: str) -> Expression:
    """Parse an expression over columns given by their types' texts."""
    return parse_scalar(text(value), ColumnScope(schema(columns or {})))


def reduction(value: str, columns: dict[str, str]) -> Reduction:
    """Parse a reduction."""
    return parse_reduction(text(value), ColumnScope(schema(columns)))


def frame_of(columns: Schema, rows: list[dict[str, object]]) -> pl.DataFrame:
    """Return rows as a frame of exactly those types."""
    return pl.DataFrame(
        {name: pl.Series(name, [row[name] for row in rows], dtype=type_.to_polars()) for name, type_ in columns.items()}
    )


def values(value: str, columns: dict[str, str] | None = None, **data: list[object]) -> list[object]:
    """Return an expression's value for each row, having checked that the column has the type that was promised."""
    declared = schema(columns or {})
    expression = parse_scalar(text(value), ColumnScope(declared))
    if not declared:
        declared, data = schema({"unused": "int64"}), {"unused": [0]}
    frame = pl.DataFrame({n: pl.Series(n, data[n], dtype=t.to_polars()) for n, t in declared.items()})
    found = FusedSteps(declared, (MapStep((("value", expression),)),)).run(frame).frame["value"]
    assert found.dtype == expression.type.to_polars(), (value, found.dtype, expression.type)
    assert expression.type.nullable or not found.null_count(), (value, found)
    return found.to_list()


def value(expression: str) -> object:
    """Return a constant expression's value."""
    (found,) = values(expression)
    return found
