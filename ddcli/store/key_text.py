"""Keys as people write them, `name=value`, each value in the type of its column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddcli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.expressions.types import Schema, Type

IS_NULL = " is null"
UNWRITTEN = ("list", "struct", "binary", "duration")
"""Kinds of types whose values nobody writes as text here."""


def parse_keys(texts: Iterable[str], schema: Schema) -> dict[str, Any]:
    """Return the values that texts `name=value` or `name is null` say of columns, as Python has them.

    A value is read as `cast(text as type)` reads it; a timestamp with a zone is in UTC. Raises UsageError.

    >>> from ddcli.expressions.types import Type
    >>> parse_keys(["id=7", "region is null"], {"id": Type("int64"), "region": Type("string", nullable=True)})
    {'id': 7, 'region': None}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals and text.endswith(IS_NULL):
            name = text.removesuffix(IS_NULL)
        elif not equals:
            raise UsageError(f"'{text}' names no value", hint="write it as name=value, or as 'name is null'")
        kind = kind_of_column(name, schema)
        if name in found:
            raise UsageError(f"'{name}' is given twice", hint="a record has one value of a column")
        found[name] = _value(name, value, kind) if equals else None
    return found


def kind_of_column(name: str, schema: Schema) -> Type:
    """Return the type of a column that a person named. Raises UsageError."""
    if name not in schema:
        near = did_you_mean(name, schema)
        hint = f"did you mean '{near}'?" if near else f"columns: {', '.join(schema)}"
        raise UsageError(f"there is no column '{name}'", hint=hint)
    return schema[name]


def _value(name: str, text: str, kind: Type) -> Any:
    import polars as pl

    from ddcli.expressions.lower import Lowering
    from ddcli.expressions.tree import Cast, Literal
    from ddcli.expressions.types import Type

    if kind.kind == "string":
        return text
    if kind.kind in UNWRITTEN:
        raise UsageError(f"column '{name}' is {kind.required()}, of which no value can be written here")
    naive = Type(kind.kind, nullable=True, unit=kind.unit, precision=kind.precision, scale=kind.scale)
    value = pl.select(Lowering().value(Cast(Literal(text, Type("string", nullable=True)), naive, try_=True)))
    if kind.zone is not None:
        value = value.select(pl.all().dt.replace_time_zone("UTC").dt.convert_time_zone(kind.zone))
    if value.item() is None:
        raise UsageError(f"'{text}' is no {kind.required()}, as the column '{name}' is")
    return value.item()


def key_text(key: Mapping[str, Any]) -> str:
    """Return a key for a message.

    >>> key_text({"id": 7, "region": None})
    'id = 7, region is null'
    """
    return ", ".join(f"{name} is null" if value is None else f"{name} = {value}" for name, value in key.items())
