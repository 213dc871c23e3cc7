"""The types of text columns without declared ones: the first type that fits every value on both sides.

Only text that can mean nothing else is a number: `007` and `+49` stay text, and so do numbers with so many digits that different
ones would be equal as floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from ddcli.engine.kernels.text_syntax import EXACT_DIGITS
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column
from ddcli.expressions.types import Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.types import Schema

TEXT = Type("string", nullable=True)
FIRST = 10_000
"""The number of rows that are checked before the others."""
WHOLE = r"-?(0|[1-9][0-9]{0,17})"
SHORT = r"-?(0|[1-9][0-9]{0,14})"
POWER = r"([eE][+-]?[0-9]{1,3})?"
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
MOMENT = DAY + r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})"
FORMS = {
    Type("int64", nullable=True): WHOLE,
    Type("float64", nullable=True): rf"{SHORT}(\.[0-9]+)?{POWER}",
    Type("bool", nullable=True): "true|false",
    Type("date", nullable=True): DAY,
    Type("datetime", nullable=True, unit="us"): MOMENT,
    Type("datetime", nullable=True, unit="us", zone="UTC"): MOMENT + ZONE,
}
"""The types that text may have, the narrowest first, and the patterns of their values."""


TOGETHER = 20
"""The number of columns that are checked in one query: its time and memory grow with the square of its columns."""


def read(name: str, kind: Type) -> pl.Expr:
    """Return a column of text as values of a type, as pipelines read it; null for text that is not of the type."""
    return Lowering().value(Cast(Column(name, TEXT), kind, try_=True))


def infer_types(texts: Mapping[str, Sequence[pl.LazyFrame]]) -> Schema:
    """Return the types of text columns; `texts` has all frames with each column.

    Types that the first rows rule out are not checked in the others, which are read once.
    """
    by_frame: dict[int, tuple[pl.LazyFrame, list[str]]] = {}
    for name, frames in texts.items():
        for frame in frames:
            by_frame.setdefault(id(frame), (frame, []))[1].append(name)
    possible = {name: list(FORMS) for name in texts}
    valued: set[str] = set()
    longer = []
    for frame, names in by_frame.values():
        first = frame.select(names).head(FIRST).collect(engine="streaming")
        _rule_out(first.lazy(), names, possible, valued)
        if len(first) == FIRST:
            longer.append((frame, names))
    for frame, names in longer:
        _rule_out(frame, names, possible, valued)
    return {name: possible[name][0] if possible[name] and name in valued else TEXT for name in texts}


def _rule_out(rows: pl.LazyFrame, names: Sequence[str], possible: dict[str, list[Type]], valued: set[str]) -> None:
    """Remove from `possible` the types that one of these rows doesn't fit, and add columns with any value to `valued`."""
    for few in (names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)):
        checks = [pl.col(name).is_not_null().any().alias(f"{name}:any") for name in few]
        checks += [_fits(name, kind).alias(f"{name}:{kind}") for name in few for kind in possible[name]]
        found = rows.select(checks).collect(engine="streaming").row(0, named=True)
        for name in few:
            possible[name] = [kind for kind in possible[name] if found[f"{name}:{kind}"]]
            valued |= {name} if found[f"{name}:any"] else set()


def _fits(name: str, kind: Type) -> pl.Expr:
    """Return whether all values of a column fit a type: days and moments must exist, floats must equal the written numbers."""
    fits = pl.col(name).str.contains(f"^({FORMS[kind]})$")
    if kind.is_float:
        number = _digits(pl.col(name))
        fits &= (number.str.len_bytes() <= EXACT_DIGITS) | (number == _digits(read(name, kind).cast(pl.String)))
    if kind.kind in {"date", "datetime"}:
        fits &= read(name, kind).is_not_null()
    return (pl.col(name).is_null() | fits).all()


def _digits(text: pl.Expr) -> pl.Expr:
    """Return the digits of numbers, without point, exponent, or zeros at either end."""
    mantissa = text.str.extract(r"^-?([0-9.]*)")
    return mantissa.str.replace(".", "", literal=True).str.strip_chars("0")
