"""Columns of DuckLake with their types, of lists and structs too: values that the catalogue has as text, and columns of files that were written with other fields.

A column has a number, and so has each element and field in it, under any name. Maps and types that are not read make the whole column be left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.dataclass import frozen
from ddcli.expressions.types import parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Leaves = Callable[["LakeColumn", list[Any]], pl.Series]

KINDS = {
    "boolean": "bool", "varchar": "string", "json": "string", "blob": "binary", "date": "date", "time": "time", "float32": "float32", "float64": "float64",
    "timestamp": "datetime[us]", "timestamp_us": "datetime[us]", "timestamp_ms": "datetime[ms]", "timestamp_ns": "datetime[ns]", "timestamptz": "datetime[us, UTC]",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""The types of DuckLake that are read, with ours; decimals, too."""
QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL)
LITERAL = re.compile(r"(?:CAST\()?'((?:[^']|'')*)'(?: AS [A-Z_]+\))?")
"""A text, or a value of a type that has no literal, as a statement has it."""
BARE = re.compile(r"[^,\]}]*")
BYTE = re.compile(rb"\\x([0-9A-Fa-f]{2})")


@frozen
class LakeColumn:
    """A column as it was at some snapshot, or an element or field of one; `parts` are the element of a list, the fields of a struct."""

    number: int
    name: str
    kind: str
    nullable: bool
    default: str | None
    parts: tuple[LakeColumn, ...] = ()

    @property
    def dtype(self) -> pl.DataType | None:
        """Its type; None if it is left out."""
        if self.kind not in ("list", "struct"):
            kind = parse_type(self.kind if self.kind.startswith("decimal") else KINDS.get(self.kind, ""))
            return None if kind is None else kind.to_polars()
        found = [(each.name, dtype) for each in self.parts if (dtype := each.dtype) is not None]
        if not found or len(found) < len(self.parts):
            return None
        return pl.List(found[0][1]) if self.kind == "list" else pl.Struct(dict(found))


def columns_at(rows: Iterable[Sequence[Any]], snapshot: int) -> list[LakeColumn]:
    """Return the columns at a snapshot, from the rows of the catalogue's table of columns, in their order."""
    below: dict[int | None, list[Sequence[Any]]] = {}
    for row in rows:
        if row[4] <= snapshot and (row[5] is None or snapshot < row[5]):
            below.setdefault(row[7], []).append(row)

    def made(row: Sequence[Any]) -> LakeColumn:
        return LakeColumn(row[0], row[1], row[2], bool(row[3]), row[6], tuple(map(made, below.get(row[0], ()))))

    return [made(row) for row in below.get(None, ())]


def nested_value(column: LakeColumn, text: str | None, *, literal: bool = False) -> Any:
    """Return a list or a struct of its text: lists of texts or None, fields by their numbers. Raises ValueError for a text that DuckDB does not write.

    With `literal` the fields of a struct are as in a statement, with quotes doubled; in lists, and else, as a cast writes them, with backslashes before quotes.
    """
    if text is None:
        return None
    value, end = _value(column, text, 0, literal=literal)
    if end != len(text):
        raise ValueError(text)
    return value


def _value(column: LakeColumn, text: str, at: int, *, literal: bool) -> tuple[Any, int]:
    """Return the value that begins at a place of a text, and the place after it."""
    if not column.parts or text.startswith("NULL", at):
        return _leaf(text, at, literal=literal)
    literal &= column.kind == "struct"
    opening, closing = ("[", "]") if column.kind == "list" else ("{", "}")
    at = _after(opening, text, at)
    fields = {each.name: each for each in column.parts}
    found: list[Any] = []
    while not text.startswith(closing, at):
        at = _after(", ", text, at) if found else at
        part = column.parts[0]
        if column.kind == "struct":
            name, at = _leaf(text, at, literal=literal)
            at = _after(": ", text, at)
            part = fields[name] if name in fields else _refuse(text)
        value, at = _value(part, text, at, literal=literal)
        found.append((part.number, value))
    return ([value for _, value in found] if column.kind == "list" else dict(found)), at + 1


def _leaf(text: str, at: int, *, literal: bool) -> tuple[str | None, int]:
    if literal and (found := LITERAL.match(text, at)):
        return found[1].replace("''", "'"), found.end()
    if found := QUOTED.match(text, at):
        return re.sub(r"\\(.)", r"\1", found[1], flags=re.DOTALL), found.end()
    found = BARE.match(text, at)
    assert found is not None
    return (None if found[0] == "NULL" else found[0]), found.end()


def _after(mark: str, text: str, at: int) -> int:
    return at + len(mark) if text.startswith(mark, at) else _refuse(text)


def _refuse(text: str) -> Any:
    raise ValueError(text)


def _field(part: LakeColumn, value: dict[int, Any]) -> Any:
    if part.number in value:
        return value[part.number]
    return nested_value(part, part.default) if part.parts else part.default


def python_values(column: LakeColumn, values: Sequence[Any], leaves: Leaves) -> list[Any]:
    """Return nested values with typed leaves, in the form that `physical` types have; `leaves` types the texts of one column."""
    if column.kind == "list":
        (part,) = column.parts
        each = iter(python_values(part, [one for value in values if value is not None for one in value], leaves))
        return [None if value is None else [next(each) for _ in value] for value in values]
    if column.kind == "struct":
        held = [value for value in values if value is not None]
        parts = [
            (part.name, iter(python_values(part, [_field(part, value) for value in held], leaves)))
            for part in column.parts
        ]
        return [None if value is None else {name: next(each) for name, each in parts} for value in values]
    texts = [escaped(value) for value in values] if column.kind == "blob" else list(values)
    series = leaves(column, texts)
    return (series.to_physical() if series.dtype.is_temporal() else series).to_list()


def escaped(text: str | None) -> bytes | None:
    """Return the bytes of a text in which DuckDB wrote some of them as numbers."""
    return None if text is None else BYTE.sub(lambda found: bytes([int(found[1], 16)]), text.encode())


def physical(dtype: pl.DataType) -> pl.DataType:
    """Return a type with the numbers of moments and days, which Python has not all of."""
    if isinstance(dtype, pl.List):
        return pl.List(physical(dtype.inner))  # type: ignore[arg-type]
    if isinstance(dtype, pl.Struct):
        return pl.Struct({each.name: physical(each.dtype) for each in dtype.fields})  # type: ignore[arg-type]
    if isinstance(dtype, pl.Date):
        return pl.Int32()
    return pl.Int64() if dtype.is_temporal() else dtype


def shaped(expression: pl.Expr, column: LakeColumn, field: Any, leaves: Leaves) -> pl.Expr:
    """Return a column of a file, by its field in Arrow's schema, in the type of the table's column: fields have their numbers there."""
    dtype = column.dtype
    assert dtype is not None
    if column.kind == "list":
        return expression.list.eval(shaped(pl.element(), column.parts[0], field.type.value_field, leaves))
    if column.kind != "struct":
        return expression.cast(dtype)
    here = {field_number(each): each for each in (field.type.field(at) for at in range(field.type.num_fields))}
    parts = [
        shaped(expression.struct.field(here[part.number].name), part, here[part.number], leaves).alias(part.name)
        if part.number in here
        else _default(part, leaves).alias(part.name)
        for part in column.parts
    ]
    return pl.when(expression.is_not_null()).then(pl.struct(parts)).otherwise(pl.lit(None, dtype))


def _default(part: LakeColumn, leaves: Leaves) -> pl.Expr:
    """Return the value of a field that rows were written without."""
    dtype = part.dtype
    assert dtype is not None
    (value,) = python_values(part, [_field(part, {})], leaves)
    return pl.lit(value, physical(dtype)).cast(dtype)


def field_number(field: Any) -> int:
    """Return the number of a field of Arrow's."""
    return int((field.metadata or {}).get(b"PARQUET:field_id", -1))
