"""A few values of every type, its ends among them, in polars columns."""

import polars as pl

from ddcli.expressions.types import INTEGERS, parse_type

DOMAINS = {
    "float32": [0.0, 1.5, -(2.0**24), float("inf"), float("nan")],
    "float64": [0.0, 0.1, -1e300, float("-inf"), float("nan")],
    "bool": [True, False],
    "date": [-719162, 0, 15706, 2932896],
    "time": [0, 86_399_999_999_999],
    "string": ["", "a", "b", "é", "thirteen byte", "long enough for eight-byte words and more"],
    "binary": [b"", b"\xff", b"\x00"],
    "decimal(12, 2)": ["0", "-1.25", "9999999999.99"],
    "decimal(38, 2)": ["0", "-1.25", "9" * 36 + ".99", "-" + "9" * 36 + ".99"],
    "decimal(24, 3)": ["0", "-0.001", "9" * 21 + ".999", "-" + "9" * 21 + ".999", "18446744073709551.616", "255"],
    "datetime[ms]": [0, -1, 253_402_300_799_999],
    "datetime[us]": [0, -1, 2**53],
    "datetime[ns, Europe/Paris]": [0, -1, 2**62],
    "duration[ms]": [0, -1, 2**40],
    "duration[us]": [0, 1, 2**62],
    "list[int64?]": [[], [1, None], [2**62]],
    "list[string?]": [["a"], [None], ["b", ""]],
    "null": [None],
}
for _kind in INTEGERS:
    _bits = int(_kind.lstrip("uint"))
    _signed = not _kind.startswith("u")
    DOMAINS[_kind] = [0, 1, 2 ** (_bits - _signed) - 1, -(2 ** (_bits - 1)) if _signed else 2]
TYPES = [*(text for text in DOMAINS if text != "null"), *(f"{text}?" for text in DOMAINS)]


def column(name, text, picks):
    """Return a column of the type with the values that `picks` (any integers) choose; every fifth of a nullable one is null."""
    kind = parse_type(text)
    domain = DOMAINS[text.removesuffix("?")]
    values = [None if kind.nullable and pick % 5 == 4 else domain[pick % len(domain)] for pick in picks]
    if kind.kind in ("date", "time", "datetime", "duration"):
        return (
            pl.Series(name, values, dtype=pl.Int64)
            .cast(pl.Int32 if kind.kind == "date" else pl.Int64)
            .cast(kind.to_polars())
        )
    if kind.kind == "decimal":
        return pl.Series(name, values, dtype=pl.String).str.to_decimal(scale=kind.scale).cast(kind.to_polars())
    return pl.Series(name, values, dtype=kind.to_polars())
