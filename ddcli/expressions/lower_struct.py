"""Structs in polars, and the sort keys of lists and structs."""

from __future__ import annotations

import math
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.lower_number import unscaled, wide
from ddcli.expressions.tree import Call, Literal
from ddcli.expressions.types import MAX_PRECISION

if TYPE_CHECKING:
    from ddcli.expressions.checks import Checks, Lower
    from ddcli.expressions.types import Type

NULL, VALUE, END, TEXT_END = "~", "-", " ", "\0\0"
"""The marks of a sort key: of a null, which is the last, of a value, and of the end of a list and of a text, which are before all that may follow."""
LOWEST = -(2**63)


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


def sort_key(value: pl.Expr, kind: Type) -> pl.Expr:
    """Return texts that are compared as lists or structs are: from the first part on, a null part as the last; null for null."""
    return pl.when(value.is_not_null()).then(_key(value, kind))


def _marked(value: pl.Expr, kind: Type) -> pl.Expr:
    return pl.when(value.is_not_null()).then(pl.lit(VALUE) + _key(value, kind)).otherwise(pl.lit(NULL))


def _key(value: pl.Expr, kind: Type) -> pl.Expr:
    """Return texts in the order of values, equal for equal ones. None is the beginning of another, so they may follow each other."""
    if kind.inner is not None:
        return value.list.eval(_marked(pl.element(), kind.inner)).list.join("") + END
    if kind.fields:
        return pl.concat_str([_marked(value.struct.field(name), inner) for name, inner in kind.fields])
    if kind.kind == "string":
        return value.str.replace_all("\0", "\0\1", literal=True) + TEXT_END
    if kind.kind == "binary":
        return value.bin.encode("hex") + END
    if kind.kind == "null":
        return value.cast(pl.String)
    if kind.is_wide:
        number = unscaled(value)
        digits = pl.when(number < 0).then(number + wide(10**MAX_PRECISION - 1)).otherwise(number)
        sign = pl.when(number < 0).then(pl.lit("0")).otherwise(pl.lit("1"))
        return sign + digits.cast(pl.String).str.zfill(MAX_PRECISION)
    return _unsigned(value, kind).cast(pl.String).str.zfill(20)


def _unsigned(value: pl.Expr, kind: Type) -> pl.Expr:
    """Return integers of 64 bits without a sign in the order of values."""
    if kind.kind == "uint64":
        return value
    if kind.is_float:
        number = value.cast(pl.Float64)
        plain = pl.when(number == 0).then(0.0).when(number.is_nan()).then(math.nan).otherwise(number)
        bits = plain.reinterpret(dtype=pl.Int64)
        number = pl.when(bits < 0).then(bits ^ ~LOWEST).otherwise(bits)
    else:
        number = (unscaled(value) if kind.kind == "decimal" else value.to_physical()).cast(pl.Int64)
    return (number ^ LOWEST).reinterpret(dtype=pl.UInt64)


LOWER: dict[str, Lower] = {
    "named_struct": _named_struct,
    "struct_extract": _struct_extract,
    "sort_key": lambda _, call, args: sort_key(args[0], call.args[0].type),
}
