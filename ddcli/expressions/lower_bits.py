"""Bits of integers, and their digits, in polars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.lower_number import HIGH, LOW, wide
from ddcli.expressions.lower_text import each

if TYPE_CHECKING:
    from ddcli.expressions.checks import Checks, Lower
    from ddcli.expressions.tree import Call


def _shift(low: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    value, bits = args
    outside = (bits < 0) | (bits > 63)
    by = wide(2).pow(pl.when(outside).then(0).otherwise(bits))
    if call.function == ">>":
        return (
            pl.when(outside).then(0 * (value + bits)).otherwise((value.cast(pl.Int128) // by).cast(pl.Int64) + 0 * bits)
        )
    low.fail_given(call, args, bits < 0, "`<<` by a number below zero", "`>>` goes the other way")
    moved = value.cast(pl.Int128) * by
    beyond = (moved > wide(HIGH)) | (moved < wide(LOW)) | ((bits > 63) & (value != 0))
    low.fail_given(call, args, beyond, "integer overflow")
    return pl.when(beyond).then(None).otherwise(moved).cast(pl.Int64)


def _gcd(low: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    both = pl.struct(args[0].alias("0"), args[1].alias("1"))
    found = each(both, lambda pair: None if None in pair.values() else math.gcd(*pair.values()), pl.Int128)
    low.fail_given(call, args, found > wide(HIGH), "integer overflow")
    return pl.when(found <= wide(HIGH)).then(found).cast(pl.Int64)


LOWER: dict[str, Lower] = {
    "gcd": _gcd,
    "&": lambda _, __, args: args[0] & args[1],
    "|": lambda _, __, args: args[0] | args[1],
    "xor": lambda _, __, args: args[0] ^ args[1],
    "~": lambda _, __, args: ~args[0],
    "<<": _shift,
    ">>": _shift,
    "bit_count": lambda _, __, args: args[0].bitwise_count_ones().cast(pl.Int64),
    "bin": lambda _, __, args: each(args[0], lambda number: f"{number % 2**64:b}"),
}
