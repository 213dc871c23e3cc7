"""The files of a log: the columns in their footers, checked, the times of their rows, and a lazy scan of them.

The times that are surveyed, to find the upper and the late and the waiting rows, are those that slices need again: for a log that may
be held in memory the times are kept, for a larger one only their bounds.

A lazy scan reads the files when rows are collected, and only as much of them as the query needs. It reports neither nulls nor text that is no value, so these are searched for
first, in the columns that can have them.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import cached_property, reduce
from itertools import groupby
from operator import and_
from typing import TYPE_CHECKING

import polars as pl

from ddcli.engine.times import Frontier
from ddcli.errors import InputError, RewrittenError
from ddcli.store.log.joint_files import LARGE, rows_of
from ddcli.store.log.pieces import CHUNK, FileTimes, advanced, physical, survey, within
from ddcli.store.log.rows import ORDER, RowReader
from ddcli.store.log.schema import (
    INT64,
    LogSchema,
    PinnedColumns,
    check_file,
    columns_from_paths,
    schema_of,
    united_columns,
)
from ddcli.store.tables.files import FAILING, TOGETHER, Tables, row_words
from ddcli.store.tables.input_path import PARQUET
from ddcli.store.tables.kinds import READ_ERRORS, damaged
from ddcli.store.texts import format_frontier, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Type
    from ddcli.store.formats.base import Format
    from ddcli.store.log.pieces import Newest
    from ddcli.store.log.rows import RowCondition
    from ddcli.store.log.unparsed_rows import UnparsedRows
    from ddcli.store.state.entries import Times
    from ddcli.store.tables.listing import Listing

    Interval = tuple[Times | None, Times]
    from collections.abc import Iterator

    from ddcli.expressions.types import Schema
    from ddcli.store.state.entries import FileEntry


def late_error(time: Time, row: int, place: str, kinds: Sequence[Type], lower: Times, least: Time) -> InputError:
    """Return the error of a row before the frontier `lower`; opened again from `least`, times take in all that is late."""
    closed = format_frontier(Frontier(lower), kinds) if lower else "the end: the input was closed"
    return InputError(
        f"late rows: {row_words(row, place) or 'this row'} has the time {format_time(time, kinds)}, which is before {closed}, up to "
        "where earlier runs have closed the times",
        place=place,
        hint="a new file may only hold rows at times that are still open; leave times open for rows to come with "
        "`--until`, or write `late: quarantine` or `late: arrive` under the input; to open closed times again, "
        f"`dd state reopen PIPELINE --from {shlex.quote(format_time(least, kinds))}`",
    )


def ahead_error(time: Time, row: int, place: str, kinds: Sequence[Type], present: str) -> InputError:
    """Return the error of a row that is too far ahead; `present` is the present time as text."""
    return InputError(
        f"{row_words(row, place) or 'this row'} has the time {format_time(time, kinds)}, which is far ahead of the clock, {present}: "
        "a run would close all times before",
        place=place,
        hint="correct the row, or state how far rows may be ahead, `max_ahead: 30 days` under the input (`none`: any time)",
    )


def is_beyond(time: Time, limits: tuple[int | None, ...]) -> bool:
    """Return whether a coordinate is after its limit."""
    return any(limit is not None and value > limit for value, limit in zip(time, limits, strict=True))


def open_first(lower: Times, upper: Times) -> Times:
    """Return `lower` with an element first that `upper` closes, if there is one: late rows are moved up to the first."""
    closing = Frontier(upper)
    return tuple(sorted(lower, key=closing.less_equal))


def comes_before(lower: Times, upper: Times) -> bool:
    """Return whether the time to which late rows are moved is closed by `upper`."""
    return not lower or not Frontier(upper).less_equal(open_first(lower, upper)[0])


ROW = "row of the file"
TOGETHER_NS = 2_000_000_000
"""Nanoseconds within which the newest files of a log were written: the clocks of file systems are coarse."""


def _tables(log: Format, listing: Listing) -> Tables:
    """Return the files of a log as tables."""
    return Tables(
        log.declared(),
        columns_from_paths(log, listing),
        nested=log.nested,
        times=log.time,
        dialect=log.dialect,
        enveloped=log.enveloped,
        rounds=log.rounds,
        former=log.former,
        absent=log.absent,
        remark=log.inferred,
    )


class LogFiles:
    """The files of a log that are to be read. Footers are read and checked when it is made, times when they are first asked for.

    `known` is the schema of earlier runs, which new files must have too; a wider time type may be put into it; `newest` the
    newest table so far, where tables have an order; `pinned` the columns that were inferred. `most` is how many rows may be in memory at once,
    None: all. Raises InputError here and in every method.
    """

    def __init__(
        self,
        listing: Listing,
        log: Format,
        known: LogSchema | None = None,
        most: int | None = None,
        newest: Newest | None = None,
        pinned: PinnedColumns | None = None,
    ) -> None:
        listing.verify()
        self.pinned = pinned
        self._known_newest = newest
        self.listing = listing
        self.log = log
        self.most = most
        self._paths = [listing.path(file) for file in listing.to_read]
        self._tables = _tables(log, listing)
        self._found = [self._tables.footer(path) for path in self._paths]
        if log.unites and log.columns is None and (every := united_columns(log, self._paths, self._found)):
            self.log = log = replace(log, columns=every, absent=tuple(every))
            self._tables = _tables(log, listing)
            self._found = [self._tables.footer(path) for path in self._paths]
        self.schema = schema_of(log, listing, self._tables.footer, known)
        self.log = log.bound(self.schema.columns, self.schema.time)
        before = known is not None and known.diff is not None
        for at, (path, found) in enumerate(zip(self._paths, self._found, strict=True)):
            check_file(log, self.schema, path, log.footer(path, found), later=before or at > 0)
            self._tables.check(path, found)
        self._rows = RowReader(self._tables, self.log, self.schema)
        self.unparsed: dict[Path, UnparsedRows] = {}
        """The rows of files that are ignored, as they can't be read."""
        if self.log.quarantines:
            from ddcli.store.log.unparsed_rows import find_unparsed

            self.unparsed = find_unparsed(self._rows, self._paths, self._found)
            self._tables.passed |= {path: each.numbers for path, each in self.unparsed.items()}
        self._surveyed: list[FileTimes] | None = None
        self.without: RowCondition | None = None
        """Rows for which this holds are ignored, as if no file had them."""

    @property
    def seeks(self) -> bool:
        """Return whether any rows of its files can be read without those before them."""
        return all(self._tables.kind(path).name == PARQUET for path in self._paths)

    def place(self, path: Path, row: int) -> str:
        """Return the place of a row of a file for people: in text, its line."""
        return self._tables.place(path, row)

    def largest_time(self) -> tuple[int, ...] | None:
        """Return the largest value of each time coordinate in the files to read, or None when they have no rows.

        From the time columns, which are read anyway: statistics in footers are optional, and polars hands none out.
        """
        largest = [times.largest for times in self._times() if times.largest is not None]
        return tuple(max(values) for values in zip(*largest, strict=True)) or None

    def late_times(self, lower: Times) -> tuple[int, ...] | None:
        """Return the greatest times that late rows of new files may have when they are moved up to `lower`; None without any."""
        moved = [
            tuple(map(max, times.largest, lower[0]))
            for times in self._times()[len(self.listing.waiting) :]
            if times.largest is not None and times.any_before(lower)
        ]
        return tuple(max(values) for values in zip(*moved, strict=True)) or None

    def spans(self) -> list[tuple[Time, Time] | None]:
        """Return the first and the last time of each file; None where its rows are not in order of time."""
        return [times.span() for times in self._times()]

    def refuse_after(self, limits: tuple[int | None, ...], present: str) -> None:
        """Refuse a row with a coordinate after its limit (None: it has none); `present` is the present time as text."""
        for times in self._times():
            if times.largest is None or not is_beyond(times.largest, limits):
                continue
            row, first = times.first_after(limits)
            raise ahead_error(first, row, self._tables.place(times.path, row), self._kinds, present)

    def truncations(self, lower: Times | None, upper: Times) -> list[tuple[int, int]]:
        """Return time and order of the rows within an interval that delete the records of all keys."""
        truncating = self.log.truncating()
        if truncating is None:
            return []
        column, value, order = truncating
        (name,) = self.schema.time
        found: list[tuple[int, int]] = []
        each = zip(self.listing.to_read, self._paths, self._times(), strict=True)
        for number, (file, path, times) in enumerate(each):
            for first in range(0, times.rows, CHUNK):
                raw = self._tables.collect([path], [column, order, name], (first, CHUNK))
                raw = raw.with_row_index(ROW, first).filter(pl.col(column) == value)
                if raw[order].null_count():
                    raise self._tables.null(path, raw.filter(pl.col(order).is_null())[ROW][0], "column", order)
                at = physical(self._tables, [path], raw, self.schema.time)
                rows = at.with_columns(raw[order].cast(pl.Int64).alias(ORDER))
                if self.log.late == "arrive" and lower is not None and number >= len(self.listing.waiting):
                    rows = advanced(at, lower).with_columns(rows[ORDER])
                found += rows.filter(within([name], file.since if lower is None else lower, upper)).iter_rows()
        return sorted(set(found))

    def find(self, values: dict[str, object], time: int) -> str | None:
        """Return the path of the last file with a row that has these values at a time; None without any."""
        (name,) = self.schema.time
        for path, found in zip(reversed(self._paths), reversed(self._found), strict=True):
            names = [*self.log.reads(list(values), found), name]
            frame = self._tables.collect([path], names)
            turned = self.log.turn(frame, list(values))
            times = physical(self._tables, [path], frame, self.schema.time).to_series()
            same = (times if turned.rows is None else times[turned.rows]) == time
            for column, value in values.items():
                same &= turned.frame[column].eq_missing(pl.Series([value]))
            if same.any():
                return str(path)
        return None

    def scans(self) -> list[pl.LazyFrame]:
        """Return the rows of each file to read, lazily: data, times, diff. Values that no row may have are refused now."""
        return scan_files(self._tables, [[path] for path in self._paths], self.schema, self.log.diff)

    def scan(self, order: Iterable[int] | None = None, *, checked: bool = False) -> pl.LazyFrame:
        """Return the rows of all files as `scans` does, one file after the other in this order (None: by name).

        Of a file in the listing's `limits` only so many rows, the first. If it was `checked` that no time and no diff is null, none is looked for.
        """
        at = range(len(self._paths)) if order is None else order
        limits = [self.listing.limits.get(file.path) for file in self.listing.to_read]

        def alike(file: int) -> tuple[object, ...]:
            apart = () if limits[file] is None else (file,)
            return (*self._tables.alike(self._paths[file], self._found[file]), *apart)

        groups = [[*group] for _, group in groupby(at, key=alike)]
        paths = [[self._paths[file] for file in group] for group in groups]
        scans = scan_files(self._tables, paths, self.schema, self.log.diff, checked=checked)
        return pl.concat(
            scan if limit is None else scan.head(limit)
            for scan, limit in zip(scans, (limits[group[0]] for group in groups), strict=True)
        )

    def row_counts(self) -> dict[str, int]:
        """Return how many rows each file has now, by its path in the listing: later commits of the log's writer may add more."""
        return {
            file.path: self._tables.count_rows(path)
            for file, path in zip(self.listing.to_read, self._paths, strict=True)
        }

    def damaged(self) -> InputError | None:
        """Return the error of the first file that can't be read whole: for when a scan of all of them failed."""
        return find_damaged(self._tables, self._paths)

    def refuse_rewritten(self) -> None:
        """Raise RewrittenError if a file is not the one that was listed, nor has only grown since: the rows that were read may be of both."""
        if not self.listing.growing:
            return
        for at, (file, path) in enumerate(zip(self.listing.to_read, self._paths, strict=True)):
            if self.listing.is_as_listed(file):
                continue
            read = self._surveyed[at].rows if self._surveyed is not None and at in self._growing else None
            if read is None or rows_of(path, file.fingerprint) != read:
                raise RewrittenError("a log was rewritten while it was read", place=str(path), hint="run again")

    @property
    def _kinds(self) -> list[Type]:
        return list(self.schema.time.values())

    def _times(self) -> list[FileTimes]:
        """Return the times of each file, checked for nulls; read once."""
        if self._surveyed is None:
            limits = {self.listing.root / name: count for name, count in self.listing.limits.items()}
            self._surveyed = survey(self._tables, self._paths, self.schema.time, self.most, limits)
        return self._surveyed

    @cached_property
    def _growing(self) -> frozenset[int]:
        """The files to which the log's writer may add rows while they are read, or where not all rows count: they are read up to a row."""
        if not self.listing.growing and not self.listing.limits:
            return frozenset()
        files = self.listing.to_read
        newest = max((file.mtime_ns for file in files), default=0) - TOGETHER_NS
        return frozenset(
            at
            for at, file in enumerate(files)
            if file.path in self.listing.limits or (file.mtime_ns >= newest and file.size <= 2 * LARGE)
        )


DIFF = "diff"


def scan_files(
    tables: Tables, groups: Sequence[Sequence[Path]], schema: LogSchema, diff: str | None, *, checked: bool = False
) -> list[pl.LazyFrame]:
    """Return the rows of each group of files that are alike, in the log's types: data, times, diff (1, where the log has none).

    Refuses a null time or diff, unless it was `checked` that there is none, and text that is no value of its column. A scan a file would take polars megabytes for each.
    """
    own = [diff] if diff and schema.diff else []
    required = [] if checked else [*schema.time, *own]
    names = [*schema.columns, *schema.time, *own]
    scans = [tables.scan(group, names) for group in groups]
    for group, odd in zip(groups, _odd(tables, groups, scans, names, required), strict=True):
        for path in group if odd else ():
            frame = tables.collect([path], names)  # refuses text that is no value
            tables.refuse_nulls(path, frame, schema.time, "time column")
            tables.refuse_nulls(path, frame, own, "diff column")
    types = schema.columns | schema.time | dict.fromkeys(own, INT64)
    columns = [pl.col(name).cast(kind.to_polars()) for name, kind in types.items()]
    return [scan.select(*columns, *([] if own else [pl.lit(1, pl.Int64).alias(diff or DIFF)])) for scan in scans]


def _odd(
    tables: Tables,
    groups: Sequence[Sequence[Path]],
    scans: Sequence[pl.LazyFrame],
    names: Sequence[str],
    required: Sequence[str],
) -> Iterator[bool]:
    """Return for each group whether it has a null in one of the required columns, or text that is no value; some groups at a time."""
    checks = []
    for scan in scans:
        flags = [name for name in scan.collect_schema() if name.startswith(FAILING)]
        found = [*(pl.col(name).null_count() > 0 for name in required), *(pl.col(name).any() for name in flags)]
        checks.append(scan.select(pl.any_horizontal(found)) if found else scan.select(pl.lit(value=False)))
    for first in range(0, len(checks), TOGETHER):
        together = slice(first, first + TOGETHER)
        try:
            frames = pl.collect_all(checks[together], engine="streaming")
        except (OSError, *READ_ERRORS):
            pairs = zip(groups[together], checks[together], strict=True)
            frames = [tables.streamed(group, each, names) for group, each in pairs]
        yield from (bool(frame.item()) for frame in frames)


def physically(names: Iterable[str]) -> list[pl.Expr]:
    """Return time columns as the integers that they are compared by."""
    return [pl.col(name).to_physical().cast(pl.Int64) for name in names]


def not_after(names: Sequence[str], time: Time) -> pl.Expr:
    """Return which rows count at a time: those at it or before it in every coordinate."""
    return reduce(and_, (column <= value for column, value in zip(physically(names), time, strict=True)))


def find_damaged(tables: Tables, paths: Sequence[Path]) -> InputError | None:
    """Return the error of the first file that can't be read whole: a scan of several files doesn't name it."""
    for path in paths:
        try:
            tables.kind(path).scan([path]).select(pl.all().null_count()).collect(engine="streaming")
        except (OSError, *READ_ERRORS) as error:
            return damaged(tables.kind(path), path, error)
    return None


def scan_entries(
    directory: Path, files: Iterable[FileEntry], schema: Schema, others: Sequence[str]
) -> Iterator[pl.LazyFrame]:
    """Yield the data columns of an output's files, and others, as of the commit that names them: the newest may have grown since, older ones may lack columns."""
    tables = Tables(schema, {}, absent=tuple(schema))
    for entry in files:
        data = [pl.col(name).cast(kind.to_polars()) for name, kind in schema.items()]
        yield tables.scan([directory / entry.name], [*schema, *others]).head(entry.rows).select(*data, *others)
