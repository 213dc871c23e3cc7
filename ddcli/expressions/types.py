"""Types of columns: what a spec may write, what expressions check, what lanes encode.

A type is a kind with its parameters and whether null is allowed. `int64` refuses nulls, `int64?` allows them.
Nothing here imports polars until a conversion is asked for.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ddcli.dataclass import dataclass

if TYPE_CHECKING:
    import polars as pl

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float32", "float64")
SIMPLE = (*INTEGERS, *FLOATS, "bool", "date", "time", "string", "binary", "null")
UNITS = ("ms", "us", "ns")
ALIASES = {
    "int": "int64",
    "bigint": "int64",
    "integer": "int64",
    "smallint": "int16",
    "double": "float64",
    "float": "float64",
}
ALIASES |= {"text": "string", "str": "string", "varchar": "string", "boolean": "bool", "bytes": "binary"}
ALIASES |= {
    "timestamp": "datetime[us]",
    "datetime": "datetime[us]",
    "timestamptz": "datetime[us, UTC]",
    "duration": "duration[us]",
}
POLARS_NAMES = {
    "bool": "Boolean",
    "date": "Date",
    "time": "Time",
    "string": "String",
    "binary": "Binary",
    "null": "Null",
}
POLARS_NAMES |= {kind: kind.replace("int", "Int").replace("uI", "UI") for kind in INTEGERS}
POLARS_NAMES |= {kind: kind.capitalize() for kind in FLOATS}
MAX_PRECISION = 38
NARROW_DECIMAL = 18
"""Digits that always fit in 64 bits."""
FLAGGED = frozenset({"int64", "uint64", "datetime", "duration"})
"""Kinds whose values use all 64 bits, so that null needs a flag beside them."""


@dataclass(frozen=True, slots=True)
class Type:
    """A column's type. `unit` and `zone` belong to datetime and duration, `precision` and `scale` to decimal,
    `inner` to list. Its text form (`str`) parses back to it.
    """

    kind: str
    nullable: bool = False
    unit: str | None = None
    zone: str | None = None
    precision: int = 0
    scale: int = 0
    inner: Type | None = None

    def __str__(self) -> str:
        mark = "?" if self.nullable else ""
        if self.kind == "decimal":
            return f"decimal({self.precision}, {self.scale}){mark}"
        if self.kind in ("datetime", "duration"):
            zone = f", {self.zone}" if self.zone else ""
            return f"{self.kind}[{self.unit}{zone}]{mark}"
        if self.kind == "list":
            return f"list[{self.inner}]{mark}"
        return self.kind + mark

    @property
    def is_integer(self) -> bool:
        return self.kind in INTEGERS

    @property
    def is_float(self) -> bool:
        return self.kind in FLOATS

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_float or self.kind == "decimal"

    @property
    def is_wide(self) -> bool:
        """Whether it is of decimals whose digits 64 bits leave no room for."""
        return self.kind == "decimal" and self.precision > NARROW_DECIMAL

    @property
    def lanes(self) -> int:
        """How many 64-bit lanes a value takes: two where 64 bits leave no room for its digits or its null."""
        return 2 if self.is_wide or (self.nullable and self.kind in FLAGGED) else 1

    def or_null(self, nullable: bool = True) -> Type:
        """Return the type with nulls allowed, if `nullable` (a type never loses its nulls this way)."""
        return replace(self, nullable=True) if nullable and not self.nullable else self

    def required(self) -> Type:
        """Return the type with nulls refused."""
        return replace(self, nullable=False) if self.nullable else self

    def to_polars(self) -> pl.DataType:
        """Return the polars type that carries it; nullability is ours alone."""
        import polars as pl

        if self.kind == "decimal":
            return pl.Decimal(self.precision, self.scale)
        if self.kind == "datetime":
            return pl.Datetime(self.unit, self.zone)  # type: ignore[arg-type]
        if self.kind == "duration":
            return pl.Duration(self.unit)  # type: ignore[arg-type]
        if self.kind == "list":
            assert self.inner is not None
            return pl.List(self.inner.to_polars())
        dtype: pl.DataType = getattr(pl, POLARS_NAMES[self.kind])()
        return dtype


Schema = dict[str, Type]


def from_polars(dtype: pl.DataType, *, nullable: bool) -> Type | None:
    """Return our type for a polars one, or None when lanes can't carry it (struct, object, array).

    Categories and enums are strings: their codes mean nothing outside one file.
    """
    import polars as pl

    if isinstance(dtype, pl.Decimal):
        return Type("decimal", nullable, precision=dtype.precision or MAX_PRECISION, scale=dtype.scale)
    if isinstance(dtype, pl.Datetime):
        return Type("datetime", nullable, unit=dtype.time_unit, zone=dtype.time_zone)
    if isinstance(dtype, pl.Duration):
        return Type("duration", nullable, unit=dtype.time_unit)
    if isinstance(dtype, pl.List):
        inner = from_polars(dtype.inner, nullable=True)  # type: ignore[arg-type]
        return Type("list", nullable, inner=inner) if inner else None
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return Type("string", nullable)
    kind = {"boolean": "bool"}.get(str(dtype).lower(), str(dtype).lower())
    return Type(kind, nullable) if kind in SIMPLE else None


def parse_type(text: str) -> Type | None:
    """Return the type that a text names, or None.

    >>> str(parse_type("decimal(12,2)?"))
    'decimal(12, 2)?'
    >>> str(parse_type("timestamp"))
    'datetime[us]'
    """
    text = text.strip()
    nullable = text.endswith("?")
    text = text.removesuffix("?").strip()
    text = ALIASES.get(text.lower(), text)
    lowered = text.lower()
    if lowered in SIMPLE:
        return Type(lowered, nullable)
    if match := re.fullmatch(r"(?:decimal|numeric)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", lowered):
        precision, scale = int(match[1]), int(match[2] or 0)
        valid = 0 < precision <= MAX_PRECISION and scale <= precision
        return Type("decimal", nullable, precision=precision, scale=scale) if valid else None
    if match := re.fullmatch(r"(datetime|timestamp)\[\s*(ms|us|ns)\s*(?:,\s*([\w/+:-]+)\s*)?\]", text):
        return Type("datetime", nullable, unit=match[2], zone=match[3])
    if match := re.fullmatch(r"duration\[\s*(ms|us|ns)\s*\]", lowered):
        return Type("duration", nullable, unit=match[1])
    if match := re.fullmatch(r"list\[(.*)\]", text):
        inner = parse_type(match[1])
        return Type("list", nullable, inner=inner) if inner else None
    return None


ARRIVAL = "$arrival"
"""The name of the time of rows that have the time of the run that takes them in: no column of a file has it."""
ARRIVAL_TIME = Type("datetime", unit="us")
"""Its type: microseconds of UTC."""
