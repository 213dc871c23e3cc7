"""The years of dates and timestamps: 1 to 9999, as in SQL, in Python and in texts.

polars computes beyond them, and aborts the process at the end of its calendar. So no other year is let in: expressions
fail on the row, files are refused, and columns that become lanes are checked as a whole.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from ddcli.expressions.nanoseconds import EPOCH
from ddcli.expressions.types import from_polars

if TYPE_CHECKING:
    import polars as pl

    from ddcli.expressions.types import Type

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, counted from 1970-01-01."""
RANGE = "dates and timestamps lie in the years 1 to 9999"


def limits(type_: Type) -> tuple[int, int]:
    """Return the first and the last physical value of a date or timestamp.

    >>> from ddcli.expressions.types import Type
    >>> limits(Type("date"))
    (-719162, 2932896)
    """
    if type_.kind == "date":
        return FIRST_DAY, LAST_DAY
    per_day = 86_400 * type_.per_second
    # Nanoseconds reach from 1677 to 2262 only.
    return max(FIRST_DAY * per_day, -(2**63)), min((LAST_DAY + 1) * per_day, 2**63) - 1


def within(moment: dt.datetime, type_: Type) -> bool:
    """Return whether a type has a timestamp; without a zone it is one of UTC.

    >>> from ddcli.expressions.types import Type
    >>> [within(dt.datetime(year, 1, 1, tzinfo=dt.UTC), Type("datetime", unit="ns")) for year in (1677, 1678, 2262, 2263)]
    [False, True, True, False]
    """
    first, last = limits(type_)
    return first <= counted((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)) - EPOCH, type_) <= last


def counted(length: dt.timedelta, type_: Type) -> int:
    """Return a length of time in the type's units; smaller parts are cut.

    >>> from ddcli.expressions.types import Type
    >>> counted(dt.timedelta(seconds=1.5), Type("duration", unit="ns"))
    1500000000
    """
    return length // dt.timedelta(microseconds=1) * type_.per_second // 10**6


def outside(physical: pl.Expr, type_: Type) -> pl.Expr:
    """Return the mask of physical values of a date or timestamp that are outside of the years of the type."""
    first, last = limits(type_)
    return (physical < first) | (physical > last)


def leaves_years(series: pl.Series) -> bool:
    """Return whether a column has a date or timestamp outside of these years, in its zone or in UTC."""
    type_ = _type_of(series)
    if type_ is None or _leave(series, type_):
        return type_ is not None
    # Nanoseconds are near neither end, and polars has no local time at theirs.
    local = type_.zone not in (None, "UTC") and type_.unit != "ns"
    return local and _leave(series.dt.replace_time_zone(None), type_)


def year_of(series: pl.Series) -> int:
    """Return the year of the one date or timestamp in a column, also outside of these years, for a message.

    >>> import polars as pl
    >>> [year_of(pl.Series([days], dtype=pl.Int32).cast(pl.Date)) for days in (FIRST_DAY - 1, 0, LAST_DAY + 1)]
    [0, 1970, 10000]
    """
    type_, value = _type_of(series), int(series.to_physical().item())
    assert type_ is not None
    days = value if type_.kind == "date" else value // (86_400 * type_.per_second)
    # The calendar repeats every 400 years.
    cycles, rest = divmod(days - FIRST_DAY, 146_097)
    return 400 * cycles + dt.date.fromordinal(rest + 1).year


def _type_of(series: pl.Series) -> Type | None:
    if not series.dtype.is_temporal():
        return None
    found = from_polars(series.dtype, nullable=True)
    return found if found is not None and found.kind in ("date", "datetime") else None


def _leave(series: pl.Series, type_: Type) -> bool:
    first, last = limits(type_)
    physical = series.to_physical()
    least, most = physical.min(), physical.max()
    return least is not None and bool(least < first or most > last)  # type: ignore[operator]
