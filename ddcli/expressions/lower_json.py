"""Parts of JSON texts in polars. Its own reader has only numbers of 64 bits, so Python reads each value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.json_text import (
    EACH,
    MISSING,
    NoJsonError,
    as_text,
    is_array,
    is_json,
    part_of,
    steps_of,
    written,
)
from ddcli.expressions.lower_text import constant, each

if TYPE_CHECKING:
    from ddcli.expressions.checks import Checks, Lower
    from ddcli.expressions.tree import Call


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


LOWER: dict[str, Lower] = {
    **dict.fromkeys(["json_extract", "json_extract_string", "get_json_object", "json_array_length"], _json),
    "json_valid": lambda _, __, args: each(args[0], is_json, pl.Boolean),
}
