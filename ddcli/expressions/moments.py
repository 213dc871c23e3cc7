"""Dates and timestamps beyond their arithmetic: time zones, the years that exist, and formats of text.

A type of timestamps with a zone has instants, and the clocks on which its functions read them. A clock time that a change of the clocks skips is later by what was skipped; of one that occurs twice the second is meant, as in DuckDB.

Years are 1 to 9999, as in SQL, in Python and in texts. polars computes beyond them, and aborts the process at the end of its calendar. So no other year is let in: expressions
fail on the row, files are refused, and columns that become lanes are checked as a whole.

Text in a format such as `%d.%m.%Y` becomes text that a cast reads, other text becomes null. The directives work as in `strptime`. A number has the digits that its directive
allows; next to another number it has all of them.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from ddcli.expressions.nanoseconds import EPOCH
from ddcli.expressions.types import UTC, from_polars

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from ddcli.expressions.types import Type


LONGEST_SKIP = 25
"""Hours, more than any change of clocks has skipped: an island has skipped a day."""


@cache
def is_zone(name: str) -> bool:
    """Return whether a text names a time zone.

    >>> is_zone("Europe/Berlin"), is_zone("Europe/Atlantis")
    (True, False)
    """
    import polars as pl

    try:
        pl.Series([0]).cast(pl.Datetime("us", name)).dt.to_string("iso")
        ZoneInfo(name)
    except (pl.exceptions.PolarsError, ValueError, KeyError, OSError):
        return False
    return True


def instant(local: dt.datetime, zone: str) -> dt.datetime:
    """Return the instant at which clocks of a zone show a time.

    >>> shown = [dt.datetime(2024, month, day, 2, 30) for month, day in ((3, 31), (10, 27))]
    >>> [f"{instant(each, 'Europe/Berlin'):%H:%M%z}" for each in shown]
    ['03:30+0200', '02:30+0100']
    """
    first, second = (local.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1))
    # Where a time is skipped, the first has the offset before the change: its instant is shown later.
    twice = (first.utcoffset() or dt.timedelta()) > (second.utcoffset() or dt.timedelta())
    return (second if twice else first).astimezone(dt.UTC).astimezone(ZoneInfo(zone))


def clocks(value: pl.Expr, kind: Type) -> pl.Expr:
    """Return timestamps as the clocks of their type's zone show them, without a zone: a cast of polars would convert to UTC."""
    return value.dt.replace_time_zone(None) if kind.zone else value


def instants(local: pl.Expr, kind: Type, like: pl.Expr | None = None) -> pl.Expr:
    """Return the instants at which the clocks of a type's zone show the times of a column of its unit, without a zone.

    Of a time that occurs twice the one with the offset of the timestamp `like` is meant, if that is given and one has it.
    """
    import polars as pl

    zone, skip = kind.zone, pl.duration(hours=LONGEST_SKIP, time_unit=kind.unit)  # type: ignore[arg-type]

    def shown(times: pl.Expr, which: str) -> pl.Expr:
        return times.dt.replace_time_zone(zone, ambiguous=which, non_existent="null")  # type: ignore[arg-type]

    def offset(times: pl.Expr) -> pl.Expr:
        return times.dt.base_utc_offset() + times.dt.dst_offset()

    found = shown(local, "latest")
    if zone == UTC:
        return found
    if like is not None:
        earlier = shown(local, "earliest")
        found = pl.when(offset(earlier) == offset(like)).then(earlier).otherwise(found)
    return pl.when(found.is_null()).then(shown(local - skip, "latest") + skip).otherwise(found)


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


DIGITS = {
    "Y": (4, 4),
    "y": (2, 2),
    "m": (1, 2),
    "d": (1, 2),
    "H": (1, 2),
    "I": (1, 2),
    "M": (1, 2),
    "S": (1, 2),
    "f": (1, 6),
}
"""The least and the most digits of each directive that is a number."""
MONTHS = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
]  # fmt: skip
WORDS = {
    "b": "|".join(month[:3] for month in MONTHS),
    "B": "|".join(MONTHS),
    "p": "am|pm",
    "z": r"Z|[+-][0-9]{2}(?::?[0-9]{2})?",
}
SAME = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "R": "%H:%M"}
"""The directives that stand for several others."""
PIVOT = 69
"""Years of two digits from this one on are of the 20th century, as POSIX has it."""


class FormatError(ValueError):
    """A format without a date."""


def parts_of(text: str) -> list[tuple[str, str]]:
    """Return a format as pairs of a directive's letter, or nothing, and literal text. Raises FormatError.

    >>> parts_of("%d.%m.%y")
    [('d', ''), ('', '.'), ('m', ''), ('', '.'), ('y', '')]
    """
    for letter, longer in SAME.items():
        text = text.replace(f"%{letter}", longer)
    parts: list[tuple[str, str]] = []
    for match in re.finditer(r"%(.?)|[^%]+", text, re.DOTALL):
        letter = match[1]
        if letter is None or letter == "%":
            parts.append(("", letter or match[0]))
        elif letter in DIGITS or letter in WORDS:
            parts.append((letter, ""))
        else:
            known = " ".join(f"%{each}" for each in (*DIGITS, *WORDS, *SAME, "%"))
            raise FormatError(f"unknown directive '%{letter}' (known: {known})")
    letters = [letter for letter, _ in parts if letter]
    if twice := next((letter for letter in letters if letters.count(letter) > 1), None):
        raise FormatError(f"'%{twice}' occurs twice")
    for several, what in (("Yy", "year"), ("mbB", "month"), ("d", "day")):
        if len(set(several) & set(letters)) != 1:
            named = " or ".join(f"%{each}" for each in several)
            raise FormatError(f"must have one {what}: {named}")
    if ("I" in letters) != ("p" in letters) or {"I", "H"} <= set(letters):
        raise FormatError("must have %I and %p together, or %H")
    return parts


def has_time(text: str) -> bool:
    """Return whether a format has hours, or a part of them."""
    return any(letter and letter in "HIMSfpz" for letter, _ in parts_of(text))


def iso(column: pl.Expr, text: str) -> pl.Expr:
    """Return text in a format converted to ISO 8601; null for other text. The date may not exist: a cast reports that."""
    import polars as pl

    found = column.str.extract_groups(f"^{''.join(_patterns(parts_of(text)))}$")
    letters = [letter for letter, _ in parts_of(text) if letter]
    part = {letter: found.struct.field(letter) for letter in letters}
    two = {letter: part[letter].str.zfill(2) for letter in letters if letter in "mdHMS"}
    if "y" in part:
        year = pl.when(part["y"].cast(pl.Int64) >= PIVOT).then(pl.lit("19")).otherwise(pl.lit("20")) + part["y"]
    else:
        year = part["Y"]
    month = two.get("m")
    if month is None:
        name = part["b" if "b" in part else "B"].str.to_lowercase().str.slice(0, 3)
        month = name.replace({each[:3]: f"{at:02}" for at, each in enumerate(MONTHS, start=1)})
    whole = [year, month, two["d"]]
    date = pl.concat_str(whole, separator="-")
    if not has_time(text):
        return date
    hour = two.get("H", pl.lit("00"))
    if "I" in part:
        twelve = part["I"].cast(pl.Int64)
        half = pl.when(part["p"].str.to_lowercase() == "pm").then(12).otherwise(0)
        hour = (twelve % 12 + half).cast(pl.String).str.zfill(2)
    time = pl.concat_str([hour, two.get("M", pl.lit("00")), two.get("S", pl.lit("00"))], separator=":")
    pieces = [date, pl.lit(" "), time]
    if "f" in part:
        pieces += [pl.lit("."), part["f"]]
    if "z" in part:
        pieces.append(part["z"].str.replace(r"^([+-][0-9]{2}):?([0-9]{2})$", "${1}:${2}"))
    return pl.concat_str(pieces)


def _patterns(parts: list[tuple[str, str]]) -> Iterator[str]:
    for at, (letter, literal) in enumerate(parts):
        if not letter:
            yield "".join(each if each.isalnum() or each in " /,:;_" else rf"\x{{{ord(each):x}}}" for each in literal)
        elif letter == "I":
            yield "(?P<I>1[0-2]|0?[1-9])"
        elif letter in WORDS:
            yield f"(?P<{letter}>(?i:{WORDS[letter]}))"
        else:
            least, most = DIGITS[letter]
            beside = [parts[other][0] for other in (at - 1, at + 1) if 0 <= other < len(parts)]
            if any(each in DIGITS for each in beside) and letter != "f":
                least = most
            yield f"(?P<{letter}>[0-9]{{{least},{most}}})"


TRUNC_UNITS = {
    "year": "1y",
    "quarter": "1q",
    "month": "1mo",
    "week": "1w",
    "day": "1d",
    "hour": "1h",
    "minute": "1m",
    "second": "1s",
}
DIFF_UNITS = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
DIFF_UNITS |= {"day": 86400 * 10**6, "week": 7 * 86400 * 10**6}

MONTH_UNITS = {"month": 1, "quarter": 3, "year": 12}
