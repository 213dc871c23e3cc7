"""Comparisons and conditionals in polars, of structs and lists too: these compare by sort keys."""

from __future__ import annotations

import math
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.lower_number import unscaled, wide
from ddcli.expressions.tree import Call, Literal
from ddcli.expressions.types import MAX_PRECISION

if TYPE_CHECKING:
    from collections.abc import Callable

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


OF_STRUCTS: dict[str, Lower] = {
    "named_struct": _named_struct,
    "struct_extract": _struct_extract,
    "sort_key": lambda _, call, args: sort_key(args[0], call.args[0].type),
}


# polars compares floats as we do: NaN equals NaN and is above every number, -0.0 equals 0.0.


COMPARE: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "is not distinct from": lambda a, b: a.eq_missing(b),
    "is distinct from": lambda a, b: a.ne_missing(b),
}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(sign: str, left: pl.Expr, right: pl.Expr, *, constant: bool) -> pl.Expr:
    """Return a comparison; `constant`: the left side depends on no column.

    A constant is put on the right: compared with a column of a single value, it would return one row.
    """
    return COMPARE[MIRRORED.get(sign, sign)](right, left) if constant else COMPARE[sign](left, right)


def _compare(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    sign = call.function
    if call.args[0].type.kind == "struct":
        left, right = args
        return compared_structs(sign, left, right, call.args[0].type)
    if sign.endswith("distinct from") and not any(arg.type.nullable for arg in call.args):
        sign = "=" if "not" in sign else "<>"
    return compared(sign, *args, constant=not call.args[0].columns())


def _in(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    value, *others = args  # without the constants
    listed = [arg.value for arg in call.args[1:] if isinstance(arg, Literal)]
    constants = [constant for constant in listed if constant is not None]
    constant = not call.args[0].columns()
    found = [compared("=", value, item, constant=constant) for item in others]
    if constants:
        found.insert(0, value.is_in(pl.Series(constants, dtype=call.args[0].type.to_polars()).implode()))
    if len(constants) < len(listed):  # a null: a value that is not found may equal it
        found.append(compared("=", value, pl.lit(None, call.args[0].type.to_polars()), constant=constant))
    return balanced(or_, found)


def balanced(connect: Callable[[pl.Expr, pl.Expr], pl.Expr], parts: list[pl.Expr]) -> pl.Expr:
    """Return parts connected by an associative operator, in their order, as a balanced tree: deep trees overflow polars' stack."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return connect(balanced(connect, parts[:half]), balanced(connect, parts[half:]))


def _extremum(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    if call.type.kind in ("list", "struct"):
        best, key = args[0], sort_key(args[0], call.type)
        for arg in args[1:]:
            other = sort_key(arg, call.type)
            better = key.is_null() | ((other < key) if call.function == "least" else (other > key)).fill_null(
                value=False
            )
            best, key = pl.when(better).then(arg).otherwise(best), pl.when(better).then(other).otherwise(key)
        return best
    # polars ignores NaN beside other values: that is right only for the least.
    if call.function == "least":
        best = pl.min_horizontal(args)
    else:
        best = pl.max_horizontal(args)
        if call.type.is_float:
            best = pl.when(balanced(or_, [value.is_nan() for value in args])).then(math.nan).otherwise(best)
    return best


def _error(low: Checks, call: Call, _: list[pl.Expr]) -> pl.Expr:
    (message,) = call.args
    assert isinstance(message, Literal)
    low.fail(call, pl.lit(True), str(message.value))
    return pl.lit(None, dtype=call.type.to_polars())


def _nullif(_: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    kind = call.args[0].type
    sides = [sort_key(arg, kind) if kind.kind in ("list", "struct") else arg for arg in args]
    return pl.when(compared("=", *sides, constant=not call.args[0].columns())).then(None).otherwise(args[0])


LOWER: dict[str, Lower] = {
    **OF_STRUCTS,
    **dict.fromkeys(COMPARE, _compare),
    "not": lambda _, __, args: ~args[0],
    "is null": lambda _, __, args: args[0].is_null(),
    "in": _in,
    "greatest": _extremum,
    "least": _extremum,
    "error": _error,
    "nullif": _nullif,
}
