"""Keys as people write them, `name=value`, each value in the type of its column."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ddcli.errors import UsageError, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ddcli.expressions.types import Schema, Type

CONDITION = "write it as `column=value`, or as 'column is null'"
IS_NULL = re.compile(r"(.+?)\s+is\s+null", re.IGNORECASE | re.DOTALL)
UNWRITTEN = ("list", "struct", "binary", "duration")
"""The kinds of types whose values can't be written as text here."""


def parse_keys(texts: Iterable[str], schema: Schema) -> dict[str, Any]:
    """Return the values of columns that conditions state, as Python has them: see `parse_condition`.

    A value is read as `cast(text as type)` reads it; a timestamp of a type with a zone is in UTC
    unless an offset follows it, as commands print it. Raises UsageError.

    >>> from ddcli.expressions.types import Type
    >>> parse_keys(["id=7", "region is null"], {"id": Type("int64"), "region": Type("string", nullable=True)})
    {'id': 7, 'region': None}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, value = parse_condition(text, schema)
        if name in found:
            raise UsageError(f"'{name}' is given twice", hint="a record has one value of a column")
        found[name] = None if value is None else _value(name, value, schema[name])
    return found


def parse_condition(text: str, schema: Schema) -> tuple[str, str | None]:
    """Return the column and the value of a condition `name=value` or `name is null`; None for null. Raises UsageError.

    `name=null` is `name is null`, but where the column has texts, among which 'null' may be one.

    >>> from ddcli.expressions.types import Type
    >>> schema = {"id": Type("int64"), "region": Type("string", nullable=True)}
    >>> parse_condition("id=null", schema), parse_condition("region=null", schema), parse_condition("region is NULL", schema)
    (('id', None), ('region', 'null'), ('region', None))
    """
    name, equals, value = text.partition("=")
    if not equals and (null := IS_NULL.fullmatch(text)):
        kind_of_column(null[1], schema)
        return null[1], None
    if not equals:
        raise UsageError(f"'{text}' is not a condition", hint=CONDITION)
    is_text = kind_of_column(name, schema).kind == "string"
    if not value and not is_text:
        raise UsageError(f"'{text}' names no value", hint=CONDITION)
    return name, None if value.lower() == "null" and not is_text else value


def null_hint(key: Mapping[str, Any]) -> str | None:
    """Return a hint for a condition that found nothing and names the text 'null', which may mean null.

    >>> null_hint({"id": 7, "region": "null"})
    "'null' is a text here: 'region is null' selects records without a value"
    """
    for name, value in key.items():
        if isinstance(value, str) and value.lower() == "null":
            return f"'{value}' is a text here: '{name} is null' selects records without a value"
    return None


def kind_of_column(name: str, schema: Schema) -> Type:
    """Return the type of a column that a person named. Raises UsageError."""
    if name not in schema:
        hint = suggestion(name, schema, f"columns: {', '.join(schema)}")
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
        raise UsageError(f"column '{name}' is {kind.required()}, whose values can't be written here")
    value = pl.select(Lowering().value(Cast(Literal(text, Type("string", nullable=True)), kind.or_null(), try_=True)))
    found = value.item()
    if found is None:
        raise UsageError(f"'{text}' is not {kind.required()}, the type of the column '{name}'")
    # Python would cut nanoseconds: polars takes their number for the value.
    number = value.to_series().to_physical().item()
    finer = (kind.kind == "time" or kind.unit == "ns") and number % 1000
    return number if finer else found


def key_text(key: Mapping[str, Any]) -> str:
    """Return a key for a message.

    >>> key_text({"id": 7, "region": None})
    'id = 7, region is null'
    """
    return ", ".join(f"{name} is null" if value is None else f"{name} = {value}" for name, value in key.items())
