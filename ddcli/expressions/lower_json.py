"""Parts and values of JSON texts in polars. Its own reader has only numbers of 64 bits, so Python reads each value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.expressions.json_text import (
    EACH,
    MISSING,
    NoJsonError,
    as_text,
    is_array,
    is_json,
    part_of,
    read_json,
    steps_of,
    texts_of,
    written,
)
from ddcli.expressions.lower_cast import lower_cast
from ddcli.expressions.lower_text import constant, each
from ddcli.expressions.tree import Cast, Column
from ddcli.expressions.types import Type

if TYPE_CHECKING:
    from ddcli.expressions.checks import Checks, Lower
    from ddcli.expressions.tree import Call


TEXT = Type("string", nullable=True)


def _json(low: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    path, is_list = constant(call, 1), call.type.kind == "list"
    steps = steps_of(path.removesuffix(EACH) if is_list else path)
    assert steps is not None

    def found(text: str) -> str | int | list[str | None] | None:
        try:
            part = part_of(text, steps)
            if is_list:
                shown = written if call.function == "json_extract" else as_text
                return [shown(one) for one in part] if is_array(part) else []
            if call.function == "json_array_length":
                return None if part is MISSING else len(part) if is_array(part) else 0
            if call.function == "json_extract":
                return None if part is MISSING else written(part)
            return as_text(part)
        except NoJsonError:
            return None

    if call.function != "get_json_object":
        hint = "use get_json_object for null, or `case when json_valid(x) then ...`"
        low.fail_given(call, args, ~each(args[0], is_json, pl.Boolean), "a text is no JSON", hint)
    return each(args[0], found, call.type.to_polars())


def _from_json(low: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Lower `from_json`: Python reads the texts of a value's parts, and casts make them values, null where they can't."""

    def texts(text: str) -> Any:
        try:
            return texts_of(read_json(text), call.type)
        except NoJsonError:
            return None

    hint = "use `case when json_valid(x) then ...`"
    low.fail_given(call, args, ~each(args[0], is_json, pl.Boolean), "a text is no JSON", hint)
    return _values(low, each(args[0], texts, _as_texts(call.type).to_polars()), call.type)


def _as_texts(kind: Type) -> Type:
    """Return a type with texts in the place of its values."""
    if kind.inner is not None:
        return replace(kind, inner=_as_texts(kind.inner))
    if kind.fields:
        return replace(kind, fields=tuple((name, _as_texts(inner)) for name, inner in kind.fields))
    return TEXT


def _values(low: Checks, texts: pl.Expr, kind: Type) -> pl.Expr:
    """Return the value of a type whose parts are texts."""
    if kind.inner is not None:
        return texts.list.eval(_values(low, pl.element(), kind.inner))
    if kind.fields:
        parts = [_values(low, texts.struct.field(name), inner).alias(name) for name, inner in kind.fields]
        return pl.when(texts.is_not_null()).then(pl.struct(parts))
    if kind.kind == "string":
        return texts
    cast = Cast(Column("", TEXT), kind, try_=True)
    return low.trying(tried=True, lower=lambda: lower_cast(low, cast, texts))


LOWER: dict[str, Lower] = {
    **dict.fromkeys(["json_extract", "json_extract_string", "get_json_object", "json_array_length"], _json),
    "from_json": _from_json,
    "json_valid": lambda _, __, args: each(args[0], is_json, pl.Boolean),
}
