"""Structs in polars."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.tree import Call, Literal

if TYPE_CHECKING:
    from ddcli.expressions.checks import Checks, Lower
    from ddcli.expressions.types import Type


def _named_struct(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.struct([value.alias(name) for (name, _), value in zip(call.type.fields, args, strict=True)])


def _struct_extract(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    name = call.args[1]
    assert isinstance(name, Literal)
    return args[0].struct.field(str(name.value))


def compared_structs(sign: str, left: pl.Expr, right: pl.Expr, kind: Type) -> pl.Expr:
    """Return a comparison of structs: fields are equal where both are null, a struct that is null is unknown to `=` and `<>`."""
    if sign.endswith("distinct from"):
        found = _same(left, right, kind)
        return found if "not" in sign else ~found
    equal = _fields(left, right, kind)
    found = equal if sign == "=" else ~equal
    return pl.when(left.is_not_null() & right.is_not_null()).then(found)


def _same(left: pl.Expr, right: pl.Expr, kind: Type) -> pl.Expr:
    if kind.kind != "struct":
        return left.eq_missing(right)
    there = left.is_not_null() & right.is_not_null()
    return pl.when(there).then(_fields(left, right, kind)).otherwise(left.is_null() & right.is_null())


def _fields(left: pl.Expr, right: pl.Expr, kind: Type) -> pl.Expr:
    pairs = ((left.struct.field(name), right.struct.field(name), inner) for name, inner in kind.fields)
    return reduce(and_, [_same(*pair) for pair in pairs])


LOWER: dict[str, Lower] = {"named_struct": _named_struct, "struct_extract": _struct_extract}
