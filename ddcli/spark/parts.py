"""The parts of a log that tasks read: files or rows of files, for its changes; ranges of a column or of hashes, for a collection as of a time.

Tasks read parts of one state of the log, the one that the query's plan has found. Before the log's upper that holds by itself: closed times never change. Rows at later times belong to
the state if they are among the first rows of the listed files, as many as those had then.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
from pyspark.sql.datasource import InputPartition

from ddcli.errors import DdError, EngineError, RewrittenError
from ddcli.sources.change_log import MOST_HELD, ChangeLog
from ddcli.store.files.buckets import adopt_settings, settings_in_use
from ddcli.store.files.gate import side_by_side
from ddcli.store.formats.base import Updates
from ddcli.store.log.reader import LogReader
from ddcli.store.parquet.row_groups import GroupBounds, group_bounds
from ddcli.store.tables.kinds import READ_ERRORS
from ddcli.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema, Type
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.tables.listing import Listing


LARGE = 128 << 20
"""Bytes of files that a task reads by default, as Spark's own sources do."""
MANY = 64
"""Tasks that sum up a collection by default, at most: each of them may have to read all files."""
TRIES = 5
"""The looks of a task for the files that have replaced those it has to read, at most."""
HASHED = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "date", "string", "decimal"}
FEW = 4
"""Columns whose statistics are looked at, the first ones: a log of terabytes has half a million row groups."""
RANGED = HASHED - {"bool"} | {"datetime"}
"""Kinds whose values are compared in the same way by Python, by polars and in the statistics of Parquet."""
HASHED |= {"datetime", "duration", "time", "binary"}
"""Kinds whose equal values have equal hashes: floats have two zeros."""


class ChangeInterval(NamedTuple):
    """The updates at or after `lower` (None: all) and not at or after `upper`."""

    lower: Times | None
    upper: Times


class Share(NamedTuple):
    """The records of a collection as of a time (None: after all updates) for which `own` holds: they fall to one task."""

    time: Time | None
    own: pl.Expr | None = None


class LogPart(InputPartition):
    """The rows of a log that one task reads: of its files (`rows`: of its only file from this row on so many), or of all files those records that fall to the task."""

    def __init__(
        self,
        log: ChangeLog,
        wanted: ChangeInterval | Share,
        listing: Listing,
        *,
        closed: bool,
        rows: tuple[int, int] | None = None,
        checked: bool = False,
    ) -> None:
        self.path, self.diff, self.time = str(log.path), log.diff, tuple(log.time)
        self.listing = listing
        self.schema: LogSchema = log.reader.schema
        self.wanted = wanted
        self.closed = closed
        """True: no later commit changes the rows that are wanted."""
        self.rows = rows
        self.checked = checked
        """True: no time and no diff is null, by the footers."""
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


def check_versions(planned: tuple[str, str], path: str) -> None:
    """Raise EngineError where a task runs with other versions than its query was planned with."""
    if planned != versions():
        ours, theirs = (f"ddcli {own} with polars {other}" for own, other in (versions(), planned))
        raise EngineError(
            f"an executor on {os.uname().nodename} has {ours}, and the query was planned with {theirs}",
            place=path,
            hint="install the same versions everywhere; `dd doctor --spark` shows them",
        )


def parts_of_changes(log: ChangeLog, wanted: ChangeInterval, *, closed: bool, count: int | None) -> list[LogPart]:
    """Return the updates of an interval in parts of some 128 MB, or this many parts: of whole files, and of row groups of larger ones."""
    files = log.reader.listing.to_read
    size = max(1, sum(file.size for file in files) // count) if count else LARGE
    whole = _pinned(log, closed=closed)
    windows = {file: _windows(log, file, size, whole.limits.get(file.path)) for file in files if file.size > size}
    cut = {file: some for file, some in windows.items() if len(some) > 1}
    left = [file for file in files if file not in cut]
    most = max(1, count - sum(map(len, cut.values()))) if count else len(files)
    bins: list[list[InputFile]] = []
    room = 0
    for file in left:
        if room <= 0 and len(bins) < most:
            bins.append([])
            room = size
        bins[-1].append(file)
        room -= file.size
    pieces: list[tuple[tuple[InputFile, ...], tuple[int, int] | None]] = [(tuple(group), None) for group in bins]
    pieces += [((file,), rows) for file, some in cut.items() for rows in some]
    return [
        LogPart(log, wanted, replace(whole, new=some, waiting=()), closed=closed, rows=rows) for some, rows in pieces
    ]


def _windows(log: ChangeLog, file: InputFile, size: int, limit: int | None) -> list[tuple[int, int]]:
    """Return the first row and the number of rows of parts of a file, some row groups with about `size` bytes each; of its first `limit` rows."""
    groups = group_bounds(log.reader.listing.path(file)) if log.reader.seeks else []
    share = sum(group.size for group in groups) / -(-file.size // size)
    found, first, before = list[tuple[int, int]](), 0, 0
    for group in groups:
        count = group.rows if limit is None else max(0, min(group.rows, limit - first))
        if before < len(found) * share:
            found[-1] = (found[-1][0], found[-1][1] + count)
        elif count:
            found.append((first, count))
        first, before = first + count, before + group.size
    return found


def parts_of_contents(log: ChangeLog, time: Time | None, *, closed: bool, count: int | None) -> list[LogPart]:
    """Return a collection in parts: a record is in the part that has its range of a column, or its hash."""
    listing = _pinned(log, closed=closed)
    hashed = [pl.col(name) for name, kind in log.columns.items() if kind.kind in HASHED]
    parts = count or min(MANY, max(1, -(-listing.size // LARGE)))
    if parts == 1 or not hashed:
        return [LogPart(log, Share(time), listing, closed=closed)]
    ranges = _ranges(log, parts)
    own = ranges or [pl.struct(hashed).hash(0) % parts == at for at in range(parts)]
    return [LogPart(log, Share(time, each), listing, closed=closed, checked=bool(ranges)) for each in own]


def _ranges(log: ChangeLog, parts: int) -> list[pl.Expr]:
    """Return the conditions of ranges of a column, one for each part, if a task then reads little more than its rows; else none."""
    if not log.reader.seeks:
        return []
    ranged = [(name, kind) for name, kind in log.columns.items() if kind.kind in RANGED and kind.unit != "ns"]
    columns = dict(ranged[:FEW])
    required = [*log.time, *([log.diff] if log.reader.schema.diff else [])]
    found: dict[Path, list[GroupBounds]] = {}
    paths = [log.reader.listing.path(file) for file in log.reader.listing.to_read]
    side_by_side(lambda path: found.update({path: group_bounds(path, columns, required)}), paths)
    groups = [group for path in paths for group in found[path]]
    if not all(found.values()) or any(group.nulls.get(name) != 0 for group in groups for name in required):
        return []
    total = sum(group.size for group in groups)
    most = min(3 * total // 4, 2 * total // parts + max(group.size for group in groups))
    best: tuple[int, list[pl.Expr]] = most, []
    for name, kind in columns.items():
        bounds = [(group.bounds[name], group.size) for group in groups if name in group.bounds]
        if len(bounds) < len(groups) or len({type(value) for each, _ in bounds for value in each or ()}) != 1:
            continue
        if (cuts := _cuts(bounds, parts)) and (read := _most_read(bounds, cuts)) <= best[0]:
            best = read, _between(pl.col(name), [literal(cut, kind) for cut in cuts])
    return best[1]


def _cuts(bounds: Sequence[tuple[tuple[Any, Any] | None, int]], parts: int) -> list[Any]:
    """Return the values at which a column is cut into ranges with about as many bytes each, by least values of row groups; none if these are too few."""
    ordered = sorted(((each[0], size) for each, size in bounds if each is not None), key=itemgetter(0))
    total, before, cuts = sum(size for _, size in ordered), 0, list[Any]()
    for low, size in ordered:
        if len(cuts) < parts - 1 and before >= (len(cuts) + 1) * total / parts and low > (cuts or [ordered[0][0]])[-1]:
            cuts.append(low)
        before += size
    return cuts if len(cuts) == parts - 1 else []


def _most_read(bounds: Iterable[tuple[tuple[Any, Any] | None, int]], cuts: Sequence[Any]) -> int:
    """Return the bytes of the row groups that have values of a range, for the range with the most."""
    read = [0] * (len(cuts) + 1)
    for each, size in bounds:
        first, last = (0, 0) if each is None else (bisect_right(cuts, each[0]), bisect_right(cuts, each[1]))
        for at in range(first, last + 1):
            read[at] += size
    return max(read)


def _between(column: pl.Expr, cuts: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Return the conditions of the ranges between some values; the first range has the nulls."""
    middle = [(column >= low) & (column < high) for low, high in pairwise(cuts)]
    return [column.is_null() | (column < cuts[0]), *middle, column >= cuts[-1]]


def literal(value: Any, kind: Type) -> pl.Expr:
    """Return a value of a filter, a moment in the zone of its column: polars compares no others."""
    return pl.lit(value).dt.convert_time_zone(kind.zone) if kind.zone else pl.lit(value)


def _pinned(log: ChangeLog, *, closed: bool) -> Listing:
    """Return the listing of a log's files; if rows may be at times that are open, with the rows that each file has now."""
    listing = replace(log.reader.listing, passed=())
    return listing if closed or log.progress is None else replace(listing, limits=log.reader.row_counts())


def rows_of(part: LogPart, columns: Schema, condition: pl.Expr | None) -> Iterator[pl.DataFrame]:
    """Yield the rows of a part that may meet a condition, with these columns, frame by frame."""
    check_versions(part.versions, part.path)
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
    rows = log.reader.scan(checked=part.checked)
    if part.rows is not None:
        rows = rows.slice(*part.rows)
    if condition is not None:
        rows = rows.filter(condition)
    if isinstance(part.wanted, ChangeInterval):
        return log.between(*part.wanted, rows).select(names)
    time, own = part.wanted
    return log.contents(time, rows if own is None else rows.filter(own)).select(names)


def _replaced(part: LogPart) -> DdError:
    return RewrittenError(
        "files of the log were summed up or rewritten while they were read",
        place=part.path,
        hint="run the query again",
    )
