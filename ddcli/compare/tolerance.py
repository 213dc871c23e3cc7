"""The test whether two unequal values are within the tolerance."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Literal

import polars as pl

from ddcli.compare.columns import type_name
from ddcli.dataclass import frozen
from ddcli.errors import UsageError
from ddcli.screen import shell

if TYPE_CHECKING:
    from ddcli.compare.settings import Tolerance

PER_UNIT = {"ns": 1, "us": 10**3, "ms": 10**6}
DAY = 86_400 * 10**9


@frozen
class Bound:
    """A tolerance for values of a type, which are subtracted exactly, as in memory, or as floats; a `share` is of the larger value."""

    how: Literal["exact", "float", "share"]
    limit: Decimal


def bound(name: str, dtype: pl.DataType, tolerance: Tolerance) -> Bound:
    """Return the bound for a column. Raises UsageError for a tolerance that doesn't fit the column's type.

    Integers, decimals and times are subtracted exactly; floats, and all values compared with a share, as floats.
    """
    timed = dtype.is_temporal()
    if not (timed or dtype.is_numeric()):
        raise UsageError(f"'{name}' is {type_name(dtype)}, and can't have a tolerance: only numbers and times can")
    if timed != tolerance.lasting:
        hint = (
            f"write it as `--tolerance {shell(f'{name}=5s')}`"
            if timed
            else f"write it as `--tolerance {shell(f'{name}=0.01')}` or `{shell(f'{name}=1%')}`"
        )
        raise UsageError(
            f"'{name}' is {type_name(dtype)}: its tolerance must be {'a duration' if timed else 'a number or a share'}",
            hint=hint,
        )
    if tolerance.relative:
        return Bound("share", tolerance.limit)
    if dtype.is_float():
        return Bound("float", tolerance.limit)
    if isinstance(dtype, pl.Decimal):
        return Bound("exact", tolerance.limit.scaleb(dtype.scale).to_integral_value(ROUND_FLOOR))
    unit = getattr(dtype, "time_unit", None)
    size = DAY if dtype == pl.Date else PER_UNIT[unit] if unit else 1
    return Bound("exact", (tolerance.limit / size).to_integral_value(ROUND_FLOOR))


def is_within(a: pl.Expr, b: pl.Expr, most: Bound) -> pl.Expr:
    """Return whether values are no further apart than a bound; null, infinities and NaN are near no value."""
    if most.how == "exact":
        apart = a.to_physical().cast(pl.Int128) - b.to_physical().cast(pl.Int128)
        return (apart.abs() <= pl.lit(int(most.limit), pl.Int128)).fill_null(value=False)
    a, b = a.cast(pl.Float64), b.cast(pl.Float64)
    limit = pl.lit(float(most.limit))
    if most.how == "share":
        limit *= pl.max_horizontal(a.abs(), b.abs())
    return (a.is_finite() & b.is_finite() & ((a - b).abs() <= limit)).fill_null(value=False)
