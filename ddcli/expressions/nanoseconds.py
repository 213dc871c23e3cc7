"""Timestamps, times of day and lengths of time with nanoseconds, which Python's own classes cut.

A value with digits beyond its microseconds has one of these classes; every other value has Python's own. All their digits count in
comparisons, hashes and text. Arithmetic and `replace` are Python's: their results end at microseconds.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import total_ordering
from typing import TYPE_CHECKING, Any, ClassVar, Self

if TYPE_CHECKING:
    import polars as pl

    from ddcli.expressions.types import Type

PER_MICROSECOND = 1000
MICROSECOND = dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FRACTION = re.compile(r"[.,](\d+)")
"""The digits of a second behind its point, in a time of day, a timestamp or a length of time."""


@total_ordering
class Fine:
    """A value of `plain` plus `nanosecond` nanoseconds, 1 to 999."""

    plain_class: ClassVar[type]
    nanosecond = 0

    def plain(self) -> Any:
        """Return the value without its nanoseconds, as Python's own."""
        raise NotImplementedError

    def _parts(self, other: object) -> tuple[tuple[Any, int], tuple[Any, int]] | None:
        if not isinstance(other, self.plain_class):
            return None
        theirs = (other.plain(), other.nanosecond) if isinstance(other, Fine) else (other, 0)
        return (self.plain(), self.nanosecond), theirs

    def __eq__(self, other: object) -> bool:
        parts = self._parts(other)
        return NotImplemented if parts is None else parts[0] == parts[1]

    def __ne__(self, other: object) -> bool:  # Python's own has one, which ignores nanoseconds
        parts = self._parts(other)
        return NotImplemented if parts is None else parts[0] != parts[1]

    def __lt__(self, other: object) -> bool:
        parts = self._parts(other)
        return NotImplemented if parts is None else parts[0] < parts[1]

    def __hash__(self) -> int:
        return hash((self.plain(), self.nanosecond))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __reduce_ex__(self, _protocol: object) -> tuple[Any, ...]:
        return finer, (self.plain(), self.nanosecond)


class FineDatetime(Fine, dt.datetime):
    """A timestamp with nanoseconds."""

    plain_class = dt.datetime

    @classmethod
    def of(cls, value: dt.datetime) -> Self:
        """Return a timestamp of this class, without nanoseconds yet."""
        clock = value.hour, value.minute, value.second, value.microsecond
        return cls(value.year, value.month, value.day, *clock, value.tzinfo, fold=value.fold)

    def plain(self) -> dt.datetime:
        """Return the timestamp without its nanoseconds."""
        return dt.datetime.combine(self.date(), self.timetz())

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        """Return all digits, and the offset behind them, for any `timespec`."""
        text = super().isoformat(sep, "microseconds")
        end = len("2024-01-01T00:00:00.000000")
        return f"{text[:end]}{self.nanosecond:03d}{text[end:]}"

    def __str__(self) -> str:
        return self.isoformat(" ")


class FineTime(Fine, dt.time):
    """A time of day with nanoseconds."""

    plain_class = dt.time

    @classmethod
    def of(cls, value: dt.time) -> Self:
        """Return a time of this class, without nanoseconds yet."""
        return cls(value.hour, value.minute, value.second, value.microsecond)

    def plain(self) -> dt.time:
        """Return the time without its nanoseconds."""
        return dt.time(self.hour, self.minute, self.second, self.microsecond)

    def isoformat(self, timespec: str = "auto") -> str:
        """Return all digits, for any `timespec`."""
        return f"{self.plain().isoformat('microseconds')}{self.nanosecond:03d}"

    def __str__(self) -> str:
        return self.isoformat()


class FineDuration(Fine, dt.timedelta):
    """A length of time with nanoseconds, which are added to it also if it is negative, like Python's microseconds."""

    plain_class = dt.timedelta

    @classmethod
    def of(cls, value: dt.timedelta) -> Self:
        """Return a length of this class, without nanoseconds yet."""
        return cls(value.days, value.seconds, value.microseconds)

    def plain(self) -> dt.timedelta:
        """Return the length without its nanoseconds."""
        return dt.timedelta(self.days, self.seconds, self.microseconds)

    def __str__(self) -> str:
        digits = "" if self.microseconds else ".000000"
        return f"{self.plain()}{digits}{self.nanosecond:03d}"


CLASSES: dict[type, type[FineDatetime | FineTime | FineDuration]] = {
    fine.plain_class: fine for fine in (FineDatetime, FineTime, FineDuration)
}


def finer(value: Any, nanosecond: int) -> Any:
    """Return one of Python's timestamps, times or lengths with these nanoseconds added.

    >>> str(finer(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), 7)), str(finer(dt.timedelta(days=-1), 999))
    ('2024-01-01 00:00:00.000000007+00:00', '-1 day, 0:00:00.000000999')
    """
    if not nanosecond:
        return value
    found = CLASSES[type(value)].of(value)
    found.nanosecond = nanosecond
    return found


def fraction_of(text: str) -> str:
    """Return the digits of a second behind its point in a text.

    >>> fraction_of("06:30:00.125"), fraction_of("06:30:00,5"), fraction_of("06:30")
    ('125', '5', '')
    """
    found = FRACTION.search(text)
    return found[1] if found else ""


def beyond_microseconds(digits: str) -> int:
    """Return the nanoseconds of a second's fraction beyond its microseconds, which Python cuts.

    >>> beyond_microseconds("12345678"), beyond_microseconds("5")
    (780, 0)
    """
    return int(digits[6:9].ljust(3, "0"))


def counted(value: Any) -> int:
    """Return a value in nanoseconds, a timestamp's since 1970 in UTC and a time's since midnight.

    >>> counted(finer(dt.time(0, 0, 1), 7))
    1000000007
    """
    nanosecond = value.nanosecond if isinstance(value, Fine) else 0
    plain = value.plain() if isinstance(value, Fine) else value
    if isinstance(plain, dt.datetime):
        plain = (plain if plain.tzinfo else plain.replace(tzinfo=dt.UTC)) - EPOCH
    if isinstance(plain, dt.time):
        plain = dt.datetime.combine(EPOCH, plain) - EPOCH.replace(tzinfo=None)
    microseconds: int = plain // MICROSECOND
    return microseconds * PER_MICROSECOND + nanosecond


def is_fine(column: Type) -> bool:
    """Return whether values of a type, or parts of them, may have nanoseconds."""
    if column.fields:
        return any(is_fine(kind) for _, kind in column.fields)
    return is_fine(column.inner) if column.inner else column.kind == "time" or column.unit == "ns"


def to_values(series: pl.Series, column: Type) -> list[Any]:
    """Return a column as Python's values, with nanoseconds where Python's own would cut them.

    >>> import polars as pl
    >>> from ddcli.expressions.types import Type
    >>> [str(value) for value in to_values(pl.Series([-1], dtype=pl.Duration("ns")), Type("duration", unit="ns"))]
    ['-1 day, 23:59:59.999999999']
    """
    import polars as pl

    if not is_fine(column):
        return series.to_list()
    if column.inner:
        inner = column.inner
        return [None if each is None else to_values(each, inner) for each in series]
    if column.fields:
        parts = [to_values(series.struct.field(name), kind) for name, kind in column.fields]
        names = [name for name, _ in column.fields]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
        return [None if null else row for null, row in zip(series.is_null().to_list(), rows, strict=True)]
    numbers = series.to_physical().cast(pl.Int64)
    if column.kind == "time":
        plain = series
    else:
        dtype = pl.Datetime("us", column.zone) if column.kind == "datetime" else pl.Duration("us")
        plain = (numbers // PER_MICROSECOND).cast(dtype)
    rest = (numbers % PER_MICROSECOND).fill_null(0)
    return [finer(value, more) for value, more in zip(plain.to_list(), rest.to_list(), strict=True)]
