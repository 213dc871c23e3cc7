"""The parts of a log that tasks read: all are of one state of the log, the one that the query's plan has found.

Before the log's upper that holds by itself: closed times never change. Rows at later times belong to the state if they are among
the first rows of the listed files, as many as those had then.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
from pyspark.sql.datasource import InputPartition

from ddcli.errors import DdError, EngineError, RewrittenError
from ddcli.sources.change_log import MOST_HELD, ChangeLog
from ddcli.store.files.objects import adopt_settings, settings_in_use
from ddcli.store.formats.base import Updates
from ddcli.store.log.reader import LogReader
from ddcli.store.tables.files import READ_ERRORS
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.tables.listing import Listing

LARGE = 128 << 20
"""Bytes of files that a task reads by default, as Spark's own sources do."""
MANY = 64
"""Tasks that sum up a collection by default, at most: each of them reads all files."""
TRIES = 5
"""The looks of a task for the files that have replaced those it has to read, at most."""
HASHED = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "date", "string", "decimal"}
HASHED |= {"datetime", "duration", "time", "binary"}
"""Kinds whose equal values have equal hashes: floats have two zeros."""


class ChangeInterval(NamedTuple):
    """The updates at or after `lower` (None: all) and not at or after `upper`."""

    lower: Times | None
    upper: Times


class Share(NamedTuple):
    """The records of a collection as of a time (None: after all updates) that fall to the task `at` of `of`."""

    time: Time | None
    at: int = 0
    of: int = 1


class LogPart(InputPartition):
    """The rows of a log that one task reads: of its files, or of all files those records that fall to the task."""

    def __init__(self, log: ChangeLog, wanted: ChangeInterval | Share, listing: Listing, *, closed: bool) -> None:
        self.path, self.diff, self.time = str(log.path), log.diff, tuple(log.time)
        self.listing = listing
        self.schema: LogSchema = log.reader.schema
        self.wanted = wanted
        self.closed = closed
        """True: no later commit changes the rows that are wanted."""
        self.settings = settings_in_use()
        self.versions = versions()

    def open(self) -> ChangeLog:
        """Return the log of the listed files. Raises DdError where one can't be read."""
        log = Updates(self.time, self.schema.columns, diff=self.diff, absent=tuple(self.schema.columns))
        return ChangeLog(Path(self.path), LogReader(self.listing, log, self.schema, MOST_HELD), self.diff, None)

    def is_gone(self) -> bool:
        """Return whether a listed file is gone: its rows were summed up, or the log was written anew."""
        return not all(self.listing.path(file).exists() for file in self.listing.to_read)


def versions() -> tuple[str, str]:
    """Return the versions that plan and tasks must have in common, and the version of the hash that divides a collection."""
    return __version__, pl.__version__


def parts_of_changes(log: ChangeLog, wanted: ChangeInterval, *, closed: bool, count: int | None) -> list[LogPart]:
    """Return the updates of an interval in parts of whole files, of some 128 MB each, or this many parts."""
    files = log.reader.listing.to_read
    size = max(1, sum(file.size for file in files) // count) if count else LARGE
    bins: list[list[InputFile]] = []
    room = 0
    for file in files:
        if room <= 0 and len(bins) < (count or len(files)):
            bins.append([])
            room = size
        bins[-1].append(file)
        room -= file.size
    whole = _pinned(log, closed=closed)
    listings = [replace(whole, new=tuple(group), waiting=()) for group in bins]
    return [LogPart(log, wanted, listing, closed=closed) for listing in listings]


def parts_of_contents(log: ChangeLog, time: Time | None, *, closed: bool, count: int | None) -> list[LogPart]:
    """Return a collection in parts: a record is in the part of its hash."""
    listing = _pinned(log, closed=closed)
    if not any(kind.kind in HASHED for kind in log.columns.values()):
        count = 1
    parts = count or min(MANY, max(1, -(-listing.size // LARGE)))
    return [LogPart(log, Share(time, at, parts), listing, closed=closed) for at in range(parts)]


def _pinned(log: ChangeLog, *, closed: bool) -> Listing:
    """Return the listing of a log's files; if rows may be at times that are open, with the rows that each file has now."""
    listing = replace(log.reader.listing, passed=())
    return listing if closed or log.progress is None else replace(listing, limits=log.reader.row_counts())


def rows_of(part: LogPart, columns: Schema, condition: pl.Expr | None) -> Iterator[pl.DataFrame]:
    """Yield the rows of a part that may meet a condition, with these columns, frame by frame."""
    if part.versions != versions():
        ours, theirs = (f"ddcli {own} with polars {other}" for own, other in (versions(), part.versions))
        raise EngineError(
            f"this executor has {ours}, and the query was planned with {theirs}",
            place=part.path,
            hint="install the same versions everywhere; `dd doctor --spark` shows them",
        )
    adopt_settings(part.settings)
    log = _open(part)
    names = list(columns)
    try:
        yield from _query(part, log, names, condition).collect_batches(chunk_size=1 << 16, maintain_order=False)
    except READ_ERRORS as error:
        if part.is_gone():
            raise _replaced(part) from None
        raise log.refusal(error) from None
    except FileNotFoundError:
        raise _replaced(part) from None


def _open(part: LogPart) -> ChangeLog:
    """Return the log of a part, whose files may have been summed up since: closed times of a collection are in the new ones, too."""
    for _ in range(TRIES):
        try:
            return part.open()
        except (DdError, OSError):
            if not part.is_gone():
                raise
            if not (part.closed and isinstance(part.wanted, Share)):
                raise _replaced(part) from None
        part.listing = ChangeLog.open(part.path, Path("/"), time=part.time, diff=part.diff).reader.listing
    return part.open()


def _query(part: LogPart, log: ChangeLog, names: Sequence[str], condition: pl.Expr | None) -> pl.LazyFrame:
    rows = log.reader.scan()
    if condition is not None:
        rows = rows.filter(condition)
    if isinstance(part.wanted, ChangeInterval):
        return log.between(*part.wanted, rows).select(names)
    time, at, of = part.wanted
    if of > 1:
        hashed = [pl.col(name) for name, kind in log.columns.items() if kind.kind in HASHED]
        rows = rows.filter(pl.struct(hashed).hash(0) % of == at)
    return log.contents(time, rows).select(names)


def _replaced(part: LogPart) -> DdError:
    return RewrittenError(
        "files of the log were summed up or written anew while they were read",
        place=part.path,
        hint="run the query again",
    )
