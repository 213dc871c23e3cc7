"""Comparisons and conditionals in polars."""

from __future__ import annotations

import math
from operator import or_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.lower_struct import compared_structs, sort_key
from ddcli.expressions.tree import Call, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.expressions.checks import Checks, Lower

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
    **dict.fromkeys(COMPARE, _compare),
    "not": lambda _, __, args: ~args[0],
    "is null": lambda _, __, args: args[0].is_null(),
    "in": _in,
    "greatest": _extremum,
    "least": _extremum,
    "error": _error,
    "nullif": _nullif,
}
