"""The columns that two sides have in common, the type in which each is compared, and its settings, such as `amount=0.01`, `amount=0.1%`, `at=5s`."""

from __future__ import annotations

import re
from dataclasses import field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Literal

import polars as pl

from ddcli.dataclass import frozen
from ddcli.errors import UsageError, suggestion
from ddcli.expressions.types import UNITS, from_polars
from ddcli.store.tables.footers import Unfit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}
DURATION = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(NANOSECONDS)})")
TOLERANCES = "write it as amount=0.01, amount=0.1%, or, of a time, at=5s (ns, us, ms, s, m, h, d)"


@frozen
class Tolerance:
    """The largest distance at which two values of a column count as equal: `limit`, inclusive.

    `limit` is a number; a share of the larger absolute value (`relative`); or nanoseconds (`lasting`).
    """

    limit: Decimal
    relative: bool = False
    lasting: bool = False


@frozen
class MaxChanged:
    """The most rows that may differ in a comparison that passes: a number, or a percentage of A's rows."""

    limit: Decimal
    percent: bool = False

    def allows(self, changed: int, rows: int) -> bool:
        """Return whether this number of changed rows is allowed if A has `rows`."""
        return changed * 100 <= self.limit * rows if self.percent else changed <= self.limit

    def __str__(self) -> str:
        return f"{self.limit}%" if self.percent else str(self.limit)


@frozen
class Settings:
    """The settings of a comparison. Without a `key`, whole records are compared."""

    key: tuple[str, ...] | None = None
    ignore: frozenset[str] = frozenset()
    ignore_types: bool = False
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    max_changed: MaxChanged | None = None

    def __post_init__(self) -> None:
        if self.tolerances and self.key is None:
            hint = "name the columns that identify a row, as in `--key id`"
            raise UsageError("a tolerance needs a key: without one, no two rows belong together", hint=hint)
        for name in self.key or ():
            if name in self.ignore or name in self.tolerances:
                what = "ignored" if name in self.ignore else "given a tolerance"
                raise UsageError(f"the column '{name}' is in the key, and can't be {what}")

    def check(self, columns: Sequence[str]) -> None:
        """Refuse names of columns that neither side has."""
        for name in (*(self.key or ()), *sorted(self.ignore), *self.tolerances):
            if name not in columns:
                hint = suggestion(name, columns, f"the columns are: {', '.join(columns)}")
                raise UsageError(f"neither side has a column '{name}'", hint=hint)


def parse_tolerances(texts: Iterable[str]) -> dict[str, Tolerance]:
    """Parse tolerances and return them by column.

    >>> parse_tolerances(["amount=0.1%", "at=1.5s"])["at"].limit
    Decimal('1500000000.0')
    """
    found = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        tolerance = _tolerance(value.strip()) if name else None
        if tolerance is None:
            raise UsageError(f"'{text}' is not a tolerance", hint=TOLERANCES)
        found[name] = tolerance
    return found


def _tolerance(text: str) -> Tolerance | None:
    if match := DURATION.fullmatch(text):
        return Tolerance(Decimal(match[1]) * NANOSECONDS[match[2]], lasting=True)
    limit = _number(text.removesuffix("%"))
    if limit is None:
        return None
    return Tolerance(limit / 100, relative=True) if text.endswith("%") else Tolerance(limit)


def parse_max_changed(text: str) -> MaxChanged:
    """Parse a bound on the number of changed rows.

    >>> parse_max_changed("0.5%").allows(5, 1000)
    True
    """
    limit = _number(text.strip().removesuffix("%"))
    percent = text.strip().endswith("%")
    if limit is None or not (percent or limit == int(limit)):
        raise UsageError(f"'{text}' is not a number of rows", hint="write it as 100, or as 0.5% of A's rows")
    return MaxChanged(limit, percent)


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and number >= 0 else None


if TYPE_CHECKING:
    Columns = Mapping[str, pl.DataType | Unfit]

WIDEST = 38
"""The most digits of a decimal."""
KEY_TYPES = "its values can't be compared: give both sides a type for it that can, or leave it out of the key"


@frozen
class ColumnDifference:
    """A column whose type differs (`type`), or that one side alone has (`only_a`, `only_b`); `note` states how its values were compared."""

    column: str
    change: Literal["type", "only_a", "only_b"]
    a: str | None
    b: str | None
    note: str


@frozen
class Compared:
    """The compared columns, the key first, then in A's order, with the types in which they are compared.

    `a` and `b` are the expressions for these columns of each side's rows, in these types.
    """

    types: dict[str, pl.DataType]
    key: tuple[str, ...]
    a: list[pl.Expr]
    b: list[pl.Expr]
    differences: tuple[ColumnDifference, ...]

    @property
    def names(self) -> list[str]:
        """All compared columns."""
        return list(self.types)

    @property
    def values(self) -> list[str]:
        """The compared columns beside the key."""
        return [name for name in self.types if name not in self.key]


def compare_columns(a: Columns, b: Columns, settings: Settings) -> Compared:
    """Return the columns of two sides that are compared. Raises UsageError for a setting whose column neither side has."""
    settings.check([*dict.fromkeys([*a, *b])])
    key = settings.key or ()
    for name in key:
        if name not in a or name not in b:
            raise UsageError(f"the key's column '{name}' is only on one side, {'A' if name in a else 'B'}")
    types: dict[str, pl.DataType] = {}
    differences = []
    for name in [*key, *(name for name in a if name not in key)]:
        if name in settings.ignore:
            continue
        if name not in b:
            differences.append(ColumnDifference(name, "only_a", type_name(a[name]), None, "not compared"))
            continue
        common = common_type(a[name], b[name])
        if common is not None:
            types[name] = common
        elif name in key:
            raise UsageError(
                f"the key's column '{name}' is {type_name(a[name])} in A and {type_name(b[name])} in B: {KEY_TYPES}"
            )
        if common is None or (a[name] != b[name] and _is_reported(a[name], b[name])):
            note = "not compared" if common is None else f"compared as {type_name(common)}"
            differences.append(ColumnDifference(name, "type", type_name(a[name]), type_name(b[name]), note))
    differences += [
        ColumnDifference(name, "only_b", None, type_name(b[name]), "not compared")
        for name in b
        if name not in a and name not in settings.ignore
    ]
    if not types:
        raise UsageError(
            "the sides have no common column that can be compared",
            hint=f"A has {', '.join(a)}; B has {', '.join(b)}",
        )
    left, right = ([_converted(name, side[name], kind) for name, kind in types.items()] for side in (a, b))
    return Compared(types, key, left, right, tuple(differences))


def type_name(dtype: pl.DataType | Unfit) -> str:
    """Return a type as it is written in pipeline files, or a type that records can't have as polars writes it."""
    if isinstance(dtype, Unfit):
        return str(dtype)
    kind = from_polars(dtype, nullable=False)
    return str(kind) if kind else str(dtype)


def _is_reported(a: pl.DataType | Unfit, b: pl.DataType | Unfit) -> bool:
    """Return whether a difference of types is reported: one of dictionaries and plain text isn't, nor a column of nulls alone."""
    return type_name(a) != type_name(b) and pl.Null not in {a, b}


def common_type(a: pl.DataType | Unfit, b: pl.DataType | Unfit) -> pl.DataType | None:
    """Return the type in which values of two types are compared, None if they can't be.

    Integers of any size are exact, also against decimals; against floats, they and decimals are floats. Times are compared
    in the finer unit, and as moments if one has a zone (the other is taken to be in UTC). Against text, other values are compared
    as text. Columns that can't be read are not compared.
    """
    if isinstance(a, Unfit) or isinstance(b, Unfit):
        return None
    if a == b:
        return pl.String() if isinstance(a, pl.Categorical | pl.Enum) else a
    for one, other in ((a, b), (b, a)):
        if one == pl.Null:
            return common_type(other, other)
        if isinstance(one, pl.String | pl.Categorical | pl.Enum):
            return None if other.is_nested() or other in {pl.Binary, pl.Object} else pl.String()
    if a.is_numeric() and b.is_numeric():
        return _common_number(a, b)
    if isinstance(a, pl.Duration) and isinstance(b, pl.Duration):
        return pl.Duration(_finer(a, b))
    if isinstance(a, pl.Datetime | pl.Date) and isinstance(b, pl.Datetime | pl.Date):
        zoned = any(isinstance(side, pl.Datetime) and side.time_zone for side in (a, b))
        return pl.Datetime(_finer(a, b), "UTC" if zoned else None)
    return None


def _common_number(a: pl.DataType, b: pl.DataType) -> pl.DataType | None:
    if a.is_float() or b.is_float():
        return pl.Float64()
    if a.is_decimal() or b.is_decimal():
        return pl.Decimal(WIDEST, max(side.scale for side in (a, b) if isinstance(side, pl.Decimal)))
    wide = {pl.UInt64, pl.Int128, pl.UInt128} & {a, b}
    return pl.Int128() if wide else pl.Int64()


def _finer(*sides: pl.DataType) -> Literal["ns", "us", "ms"]:
    units = [side.time_unit for side in sides if isinstance(side, pl.Datetime | pl.Duration)]
    return max(units, key=UNITS.index)


def _converted(name: str, have: pl.DataType | Unfit, wanted: pl.DataType) -> pl.Expr:
    """Return a column of a side in the type in which it is compared. Collecting it fails if a value doesn't fit."""
    column = pl.col(name)
    if have == wanted:
        return column
    if isinstance(wanted, pl.Datetime) and wanted.time_zone:
        if not isinstance(have, pl.Datetime):
            column = column.cast(pl.Datetime(wanted.time_unit))
        zoned = isinstance(have, pl.Datetime) and have.time_zone
        column = column.dt.convert_time_zone("UTC") if zoned else column.dt.replace_time_zone("UTC")
    return column.cast(wanted)
