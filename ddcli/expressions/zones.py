"""Time zones: the zone of a pipeline, and the instants that clocks of a zone show.

A type of timestamps with a zone has instants, and the clocks on which its functions read them. UTC in a type stands for no zone of its own: a pipeline
with a zone (`timezone: Europe/Berlin`) reads those types as of its zone (see `localized`). Expressions are checked within `in_zone`, and hold the zone
in their types from then on.

A clock time that a change of the clocks skips is later by what was skipped; of one that occurs twice the second is meant, as in DuckDB.
"""

from __future__ import annotations

import datetime as dt
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from ddcli.expressions.types import Type

UTC = "UTC"
LONGEST_SKIP = 25
"""Hours, more than any change of clocks has skipped: an island has skipped a day."""
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


def localized(kind: Type, zone: str) -> Type:
    """Return a type with `zone` in the place of UTC, also in its lists and structs.

    >>> from ddcli.expressions.types import parse_type
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
