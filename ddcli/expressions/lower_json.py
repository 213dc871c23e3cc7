"""Parts and values of JSON texts in polars. Its own reader has only numbers of 64 bits, so Python reads each value."""

from __future__ import annotations

import json
from dataclasses import replace
from operator import or_
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.expressions import lower_cast as of_values
from ddcli.expressions.json_text import (
    EACH,
    MISSING,
    Members,
    NoJsonError,
    as_text,
    contains,
    float_text,
    is_array,
    is_json,
    json_rows,
    kind_of,
    merged,
    misfits,
    part_of,
    read_json,
    steps_of,
    structure_of,
    texts_of,
    written,
)
from ddcli.expressions.lower_cast import to_text
from ddcli.expressions.lower_number import balanced, each
from ddcli.expressions.lower_text import constant
from ddcli.expressions.operators import JSON_MADE
from ddcli.expressions.tree import Call, Cast, Column
from ddcli.expressions.types import Type

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.expressions.lower import Lower, Lowering


TEXT = Type("string", nullable=True)


def _json(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    path, is_list = constant(call, 1), call.type.kind == "list"
    steps = steps_of(path.removesuffix(EACH) if is_list else path)
    assert steps is not None

    def found(text: str) -> Any:
        try:
            if call.function in ("json_each", "json_tree"):
                return json_rows(text, path, steps, whole=call.function == "json_tree")
            part = part_of(text, steps)
            if call.function == "json_exists":
                return part is not MISSING
            if call.function in ("json_type", "json_keys"):
                names = [name for name, _ in part] if isinstance(part, Members) else []
                return None if part is MISSING else kind_of(part) if call.function == "json_type" else names
            if is_list:
                shown = written if call.function == "json_extract" else as_text
                return [shown(one) for one in part] if is_array(part) else []
            if call.function == "json_array_length":
                return None if part is MISSING else len(part) if is_array(part) else 0
            if call.function == "json_extract":
                return None if part is MISSING else written(part)
            if call.function == "json_value":
                return None if isinstance(part, list) or as_text(part) is None else written(part)
            return as_text(part)
        except NoJsonError:
            return None

    if call.function != "get_json_object":
        hint = "use get_json_object for null, or `case when json_valid(x) then ...`"
        low.fail_given(call, args, ~each(args[0], is_json, pl.Boolean), "a text is not JSON", hint)
    return each(args[0], found, call.type.to_polars())


def _from_json(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Lower `from_json`: Python reads the texts of a value's parts, and casts make them values, null where they can't."""

    def texts(text: str) -> Any:
        try:
            return texts_of(read_json(text), call.type)
        except NoJsonError:
            return None

    hint = "use `case when json_valid(x) then ...`"
    low.fail_given(call, args, ~each(args[0], is_json, pl.Boolean), "a text is not JSON", hint)
    return _values(low, each(args[0], texts, _as_texts(call.type).to_polars()), call.type)


def lower_cast(low: Lowering, cast: Cast, value: pl.Expr) -> pl.Expr:
    """Lower a cast of JSON to a list or a struct: `from_json`, but an error where that has null for a value of another kind, or for a member that only one side has."""

    def fits(text: str) -> bool:
        return bool(_tried(lambda: not misfits(read_json(text), cast.type)))

    texts = each(
        value, lambda text: _tried(lambda: texts_of(read_json(text), cast.type)), _as_texts(cast.type).to_polars()
    )
    found = _values(low, texts, cast.type)
    if not cast.try_:
        unread = ~each(value, fits, pl.Boolean) | (_present(texts, cast.type) != _present(found, cast.type))
        low.fail(
            cast,
            unread.fill_null(value=False),
            f"JSON that is not {cast.type.required()}",
            "use try_cast, which has null for what does not fit",
        )
    return found


def _present(value: pl.Expr, kind: Type) -> pl.Expr:
    """Return the number of the parts of a value that are not null."""
    if kind.inner is not None:
        return value.list.eval(_present(pl.element(), kind.inner)).list.sum().fill_null(0)
    if kind.fields:
        return pl.sum_horizontal(_present(value.struct.field(name), inner) for name, inner in kind.fields)
    return value.is_not_null().cast(pl.UInt32)


def _of_texts(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Lower a function of one or two JSON texts."""
    invalid = balanced(or_, [~each(arg, is_json, pl.Boolean) for arg in args])
    low.fail_given(call, args, invalid, "a text is not JSON", "use `case when json_valid(x) then ...`")
    if call.function.endswith("parse_json"):
        return args[0]
    if call.function == "json_structure":
        return each(args[0], lambda text: _tried(lambda: structure_of(read_json(text))), pl.String)
    if call.function == "json":
        return each(args[0], lambda text: _tried(lambda: written(read_json(text))), pl.String)
    combine = contains if call.function == "json_contains" else lambda one, other: written(merged(one, other))

    def found(pair: dict[str, str | None]) -> Any:
        one, other = pair.values()
        return None if one is None or other is None else _tried(lambda: combine(read_json(one), read_json(other)))

    return each(pl.struct(args[0].alias("0"), args[1].alias("1")), found, call.type.to_polars())


def _tried(value: Callable[[], Any]) -> Any:
    try:
        return value()
    except NoJsonError:
        return None


def _to_json(low: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    """Lower `to_json`, `json_object` and `json_array`."""
    if call.function == "to_json":
        value = _shown(low, call, args[0], call.args[0].type)
        return pl.when(args[0].is_not_null()).then(value)
    parts = [
        pl.when(arg.is_null())
        .then(pl.lit("null"))
        .otherwise(
            each(arg, lambda text: _tried(lambda: written(read_json(text))), pl.String)
            if isinstance(one, Call) and one.function in JSON_MADE
            else _shown(low, call, arg, one.type)
        )
        for one, arg in zip(call.args, args, strict=True)
    ]
    is_object = call.function == "json_object"
    joined = (
        [pl.concat_str([name, pl.lit(":"), value]) for name, value in zip(parts[::2], parts[1::2], strict=True)]
        if is_object
        else parts
    )
    opening, closing = "{}" if is_object else "[]"
    inner = pl.concat_str(joined, separator=",") if joined else pl.lit("")
    return pl.concat_str([pl.lit(opening), inner, pl.lit(closing)])


def _shown(low: Lowering, call: Call, value: pl.Expr, kind: Type) -> pl.Expr:
    """Return values as JSON; of a null anything."""

    def part(value: pl.Expr, kind: Type) -> pl.Expr:
        return pl.when(value.is_null()).then(pl.lit("null")).otherwise(_shown(low, call, value, kind))

    if kind.inner is not None:
        return pl.concat_str([pl.lit("["), value.list.eval(part(pl.element(), kind.inner)).list.join(","), pl.lit("]")])
    if kind.fields:
        members = [
            pl.concat_str([pl.lit(f"{json.dumps(name, ensure_ascii=False)}:"), part(value.struct.field(name), inner)])
            for name, inner in kind.fields
        ]
        return pl.concat_str([pl.lit("{"), pl.concat_str(members, separator=","), pl.lit("}")])
    if kind.kind == "string":
        return each(value, lambda text: json.dumps(text, ensure_ascii=False), pl.String)
    if kind.is_float:
        return each(value.cast(pl.Float64), lambda x: float_text(x + 0.0), pl.String)
    text = to_text(kind, value)
    if kind.kind == "decimal" and kind.scale:
        return text.str.replace("0+$", "").str.replace("[.]$", ".0")
    return text if kind.is_numeric or kind.kind in ("bool", "null") else pl.concat_str([pl.lit('"'), text, pl.lit('"')])


def _as_texts(kind: Type) -> Type:
    """Return a type with texts in the place of its values."""
    if kind.inner is not None:
        return replace(kind, inner=_as_texts(kind.inner))
    if kind.fields:
        return replace(kind, fields=tuple((name, _as_texts(inner)) for name, inner in kind.fields))
    return TEXT


def _values(low: Lowering, texts: pl.Expr, kind: Type) -> pl.Expr:
    """Return the value of a type whose parts are texts."""
    if kind.inner is not None:
        return texts.list.eval(_values(low.of_elements(), pl.element(), kind.inner))
    if kind.fields:
        parts = [_values(low, texts.struct.field(name), inner).alias(name) for name, inner in kind.fields]
        return pl.when(texts.is_not_null()).then(pl.struct(parts))
    if kind.kind == "string":
        return texts
    cast = Cast(Column("", TEXT), kind, try_=True)
    return low.trying(tried=True, lower=lambda: of_values.lower_cast(low, cast, texts))


LOWER: dict[str, Lower] = {
    **dict.fromkeys(
        ["json_extract", "json_extract_string", "get_json_object", "json_array_length", "json_value"], _json
    ),
    **dict.fromkeys(["json_type", "json_keys", "json_exists", "json_each", "json_tree"], _json),
    **dict.fromkeys(
        ["json", "json_contains", "json_merge_patch", "parse_json", "try_parse_json", "json_structure"], _of_texts
    ),
    **dict.fromkeys(["to_json", "json_object", "json_array"], _to_json),
    "from_json": _from_json,
    "json_valid": lambda _, __, args: each(args[0], is_json, pl.Boolean),
}
