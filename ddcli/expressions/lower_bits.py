"""Bits of integers, and their digits, in polars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.expressions.lower_number import HIGH, LOW, wide
from ddcli.expressions.lower_text import each

if TYPE_CHECKING:
    from ddcli.expressions.checks import Checks, Lower
    from ddcli.expressions.tree import Call

SHIFT_HINT = "a number of bits is 0 to 63"


def _shift(low: Checks, call: Call, args: list[pl.Expr]) -> pl.Expr:
    value, bits = args
    outside = (bits < 0) | (bits > 63)
    low.fail_given(call, args, outside, f"`{call.function}` by a number outside of 0 to 63", SHIFT_HINT)
    by = wide(2).pow(pl.when(outside).then(0).otherwise(bits))
    if call.function == ">>":
        return (value.cast(pl.Int128) // by).cast(pl.Int64)
    moved = value.cast(pl.Int128) * by
    beyond = (moved > wide(HIGH)) | (moved < wide(LOW))
    low.fail_given(call, args, beyond, "integer overflow")
    return pl.when(beyond).then(None).otherwise(moved).cast(pl.Int64)


LOWER: dict[str, Lower] = {
    "&": lambda _, __, args: args[0] & args[1],
    "|": lambda _, __, args: args[0] | args[1],
    "xor": lambda _, __, args: args[0] ^ args[1],
    "~": lambda _, __, args: ~args[0],
    "<<": _shift,
    ">>": _shift,
    "bit_count": lambda _, __, args: args[0].bitwise_count_ones().cast(pl.Int64),
    "bin": lambda _, __, args: each(args[0], lambda number: f"{number % 2**64:b}"),
}
