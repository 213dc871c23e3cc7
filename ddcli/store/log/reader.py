"""Reading change logs: the rows of an interval of times, checked, in slices as large as wanted.

What a file must not hold (nulls where none may be, values that don't fit, rows at a time that was closed) refuses the whole
run, naming file, column and first row. That row is only searched for once a cheap count has shown that there is one.

What is surveyed before (times, for the upper and for what is late or left) is what a slice needs again: for a log that may
be held in memory the times are kept, for a larger one only their bounds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, cast

import polars as pl

from ddcli.errors import InputError, RewrittenError
from ddcli.expressions.types import ARRIVAL
from ddcli.store.log.arrival import arrival_order, ranks
from ddcli.store.log.late_rows import ahead_error, comes_before, is_beyond, late_error, open_first
from ddcli.store.log.lineage import LARGE, rows_of
from ddcli.store.log.newest_tables import Newest, NewestTables, by_name, by_order
from ddcli.store.log.pieces import FilePiece, LogSlice, Only, Taken, cut, packed
from ddcli.store.log.rows import ORDER, Arrived, RowReader, Rows, joined
from ddcli.store.log.scan import find_damaged, scan_files
from ddcli.store.log.schema import LogSchema, check_file, said_by_paths, schema_of
from ddcli.store.log.times import CHUNK, FileTimes, advanced, at_or_after, physical, survey, within
from ddcli.store.parquet.footers import PARQUET
from ddcli.store.tables.files import Tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Type
    from ddcli.store.formats.base import Format
    from ddcli.store.formats.snapshots import SnapshotsFormat
    from ddcli.store.log.condition import RowCondition
    from ddcli.store.log.unparsed import UnparsedRows
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.tables.listing import Listing

    Interval = tuple[Times | None, Times]


class Pinned(Protocol):
    """Columns that were inferred, and whether a state has them already."""

    @property
    def known(self) -> bool:
        """Whether a state has them."""

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest keeps of them."""


ROW = "row of the file"
TOGETHER_NS = 2_000_000_000
"""Nanoseconds within which the newest files of a log were written: the clocks of file systems are coarse."""


class LogReader:
    """Reads what is new in one log. Footers are read and checked when it is made, times when they are first asked for.

    `known` is the schema of earlier runs, which new files must have too; a wider time type may be put into it; `newest` the
    newest table so far, where their order tells; `pinned` the columns that were inferred. `most` is how many rows may be in memory at once, None: all. Raises InputError here and in every method.
    """

    def __init__(
        self,
        listing: Listing,
        log: Format,
        known: LogSchema | None = None,
        most: int | None = None,
        newest: Newest | None = None,
        pinned: Pinned | None = None,
    ) -> None:
        listing.verify()
        self.pinned = pinned
        self._known_newest = newest
        self.listing = listing
        self.log = log
        self.most = most
        self._paths = [listing.path(file) for file in listing.to_read]
        self._tables = Tables(
            log.declared(),
            said_by_paths(log, listing),
            nested=log.nested,
            times=log.time,
            dialect=log.dialect,
            enveloped=log.enveloped,
            remark=log.inferred,
        )
        self._found = [self._tables.footer(path) for path in self._paths]
        self.schema = schema_of(log, listing, self._tables.footer, known)
        self.log = log.bound(self.schema.columns, self.schema.time)
        for path, found in zip(self._paths, self._found, strict=True):
            check_file(log, self.schema, path, log.footer(path, found))
            self._tables.check(path)
        self._rows = RowReader(self._tables, self.log, self.schema)
        self.unparsed: dict[Path, UnparsedRows] = {}
        """The rows of files that are passed over, as they can't be read."""
        if self.log.quarantines:
            from ddcli.store.log.unparsed import find_unparsed

            self.unparsed = find_unparsed(self._rows, self._paths, self._found)
            self._tables.passed |= {path: each.numbers for path, each in self.unparsed.items()}
        self._surveyed: list[FileTimes] | None = None
        self.without: RowCondition | None = None
        """Rows for which this holds are passed over, as if no file had them."""

    @property
    def seeks(self) -> bool:
        """Whether any rows of its files can be read without those before them."""
        return all(self._tables.kind(path).name == PARQUET for path in self._paths)

    def snapshot_times(self, lower: Times | None, upper: Times) -> list[int]:
        """Return the times within an interval at which there is a table, of a log of those; one may have no rows."""
        found = set[tuple[int, ...]]()
        if (
            self.without is not None and ARRIVAL not in self.log.time
        ):  # a table all of whose rows are passed over is none
            for part in self.take((), lower, upper, CHUNK).slices:
                found.update(part.read().times.unique().iter_rows())
            return sorted(time for (time,) in found)
        for file, times in zip(self.listing.to_read, self._times(), strict=True):
            found |= times.distinct(file.since if lower is None else lower, upper)
        tables = self.tables
        return sorted(time for (time,) in found if tables is None or time in tables.times)

    def truncations(self, lower: Times | None, upper: Times) -> list[tuple[int, int]]:
        """Return time and order of the rows within an interval that take from all keys what they have."""
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
        """Return where the last file is that has a row with these values at a time."""
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

    def refuse_after(self, limits: tuple[int | None, ...], said: str) -> None:
        """Refuse a row with a coordinate after its limit (None: it has none); `said` tells people the present time."""
        for times in self._times():
            if times.largest is None or not is_beyond(times.largest, limits):
                continue
            row, first = times.first_after(limits)
            raise ahead_error(first, row, self._tables.place(times.path, row), self._kinds, said)

    def scans(self) -> list[pl.LazyFrame]:
        """Return the rows of each file to read, lazily: data, times, diff. What no row may have is refused now."""
        return scan_files(self._tables, [[path] for path in self._paths], self.schema, self.log.diff)

    def scan(self, order: Iterable[int] | None = None) -> pl.LazyFrame:
        """Return the rows of all files as `scans` does, one file after the other in this order (None: that of their names)."""
        at = range(len(self._paths)) if order is None else order
        alike = groupby(at, key=lambda file: self._tables.alike(self._paths[file], self._found[file]))
        groups = [[self._paths[file] for file in group] for _, group in alike]
        return pl.concat(scan_files(self._tables, groups, self.schema, self.log.diff))

    def damaged(self) -> InputError | None:
        """Return the error of the first file that can't be read whole: for when a scan of all of them failed."""
        return find_damaged(self._tables, self._paths)

    def spans(self) -> list[tuple[Time, Time] | None]:
        """Return the first and the last time of each file; None where its rows are not in order of time."""
        return [times.span() for times in self._times()]

    def parts(self, columns: Sequence[str], most: int) -> Iterator[tuple[Path, int, Rows]]:
        """Yield all updates, file by file and at most `most` rows at a time, with the number of the first of these rows in its file."""
        each = zip(self._paths, self._found, self._times(), strict=True)
        for at, (path, found, times) in enumerate(each):
            for first in range(0, times.rows, most):
                count = min(most, times.rows - first)
                if self.tables is None or at in self.tables.files:
                    arrived = self._arrived(FilePiece((at,), count, first))
                    yield path, first, self._rows.read([path], found, columns, (first, count), None, None, arrived)

    def place(self, path: Path, row: int) -> str:
        """Return where a person finds a row of a file: of text, its line."""
        return self._tables.place(path, row)

    def take(self, columns: Iterable[str], lower: Times | None, upper: Times, most: int | None = None) -> Taken:
        """Take the updates at or after `lower` (None: from the beginning) and not at or after `upper`, to be read by slices.

        A slice has at most `most` rows, or any number; where all are in one, it is one quick read. Only `columns` are read.
        Rows at or after `upper` stay in their files for a later run; a row before `lower` in a file that was never taken
        from is late: it is refused, moved up to `lower`, or put aside, as the format's `late` says.
        """
        files = [*self.listing.done, *self.listing.withdrawn]
        whole: dict[tuple[object, ...], list[int]] = {}  # files that can be read in one scan
        partly: list[tuple[int, Only, Interval]] = []
        apart: list[tuple[int, int]] = []
        aside: list[tuple[int, Only, Interval]] = []
        unparsed: list[tuple[str, UnparsedRows]] = []
        late = 0
        for at, (file, known) in enumerate(zip(self.listing.to_read, self._times(), strict=True)):
            since = file.since if lower is None else lower  # what was put aside is not taken later either
            before = since is not None and known.any_before(since)
            new = at >= len(self.listing.waiting)
            left = known.any_at_or_after(upper)
            only: Only | None = "inside" if before or left else None
            if before and new and lower is not None:
                if self.log.late == "arrive" and not comes_before(lower, upper):
                    continue  # the time to which they are moved stays open: the file is as new to a later run
                if self.log.late == "error" or not lower:
                    row, first = known.first_before(lower)
                    # One reopening is to be enough for all files that are new.
                    others = (
                        each.least for each in self._times()[len(self.listing.waiting) :] if each.least is not None
                    )
                    least = tuple(map(min, zip(first, *others, strict=True)))
                    raise late_error(first, row, self._tables.place(known.path, row), self._kinds, lower, least)
                late += known.count(~at_or_after(self.schema.time, lower))
                if self.log.late == "quarantine":
                    aside.append((at, "late", (lower, upper)))
                    file = replace(file, since=lower)
                else:
                    only = "advanced"
            grown = self.listing.grown.get(file.path)
            if grown is not None and lower is not None and (late_row := known.before_from(grown.rows, lower)):
                row, first = late_row
                raise late_error(first, row, self._tables.place(known.path, row), self._kinds, lower, first)
            if new and self._paths[at] in self.unparsed:
                unparsed.append((file.path, self.unparsed[self._paths[at]]))
            files.append(replace(file, done=not left, at=None if left else file.at))
            if not known.rows or (self.tables is not None and at not in self.tables.files):
                continue
            if only:
                partly.append((at, only, (since, upper)))
            elif at in self._growing:  # of rows that arrived with earlier runs none is taken again
                apart.append((at, grown.rows if grown is not None and ARRIVAL in self.log.time else 0))
            else:
                whole.setdefault(self._tables.alike(self._paths[at], self._found[at]), []).append(at)
        slices = self._slices(columns, self._pieces(partly, whole.values(), most, apart), (lower, upper), most)
        put_aside = self._slices(self.schema.columns, self._pieces(aside, (), most), (lower, upper), most, aside=True)
        if len(slices) > 1:
            for known in self._times():
                known.forget()
        return Taken(slices, tuple(sorted(files, key=lambda file: file.path)), late, tuple(put_aside), tuple(unparsed))

    def put_aside(self, most: int | None = None) -> list[LogSlice]:
        """Return the rows that earlier runs put aside of these files, in slices of at most `most` rows."""
        aside: list[tuple[int, Only, Interval]] = [
            (at, "late", (file.since, ())) for at, file in enumerate(self.listing.to_read) if file.since is not None
        ]
        return self._slices(self.schema.columns, self._pieces(aside, (), most), (None, ()), most, aside=True)

    def _slices(
        self,
        columns: Iterable[str],
        pieces: Iterable[FilePiece],
        interval: Interval,
        most: int | None,
        *,
        aside: bool = False,
    ) -> list[LogSlice]:
        sums = most is not None and self.log.adds_up
        return [LogSlice(self, tuple(columns), part, interval, aside, sums) for part in packed(pieces, most)]

    def read(self, part: LogSlice) -> Rows:
        """Return the updates of a slice."""
        columns = part.columns
        if self.without is not None:
            columns = tuple(dict.fromkeys((*columns, *self.without.columns)))
        reads = [self._piece(piece, columns, part.interval, filled=not part.aside) for piece in part.pieces]
        return reads[0] if len(reads) == 1 else joined(reads)

    @property
    def _kinds(self) -> list[Type]:
        return list(self.schema.time.values())

    def _times(self) -> list[FileTimes]:
        """Return the times of each file, checked for nulls; read once."""
        if self._surveyed is None:
            limits = {self.listing.root / name: count for name, count in self.listing.limits.items()}
            self._surveyed = survey(self._tables, self._paths, self.schema.time, self.most, limits)
        return self._surveyed

    def _pieces(
        self,
        partly: Iterable[tuple[int, Only, Interval]],
        whole: Iterable[list[int]],
        most: int | None,
        apart: Iterable[tuple[int, int]] = (),
    ) -> Iterator[FilePiece]:
        """Give what is to be read of the files, each piece of at most `most` rows; of those `apart`, from a row on, as many as there are now."""
        surveyed = self._times()
        for at, first in apart:
            yield from [FilePiece((at,), rows, start) for start, rows in cut(first, surveyed[at].rows - first, most)]
        for at, only, interval in partly:
            first, count = surveyed[at].bounds(self._which(only, interval))
            for start, rows in cut(first, count, most):
                yield FilePiece((at,), rows, start, only)
        for group in whole:
            together: list[int] = []
            count = 0
            for at in group:
                rows = surveyed[at].rows
                if most is not None and count + rows > most and together:
                    yield FilePiece(tuple(together), count)
                    together, count = [], 0
                if most is not None and rows > most:
                    size = self._tables.rows_together(self._paths[at], most)
                    yield from [FilePiece((at,), part, start) for start, part in cut(0, rows, size)]
                else:
                    together.append(at)
                    count += rows
            if together:
                yield FilePiece(tuple(together), count)

    @cached_property
    def _growing(self) -> frozenset[int]:
        """The files to which the log's writer may add rows while they are read, or of which not all rows count: they are read up to a row."""
        if not self.listing.growing and not self.listing.limits:
            return frozenset()
        files = self.listing.to_read
        newest = max((file.mtime_ns for file in files), default=0) - TOGETHER_NS
        return frozenset(
            at
            for at, file in enumerate(files)
            if file.path in self.listing.limits or (file.mtime_ns >= newest and file.size <= 2 * LARGE)
        )

    def refuse_rewritten(self) -> None:
        """Raise RewrittenError if a file is not the one that was listed, nor has only grown since: what was read may be of both."""
        if not self.listing.growing:
            return
        for at, (file, path) in enumerate(zip(self.listing.to_read, self._paths, strict=True)):
            if self.listing.is_as_listed(file):
                continue
            read = self._surveyed[at].rows if self._surveyed is not None and at in self._growing else None
            if read is None or rows_of(path, file.fingerprint) != read:
                raise RewrittenError("a log was written anew while it was read", place=str(path), hint="run again")

    def _which(self, only: Only, interval: Interval) -> pl.Expr:
        """Return which times are taken."""
        lower, upper = interval
        if only == "late":
            return ~at_or_after(self.schema.time, lower or ())
        return within(self.schema.time, None if only == "advanced" else lower, upper)

    def _piece(self, piece: FilePiece, columns: Sequence[str], interval: Interval, *, filled: bool = True) -> Rows:
        """Read a piece: part of a file as a slice, so that only the row groups that count are read."""
        surveyed = [self._times()[at] for at in piece.files]
        held = [times.frame for times in surveyed if times.frame is not None]
        times = None
        if len(held) == len(surveyed):
            times = pl.concat(held) if piece.first is None else held[0].slice(piece.first, piece.count)
        lower, upper = interval
        if lower is None:
            lower = self.listing.to_read[piece.files[0]].since
        rows = self._rows.read(
            [self._paths[at] for at in piece.files],
            self._found[piece.files[0]],
            columns,
            (piece.first, piece.count),
            times,
            self._which(piece.only, (lower, upper)) if piece.only else None,
            self._arrived(piece),
            filled=filled,
        )
        if self.without is not None:
            rows = rows.chosen(self.without.keeps(rows.frame))
        return (
            rows._replace(times=advanced(rows.times, open_first(lower, upper)))
            if piece.only == "advanced" and lower
            else rows
        )

    def where(self, condition: RowCondition, most: int) -> Iterator[tuple[InputFile, list[int]]]:
        """Yield each file to read, with the numbers of its rows for which a condition holds, also of those that can't be read as a whole.

        At most `most` rows are read at once.
        """
        for at, file in enumerate(self.listing.to_read):
            path, numbers = self._paths[at], sorted(self._numbers(at, condition, most))
            if (unparsed := self.unparsed.get(path)) is not None:
                left = unparsed.drop(condition)[0].numbers
                numbers = [self._tables.number(path, number) for number in numbers]
                numbers = sorted({*numbers, *unparsed.numbers} - {*left})
            yield file, numbers

    def without_rows(self, path: Path, numbers: Collection[int]) -> bytes:
        """Return what a file holds without rows that `where` has found."""
        from ddcli.store.tables.erasure import without_rows

        return without_rows(path, self._tables.kind(path), numbers, self.log.dialect)

    def _numbers(self, at: int, condition: RowCondition, most: int) -> set[int]:
        """Return the numbers of a file's rows for which a condition holds."""
        numbers: set[int] = set()
        for first in range(0, count := self._times()[at].rows, most):
            piece = first, min(most, count - first)
            rows = self._rows.read([self._paths[at]], self._found[at], condition.columns, piece, None, None)
            holding = (~condition.keeps(rows.frame)).arg_true()
            numbers.update((holding if rows.rows is None else rows.rows[holding]) + first)
        return numbers

    def kept(self) -> dict[str, Any]:
        """Return what a manifest keeps of the log beside its files."""
        newest = self.tables.newest if self.tables is not None else None
        kept = {"newest": [newest.order, newest.at]} if newest is not None else {}
        return self.schema.to_json() | kept | ({"pinned": self.pinned.to_json()} if self.pinned is not None else {})

    @cached_property
    def tables(self) -> NewestTables | None:
        """The tables that count, of a log of tables that have the time at which they arrived."""
        if not self.log.tables or ARRIVAL not in self.log.time:
            return None
        files, ordered = self.listing.to_read, cast("SnapshotsFormat", self.log).orders is not None
        return by_order(files, self._greatest_order, self._known_newest) if ordered else by_name(files)

    def _greatest_order(self, at: int) -> int | None:
        """Return the greatest order of a file's rows; of a file without rows that of its path, None if that has none."""
        path, names, rows = self._paths[at], cast("SnapshotsFormat", self.log).ordering(), self._times()[at].rows
        passed = self._numbers(at, self.without, CHUNK) if self.without is not None else ()
        if len(passed) == rows:
            said = self._tables.says(path, names)
            return None if said is None else self._rows.greatest(path, said)
        greatest = []
        for first in range(0, rows, CHUNK):
            frame = self._tables.collect([path], names, (first, CHUNK))
            if passed:
                frame = frame.filter(pl.Series([number not in passed for number in range(first, first + frame.height)]))
            if frame.height:
                greatest.append(self._rows.greatest(path, frame, first))
        return max(greatest)

    def _arrived(self, piece: FilePiece) -> Arrived | None:
        """Return what tells the newest of a piece's rows where times don't: how they arrived, or the order of their table."""
        if self.tables is not None:
            return Arrived(order=self.tables.files[piece.files[0]])
        if ARRIVAL not in self.log.time or not self.log.key:
            return None
        counts = [self._times()[at].rows for at in piece.files]
        return Arrived(arrival_order(piece, counts, self._ranks))

    @cached_property
    def _ranks(self) -> list[int]:
        """The place of each file in the order of their names."""
        return ranks([file.path for file in self.listing.to_read])
