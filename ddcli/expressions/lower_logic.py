"""Comparisons, conditionals and lists in polars."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.tree import Call, Literal

if TYPE_CHECKING:
    from ddcli.expressions.lower import Lower, Lowering

# polars compares floats as we do: NaN equals NaN and is above every number, -0.0 equals 0.0.


def _in(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    value, *items = args
    constants = [arg.value for arg in call.args[1:] if isinstance(arg, Literal)]
    if len(constants) == len(items) and None not in constants:
        return value.is_in(pl.Series(constants, dtype=call.args[0].type.to_polars()).implode())
    return reduce(or_, [value == item for item in items])


def _not_distinct(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    left, right = args
    if not any(arg.type.nullable for arg in call.args):
        return left == right
    return left.eq_missing(right)


def _distinct(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    left, right = args
    if not any(arg.type.nullable for arg in call.args):
        return left != right
    return left.ne_missing(right)


def _extremum(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    # Not max_horizontal: that passes over nulls and NaN.
    best = args[0]
    for other in args[1:]:
        better = other > best if call.function == "greatest" else other < best
        best = pl.when(better).then(other).otherwise(best)
    nullable = [value for arg, value in zip(call.args, args, strict=True) if arg.type.nullable]
    if not nullable:
        return best
    return pl.when(reduce(or_, [value.is_null() for value in nullable])).then(None).otherwise(best)


def _nullif(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    return pl.when(args[0] == args[1]).then(None).otherwise(args[0])


def _array(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    if not args:
        return pl.lit([], dtype=call.type.to_polars())
    return pl.concat_list(args).cast(call.type.to_polars())


def _element(_: Lowering, call: Call, args: list[pl.Expr]) -> pl.Expr:
    values, n = args
    # polars counts from the end below zero, and its positions are 32 bits wide.
    inside = (n >= 1) & (n <= values.list.len().cast(pl.Int64))
    value = values.list.get(pl.when(inside).then(n - 1).otherwise(0), null_on_oob=True)
    return pl.when(inside).then(value).otherwise(None).cast(call.type.to_polars())


def _array_contains(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    # polars finds a null in a list; here a null value is unknown.
    return pl.when(args[1].is_not_null()).then(args[0].list.contains(args[1], nulls_equal=False))


def _cardinality(_: Lowering, __: Call, args: list[pl.Expr]) -> pl.Expr:
    return args[0].list.len().cast(pl.Int64)


LOWER: dict[str, Lower] = {
    "=": lambda _, __, args: args[0] == args[1],
    "<>": lambda _, __, args: args[0] != args[1],
    "<": lambda _, __, args: args[0] < args[1],
    "<=": lambda _, __, args: args[0] <= args[1],
    ">": lambda _, __, args: args[0] > args[1],
    ">=": lambda _, __, args: args[0] >= args[1],
    "not": lambda _, __, args: ~args[0],
    "is null": lambda _, __, args: args[0].is_null(),
    "is distinct from": _distinct,
    "is not distinct from": _not_distinct,
    "in": _in,
    "greatest": _extremum,
    "least": _extremum,
    "nullif": _nullif,
    "array": _array,
    "element": _element,
    "array_contains": _array_contains,
    "cardinality": _cardinality,
}
