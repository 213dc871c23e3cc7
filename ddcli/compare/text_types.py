"""Which types text has, where nobody has said them: the first in which every value, on either side, can be read.

A number is text that could not mean anything else: `007` and `+49` stay text, as do integers that 64 bits don't hold: as
floats, different ones would be equal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column
from ddcli.expressions.types import Type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ddcli.expressions.types import Schema

TEXT = Type("string", nullable=True)
NUMBER = r"-?(0|[1-9][0-9]*)"
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
MOMENT = DAY + r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})"
FORMS = {
    Type("int64", nullable=True): NUMBER,
    Type(
        "float64", nullable=True
    ): r"-?(0|[1-9][0-9]{0,14})([eE][+-]?[0-9]+)?|-?(0|[1-9][0-9]{0,14})\.[0-9]{1,17}([eE][+-]?[0-9]+)?",
    Type("bool", nullable=True): "true|false",
    Type("date", nullable=True): DAY,
    Type("datetime", nullable=True, unit="us"): MOMENT,
    Type("datetime", nullable=True, unit="us", zone="UTC"): MOMENT + ZONE,
}
"""Types that text may have, the narrowest first, and how their values are written."""


def read(name: str, kind: Type) -> pl.Expr:
    """Return a column of text in a type, null where it can't be read: as pipelines read it, but with zones, which these don't."""
    if kind.zone is None:
        return Lowering().value(Cast(Column(name, TEXT), kind, try_=True))
    text = pl.col(name).str.replace(" ", "T", literal=True).str.replace("Z$", "+00:00")
    text = text.str.replace("([+-][0-9]{2})([0-9]{2})$", "${1}:${2}")
    unit: Any = kind.unit
    zoned = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_unit=unit, strict=False)
    plain = read(name, replace(kind, zone=None)).dt.replace_time_zone("UTC")
    return pl.coalesce(zoned, plain).dt.convert_time_zone(kind.zone)


def infer_types(texts: Mapping[str, Sequence[pl.LazyFrame]]) -> Schema:
    """Return the types of columns of text; of each, all frames that have it. Their rows stream by once."""
    columns: dict[int, tuple[pl.LazyFrame, list[str]]] = {}
    for name, frames in texts.items():
        for frame in frames:
            columns.setdefault(id(frame), (frame, []))[1].append(name)
    fits: dict[tuple[str, Type], bool] = {}
    valued: set[str] = set()
    for frame, names in columns.values():
        checks = []
        for name in names:
            checks.append(pl.col(name).is_not_null().any().alias(f"{name}:any"))
            for at, (kind, form) in enumerate(FORMS.items()):
                fits_form = pl.col(name).str.contains(f"^({form})$")
                fitting = pl.col(name).is_null() | (fits_form & read(name, kind).is_not_null())
                checks.append(fitting.all().alias(f"{name}:{at}"))
        found = frame.select(checks).collect(engine="streaming").row(0, named=True)
        for name in names:
            if found[f"{name}:any"]:
                valued.add(name)
            for at, kind in enumerate(FORMS):
                fits[name, kind] = fits.get((name, kind), True) and found[f"{name}:{at}"]
    return {name: next((kind for kind in FORMS if name in valued and fits[name, kind]), TEXT) for name in texts}
