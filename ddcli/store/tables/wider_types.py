"""The types of files that are accepted for a declared one: those whose every value the declared type holds exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.expressions.moments import leaves_years
from ddcli.expressions.types import MAX_PRECISION, SIGNED, UNITS, UNSIGNED, Type

if TYPE_CHECKING:
    import polars as pl

DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of integers, by their bits."""
EXACT = {"float32": 24, "float64": 53}
"""Bits of the integers that a float type holds exactly."""


def widens(found: Type, wanted: Type) -> bool:
    """Return whether every value of `found` is one of `wanted`, nulls aside.

    >>> from ddcli.expressions.types import parse_type
    >>> widens(parse_type("int32"), parse_type("int64")), widens(parse_type("int64"), parse_type("float64"))
    (True, False)
    """
    if found.required() == wanted.required():
        return True
    if found.kind == "null":
        return wanted.nullable
    if found.is_integer:
        return _integer_widens(found.kind, wanted)
    if found.kind == "float32":
        return wanted.kind == "float64"
    if found.kind == "decimal" and wanted.kind == "decimal":
        return wanted.scale >= found.scale and wanted.precision - wanted.scale >= found.precision - found.scale
    if found.kind == "date":
        return wanted.kind == "datetime" and wanted.zone is None
    if found.kind in ("datetime", "duration") and wanted.kind == found.kind:
        assert found.unit is not None
        assert wanted.unit is not None
        return bool(found.zone) == bool(wanted.zone) and UNITS.index(found.unit) <= UNITS.index(wanted.unit)
    if found.kind == "list" and wanted.kind == "list":
        assert found.inner is not None
        assert wanted.inner is not None
        return widens(found.inner, wanted.inner.or_null())
    if found.kind == "struct" and wanted.kind == "struct":
        pairs = zip(found.fields, wanted.fields, strict=False)
        same = all(name == other and widens(one, two.or_null()) for (name, one), (other, two) in pairs)
        return same and found.to_polars() == wanted.to_polars()
    return False


def wider(known: Type, found: Type) -> Type:
    """Return the type of a column that has values of another type beside its known one: a type of the same kind that holds both, else the known one.

    >>> from ddcli.expressions.types import parse_type
    >>> print(wider(parse_type("int32?"), parse_type("int64")), wider(parse_type("decimal(10, 2)"), parse_type("decimal(9, 4)")))
    int64? decimal(12, 4)
    >>> print(wider(parse_type("int64"), parse_type("int32")), wider(parse_type("int64"), parse_type("string")))
    int64 int64
    """
    if known.kind == "null":
        return found.or_null()
    if known.kind == found.kind == "decimal":
        scale = max(known.scale, found.scale)
        digits = scale + max(known.precision - known.scale, found.precision - found.scale)
        return Type("decimal", known.nullable, precision=digits, scale=scale) if digits <= MAX_PRECISION else known
    alike = known.kind == found.kind or (known.is_integer and found.is_integer) or (known.is_float and found.is_float)
    return found.or_null(known.nullable) if alike and widens(known, found) and not widens(found, known) else known


def _integer_widens(found: str, wanted: Type) -> bool:
    bits = int(found.lstrip("uint"))
    signed = found in SIGNED
    if wanted.kind in SIGNED:
        return int(wanted.kind.removeprefix("int")) >= (bits if signed else bits + 1)
    if wanted.kind in UNSIGNED:
        return not signed and int(wanted.kind.removeprefix("uint")) >= bits
    if wanted.is_float:
        return EXACT[wanted.kind] >= bits
    return wanted.kind == "decimal" and wanted.precision - wanted.scale >= DIGITS[bits]


def more_digits(kind: Type, *, rounds: bool) -> str | None:
    """Return the pattern of texts with digits that a type lacks, of a date a time but midnight; None for other types, and for decimals if they are rounded."""
    if kind.kind == "date":
        return "[0-9][ T].*[1-9]"
    digits = {"datetime": kind.second_digits, "decimal": None if rounds else kind.scale}.get(kind.kind)
    return None if digits is None else rf"\.[0-9]{{{digits}}}[0-9]*[1-9]"


def widen(series: pl.Series, wanted: Type) -> pl.Series:
    """Return the series with the dtype of `wanted`, which its own type `widens` to.

    Also takes uint64 for int64, as times and diffs have it. Raises OverflowError where a value is out of range: there, and
    where a moment is too far off for a finer unit.
    """
    from polars.exceptions import InvalidOperationError

    dtype = wanted.to_polars()
    if leaves_years(series) or _leaves_digits(series):
        raise OverflowError(f"a value is out of the range of {wanted}")
    if series.dtype == dtype:
        return series
    try:
        result = series.cast(dtype, strict=True)
    except InvalidOperationError:
        raise OverflowError(f"a value is out of the range of {wanted}") from None
    if wanted.kind in ("datetime", "duration") and not series.equals(result.cast(series.dtype), null_equal=True):
        raise OverflowError(f"a value is out of the range of {wanted}")
    return result


def _leaves_digits(series: pl.Series) -> bool:
    """Return whether a decimal has more digits than its type: files may hold such, and polars reads them."""
    import polars as pl

    if isinstance(series.dtype, pl.Decimal):
        limit, numbers = 10**series.dtype.precision, series.to_physical()
        least, most = numbers.min(), numbers.max()
        return least is not None and bool(least <= -limit or most >= limit)
    if isinstance(series.dtype, pl.List):
        return "Decimal" in str(series.dtype) and _leaves_digits(series.explode())
    return isinstance(series.dtype, pl.Struct) and any(
        _leaves_digits(series.struct.field(field.name)) for field in series.dtype.fields
    )


def first_misfit(series: pl.Series, wanted: Type) -> int | None:
    """Return the first row whose value is out of the range of a type; None where all fit."""
    for row in range(len(series)):
        try:
            widen(series[row : row + 1], wanted)
        except OverflowError:
            return row
    return None
