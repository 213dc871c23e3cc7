"""Types of columns: a spec writes them, expressions check them, lanes encode them; the names of columns; and the order of rows by columns.

A type is a kind with its parameters, and allows null or refuses it: `int64` refuses nulls, `int64?` allows them.
polars is imported only by conversions.

UTC in a type of timestamps stands for no zone of its own: a pipeline with a zone (`timezone: Europe/Berlin`) reads those types as of its zone (see
`localized`). Expressions are checked within `in_zone`, and hold the zone in their types from then on.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar

from ddcli.dataclass import dataclass, frozen
from ddcli.errors import SpecError, UnknownColumn, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    import polars as pl

    from ddcli.errors import Span

    Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)


SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float32", "float64")
SIMPLE = (*INTEGERS, *FLOATS, "bool", "date", "time", "string", "binary", "null")
SECOND_DIGITS = {"ms": 3, "us": 6, "ns": 9}
"""The number of decimal places of a second, by the units of times."""
UNITS = (*SECOND_DIGITS,)
OTHER_NAMES = {
    "int8": "tinyint, int1",
    "int16": "smallint, int2, short",
    "int32": "int4",
    "int64": "bigint, int, integer, long",
    "uint8": "utinyint",
    "uint16": "usmallint",
    "uint32": "uinteger",
    "uint64": "ubigint",
    "decimal(38, 0)": "hugeint, int128",
    "float32": "real, float4",
    "float64": "double, float, float8, double precision",
    "string": "text, str, varchar, char, bpchar, character, character varying, nvarchar",
    "bool": "boolean, logical",
    "binary": "bytes, bytea, blob, varbinary",
    "time": "time without time zone",
    "datetime[ms]": "timestamp_ms",
    "datetime[us]": "timestamp, datetime, timestamp_us, timestamp_ntz, timestamp without time zone",
    "datetime[ns]": "timestamp_ns",
    "datetime[us, UTC]": "timestamptz, timestamp_ltz, timestamp with time zone",
    "duration[us]": "duration, interval",
}
"""The names of types in DuckDB, Postgres and Spark."""
ALIASES = {other: name for name, others in OTHER_NAMES.items() for other in others.split(", ")}
SQL_NAMES = ALIASES | {
    "int8": "int64",
    "int": "int32",
    "integer": "int32",
    "signed": "int32",
    "float": "float32",
    "decimal": "decimal(18, 3)",
    "numeric": "decimal(18, 3)",
    "dec": "decimal(18, 3)",
}
"""The names of types in expressions. Names of numbers have DuckDB's meaning, some of them another than in `columns`."""
WITH_LENGTH = re.compile(r"(varchar|char|bpchar|character|character varying|nvarchar)\s*\(\s*[0-9]+\s*\)")
"""A type of texts with a length, which means nothing, as in DuckDB."""
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
"""The most digits that always fit in 64 bits."""
NESTED = 32
"""The depth to which lists and structs may be nested."""
PATTERN_HINT = "rename it: `*`, and what begins with `^` and ends with `$`, stand for several columns elsewhere"
ORDERLESS = frozenset({"list", "struct", "null", "months"})
"""Kinds whose values have no order."""
POOLED = frozenset({"string", "binary", "list", "struct"})
"""Kinds whose lanes are hashes of values, which have no order."""
FLAGGED = frozenset({"int64", "uint64", "datetime", "duration"})
"""Kinds whose values use all 64 bits, so that null needs a flag beside them."""


@frozen
class Type:
    """A column's type. `unit` and `zone` belong to datetime and duration, `precision` and `scale` to decimal,
    `inner` to list, `fields` to struct: names, all different, with types. Its text form (`str`) parses back to it.
    """

    kind: str
    nullable: bool = False
    unit: str | None = None
    zone: str | None = None
    precision: int = 0
    scale: int = 0
    inner: Type | None = None
    fields: tuple[tuple[str, Type], ...] = ()

    @property
    def sql(self) -> str:
        """Return the type as an expression names it: there `int8` has 64 bits."""
        return re.sub(r"\bint8\b(?!\"|:)", "tinyint", str(self)) if "int8" in str(self) else str(self)

    def __str__(self) -> str:
        mark = "?" if self.nullable else ""
        if self.kind == "decimal":
            return f"decimal({self.precision}, {self.scale}){mark}"
        if self.kind in ("datetime", "duration"):
            zone = f", {self.zone}" if self.zone else ""
            return f"{self.kind}[{self.unit}{zone}]{mark}"
        if self.kind == "list":
            return f"list[{self.inner}]{mark}"
        if self.kind == "struct":
            return f"struct[{', '.join(f'{_field_name(name)}: {kind}' for name, kind in self.fields)}]{mark}"
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
        """Return whether its values are decimals with more digits than 64 bits hold."""
        return self.kind == "decimal" and self.precision > NARROW_DECIMAL

    @property
    def lanes(self) -> int:
        """Return the number of 64-bit lanes of a value: two if 64 bits leave no room for its digits or its null."""
        return 2 if self.is_wide or (self.nullable and self.kind in FLAGGED) else 1

    @property
    def second_digits(self) -> int:
        """Return the number of decimal places of a second in its values."""
        return SECOND_DIGITS["ns" if self.kind == "time" else self.unit or "us"]

    @property
    def per_second(self) -> int:
        """Return the number of its units in a second."""
        return int(10**self.second_digits)

    @property
    def depth(self) -> int:
        """Return the depth to which lists and structs are nested in it."""
        if self.inner is not None:
            return 1 + self.inner.depth
        return 1 + max(kind.depth for _, kind in self.fields) if self.fields else 0

    @property
    def is_known(self) -> bool:
        """Return whether neither it nor a type in it is the type of a bare null."""
        return self.kind != "null" and all(kind.is_known for _, kind in self.fields)

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
        if self.kind == "struct":
            return pl.Struct({name: kind.to_polars() for name, kind in self.fields})
        dtype: pl.DataType = getattr(pl, POLARS_NAMES[self.kind])()
        return dtype


Schema = dict[str, Type]


def cheapest(schema: Schema) -> tuple[str, ...]:
    """Return a column to count rows by, if there is any: one of fixed width if there is one."""
    return tuple(sorted(schema, key=lambda name: schema[name].kind in POOLED)[:1])


def from_polars(dtype: pl.DataType, *, nullable: bool, depth: int = 0) -> Type | None:
    """Return our type for a polars one, or None if lanes can't carry it: objects, arrays, decimals of more than 38 digits, types nested too deeply, structs without fields or with a nameless one.

    Categories and enums are strings: their codes mean nothing outside one file.
    """
    import polars as pl

    if isinstance(dtype, pl.Decimal):
        precision = dtype.precision or MAX_PRECISION
        return Type("decimal", nullable, precision=precision, scale=dtype.scale) if precision <= MAX_PRECISION else None
    if isinstance(dtype, pl.Datetime):
        return Type("datetime", nullable, unit=dtype.time_unit, zone=dtype.time_zone)
    if isinstance(dtype, pl.Duration):
        return Type("duration", nullable, unit=dtype.time_unit)
    if isinstance(dtype, pl.List):
        inner = from_polars(dtype.inner, nullable=True, depth=depth + 1) if depth < NESTED else None  # type: ignore[arg-type]
        return Type("list", nullable, inner=inner) if inner else None
    if isinstance(dtype, pl.Struct):
        kinds = [from_polars(each.dtype, nullable=True, depth=depth + 1) for each in dtype.fields if depth < NESTED]  # type: ignore[arg-type]
        known = [kind for kind in kinds if kind is not None]
        if not known or len(known) < len(dtype.fields) or not all(is_field_name(each.name) for each in dtype.fields):
            return None
        return Type("struct", nullable, fields=tuple(zip((each.name for each in dtype.fields), known, strict=True)))
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return Type("string", nullable)
    kind = {"boolean": "bool"}.get(str(dtype).lower(), str(dtype).lower())
    return Type(kind, nullable) if kind in SIMPLE else None


def parse_schema(texts: Mapping[str, str]) -> Schema:
    """Return the types of columns that a state holds as texts."""
    found = {name: parse_type(text) for name, text in texts.items()}
    assert None not in found.values(), f"the state holds {texts} for types"
    return {name: kind for name, kind in found.items() if kind is not None}


def parse_sql_type(text: str) -> Type | None:
    """Return the type that a text in an expression names, or None.

    >>> [str(parse_sql_type(text)) for text in ("int8", "tinyint[]", "numeric(9,2)", "character varying(9)")]
    ['int64', 'list[int8?]', 'decimal(9, 2)', 'string']
    """
    return parse_type(text, names=SQL_NAMES)


def parse_type(text: str, depth: int = 0, names: Mapping[str, str] = ALIASES) -> Type | None:
    """Return the type that a text names, or None; `depth` is the number of lists and structs around it, `names` are other names of types.

    >>> str(parse_type("decimal(12,2)?"))
    'decimal(12, 2)?'
    >>> str(parse_type("timestamp")), str(parse_type("bigint[]"))
    ('datetime[us]', 'list[int64?]')
    """
    text = text.strip()
    nullable = text.endswith("?")
    text = text.removesuffix("?").strip()
    lowered = " ".join(text.lower().split())
    text = names.get("varchar" if WITH_LENGTH.fullmatch(lowered) else lowered, text)
    lowered = text.lower()
    if lowered in SIMPLE:
        return Type(lowered, nullable)
    if match := re.fullmatch(r"(?:decimal|numeric|dec)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", lowered):
        precision, scale = int(match[1]), int(match[2] or 0)
        valid = 0 < precision <= MAX_PRECISION and scale <= precision
        return Type("decimal", nullable, precision=precision, scale=scale) if valid else None
    if match := re.fullmatch(r"(datetime|timestamp)\[\s*(ms|us|ns)\s*(?:,\s*([\w/+:-]+)\s*)?\]", text):
        return Type("datetime", nullable, unit=match[2], zone=match[3])
    if match := re.fullmatch(r"duration\[\s*(ms|us|ns)\s*\]", lowered):
        return Type("duration", nullable, unit=match[1])
    if depth == NESTED:
        return None
    if match := re.fullmatch(r"list\[(.*)\]", text, re.DOTALL):
        inner = parse_type(match[1], depth + 1, names)
        return Type("list", nullable, inner=inner) if inner else None
    if text.endswith("[]"):  # as SQL has it elsewhere: elements may be null
        inner = parse_type(text.removesuffix("[]"), depth + 1, names)
        return Type("list", nullable, inner=inner.or_null()) if inner else None
    if match := re.fullmatch(r"struct\[(.*)\]", text, re.DOTALL):
        fields = _parse_fields(match[1], FIELD, depth + 1, names)
        return Type("struct", nullable, fields=fields) if fields else None
    if match := re.fullmatch(
        r"struct\((.*)\)", text, re.DOTALL | re.IGNORECASE
    ):  # as SQL has it elsewhere: all may be null
        fields = tuple((name, kind.or_null()) for name, kind in _parse_fields(match[1], SQL_FIELD, depth + 1, names))
        return Type("struct", nullable, fields=fields) if fields else None
    return None


FIELD = re.compile(r'\s*(?:"((?:[^"\0]|"")+)"|([^\W\d]\w*))\s*:(.+)', re.DOTALL)
SQL_FIELD = re.compile(r'\s*(?:"((?:[^"\0]|"")+)"|([^\W\d]\w*))\s+(.+)', re.DOTALL)
PART = re.compile(r'"(?:[^"]|"")*"|[\[(]|[\])]|,')


def _parse_fields(
    text: str, form: re.Pattern[str], inside: int, names: Mapping[str, str]
) -> tuple[tuple[str, Type], ...]:
    """Return the fields that a struct's brackets hold, none if they are not well written."""
    ends, depth = [], 0
    for found in PART.finditer(text):
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(found[0], 0)
        if found[0] == "," and not depth:
            ends.append(found.start())
    fields: dict[str, Type] = {}
    for start, end in zip([0, *(end + 1 for end in ends)], [*ends, len(text)], strict=True):
        match = form.fullmatch(text, start, end)
        kind = parse_type(match[3], inside, names) if match else None
        name = match[2] or match[1].replace('""', '"') if match else ""
        if kind is None or name in fields:
            return ()
        fields[name] = kind
    return tuple(fields.items())


def is_pattern(name: str) -> bool:
    """Return whether polars reads a column's name as a pattern, of all columns or of those that match.

    >>> is_pattern("*"), is_pattern("^x.$"), is_pattern("^x"), is_pattern("a*")
    (True, True, False, False)
    """
    return name == "*" or (name.startswith("^") and name.endswith("$"))


OWN = re.compile(
    r"\$(present|order|moment|sequence|rows|side|at|all|records|arrival|from|until|round)"
    r"|\$[a-z]*[0-9]+(\..*)?",
    re.DOTALL,
)
"""The names of the plan's own columns, which no column of a pipeline may have."""
OWN_HINT = "rename it: a plan has columns of its own under such names, as `$at`, `$from` and `$1`"

NAMELESS = "give the column a name, or leave it out of the columns declared under the input's `columns`"


def no_column(name: str) -> str | None:
    """Return the hint for a name that a column can't have; None if it can.

    >>> no_column("$1") == OWN_HINT, no_column("*") == PATTERN_HINT, no_column("") == NAMELESS, no_column("$os")
    (True, True, True, None)
    """
    if not name:
        return NAMELESS
    return PATTERN_HINT if is_pattern(name) else OWN_HINT if OWN.fullmatch(name) else None


def is_field_name(name: str) -> bool:
    """Return whether a struct's field can have this name: polars can't export a name with a NUL, and renames an empty one."""
    return bool(name) and "\0" not in name


def _field_name(name: str) -> str:
    """Return a field's name as a type's text has it."""
    return name if re.fullmatch(r"[^\W\d]\w*", name) else '"' + name.replace('"', '""') + '"'


ARRIVAL = "$arrival"
"""The name of the time column of rows whose time is the time of the run that reads them: no column of a file has it."""
ARRIVAL_TIME = Type("datetime", unit="us")
"""Its type: microseconds of UTC."""


RowOrder = tuple[tuple[str, bool, bool], ...]
"""The columns of an order, the first decides first: each with whether it descends, and whether its nulls are last."""


def in_order(rows: Rows, order: RowOrder, rest: Iterable[str] = ()) -> Rows:
    """Return rows in an order, ties by the columns `rest`, where null is the largest value; equal rows stay as they are."""
    keys = (*order, *((name, False, True) for name in rest if all(name != key[0] for key in order)))
    if not keys:
        return rows
    by, descending = [key[0] for key in keys], [key[1] for key in keys]
    return rows.sort(by, descending=descending, nulls_last=[key[2] for key in keys], maintain_order=True)


def parse_order(tree: object) -> RowOrder:
    """Return the order in a JSON value; an empty one for any other value."""
    found: list[tuple[str, bool, bool]] = []
    for key in tree if isinstance(tree, list) else ():
        match key:
            case [str(name), bool(descending), bool(last)]:
                found.append((name, descending, last))
            case _:
                return ()
    return tuple(found)


def order_among(order: RowOrder, columns: Iterable[str]) -> RowOrder:
    """Return an order if all of its columns are among these, else none."""
    return order if {name for name, _, _ in order} <= {*columns} else ()


@dataclass(frozen=True)
class ColumnScope:
    """The columns that an expression may name. `qualified` maps `("up", "manager")` to the column's own name."""

    columns: Schema
    qualified: dict[tuple[str, str], str] = field(default_factory=dict)

    def name(self, written: str, span: Span, quoted: bool = False) -> str:
        """Return the column of this name: as written, else ignoring case if only one matches. Else raises SpecError."""
        if written in self.columns:
            return written
        same = [column for column in self.columns if column.lower() == written.lower()]
        if len(same) > 1:
            hint = "write it as it is spelt: " + ", ".join(f'"{column}"' for column in same)
            raise SpecError(f"`{written}` may be any of {len(same)} columns", span=span, hint=hint)
        if not same:
            raise _unknown(written, list(self.columns), span, quoted=quoted)
        return same[0]

    def qualified_name(self, qualifier: str, written: str, span: Span) -> str:
        """Return the column of this qualifier and name, ignoring the case of both if only one matches. Else raises SpecError."""
        pairs = [pair for pair in self.qualified if pair[1].lower() == written.lower()]
        if (qualifier, written) in pairs:
            return self.qualified[qualifier, written]
        same = [pair for pair in pairs if pair[0].lower() == qualifier.lower()]
        if len(same) != 1:
            raise _unknown(f"{qualifier}.{written}", sorted(".".join(pair) for pair in self.qualified), span)
        return self.qualified[same[0]]


def _unknown(name: str, known: list[str], span: Span, *, quoted: bool = False) -> SpecError:
    """Return the error for a name that isn't in scope; a name in double quotes may have been meant as text."""
    lowered = {each.lower(): each for each in known}
    meant = lowered.get(did_you_mean(name.lower(), lowered) or "")
    listed = f"(in scope: {', '.join(sorted(known)) or 'nothing'})"
    hint = f"did you mean `{meant}`? {listed}" if meant else listed.strip("()")
    if quoted and not meant:
        hint = f"text goes in single quotes: '{name}' {listed}"
    return UnknownColumn(f"no column is named `{name}`", name, span=span, hint=hint)


def fresh(name: str, taken: Container[str]) -> str:
    """Return the name, with a number after it if it is taken."""
    at, found = 2, name
    while found in taken:
        found, at = f"{name}#{at}", at + 1
    return found


def renamed(names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return a new name for each of these names: all different, and none of them taken."""
    given: dict[str, str] = {}
    used = set(taken)
    for name in names:
        given[name] = fresh(name, used)
        used.add(given[name])
    return given


UTC = "UTC"
_zone: ContextVar[str] = ContextVar("zone", default=UTC)


@contextmanager
def in_zone(zone: str) -> Iterator[None]:
    """Check the expressions that are read within the block as in a pipeline with this zone."""
    before = _zone.set(zone)
    try:
        yield
    finally:
        _zone.reset(before)


def current_zone() -> str:
    """Return the zone of the pipeline whose expressions are being read."""
    return _zone.get()


def localized(kind: Type, zone: str) -> Type:
    """Return a type with `zone` in the place of UTC, also in its lists and structs.

    >>> str(localized(parse_type("list[datetime[us, UTC]]"), "Asia/Tokyo"))
    'list[datetime[us, Asia/Tokyo]]'
    """
    return _moved(kind, UTC, zone)


def in_utc(kind: Type) -> Type:
    """Return a type with UTC in the place of any zone, also in its lists and structs."""
    return _moved(kind, None, UTC)


def _moved(kind: Type, before: str | None, zone: str) -> Type:
    if kind.zone is not None and before in {None, kind.zone}:
        return replace(kind, zone=zone)
    inner = None if kind.inner is None else _moved(kind.inner, before, zone)
    return replace(kind, inner=inner, fields=tuple((name, _moved(each, before, zone)) for name, each in kind.fields))
