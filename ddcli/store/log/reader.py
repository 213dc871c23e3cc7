"""The reader of a change log: the rows of an interval of times, checked, in slices as large as wanted.

A file with forbidden values (nulls where none may be, values that don't fit, rows at a closed time) refuses the whole
run, with file, column and first row in the message. That row is only searched for once a cheap count has shown that there is one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from ddcli.expressions.types import ARRIVAL
from ddcli.store.log.log_files import LogFiles, comes_before, late_error, open_first
from ddcli.store.log.pieces import (
    CHUNK,
    ConsumedRange,
    FilePiece,
    FileTimes,
    LogSlice,
    NewestTables,
    Only,
    advanced,
    arrival_order,
    at_or_after,
    by_name,
    by_order,
    cut,
    packed,
    ranks,
    within,
)
from ddcli.store.log.rows import Rows, joined

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.store.formats.base import SnapshotsFormat
    from ddcli.store.log.rows import RowChange, RowCondition
    from ddcli.store.log.unparsed_rows import UnparsedRows
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.state.ledger import KeyHashes

    Interval = tuple[Times | None, Times]


class LogReader(LogFiles):
    """The reader of the new rows of one log. Every method may raise InputError."""

    without: RowCondition | None = None
    """Rows for which this holds are ignored, as if no file had them."""
    changed: RowChange | None = None
    """The new values that rows have, as if their files had them."""
    keys: KeyHashes | None = None
    """The hashes of the keys of rows, as these are read; None: they are not noted."""

    @cached_property
    def more_tables(self) -> set[int]:
        """The times at which other files have a table."""
        return set()

    def follow(self, earlier: LogReader | None) -> None:
        """Have the tables that count be newer than the newest of an earlier reader, if there is one, where tables have an order."""
        known = earlier.tables if earlier is not None else None
        self._known_newest = known.newest if known is not None else None
        self.__dict__.pop("tables", None)

    def snapshot_times(self, lower: Times | None, upper: Times) -> list[int]:
        """Return the times at which there is a table, of a log of those: of its files those within an interval; one may have no rows."""
        return sorted(self.more_tables.union(self.tables_in(lower, upper)))

    def tables_in(self, lower: Times | None, upper: Times) -> list[int]:
        """Return the times within an interval at which its files have a table."""
        found = set[tuple[int, ...]]()
        if self.without is not None and ARRIVAL not in self.log.time:  # a table all of whose rows are ignored is none
            for part in self.take((), lower, upper, CHUNK).slices:
                found.update(part.read().times.unique().iter_rows())
            return sorted(time for (time,) in found)
        for file, times in zip(self.listing.to_read, self._times(), strict=True):
            found |= times.distinct(file.since if lower is None else lower, upper)
        tables = self.tables
        return sorted(time for (time,) in found if tables is None or time in tables.times)

    def parts(self, columns: Sequence[str], most: int) -> Iterator[tuple[Path, int, Rows]]:
        """Yield all updates, file by file and at most `most` rows at a time, with the number of the first of these rows in its file."""
        each = zip(self._paths, self._found, self._times(), strict=True)
        for at, (path, found, times) in enumerate(each):
            for first in range(0, times.rows, most):
                count = min(most, times.rows - first)
                if self.tables is None or at in self.tables.files:
                    arrived = self._arrived(FilePiece((at,), count, first))
                    yield path, first, self._rows.read([path], found, columns, (first, count), None, None, arrived)

    def take(self, columns: Iterable[str], lower: Times | None, upper: Times, most: int | None = None) -> ConsumedRange:
        """Take the updates at or after `lower` (None: from the beginning) and not at or after `upper`, to be read by slices.

        A slice has at most `most` rows, or any number; where all are in one, it is one quick read. Only `columns` are read.
        Rows at or after `upper` stay in their files for a later run; a row before `lower` in a file that was never taken
        from is late: it is refused, moved up to `lower`, or put aside, as the format's `late` states.
        """
        files = [*self.listing.done, *self.listing.withdrawn]
        whole: dict[tuple[object, ...], list[int]] = {}  # files that can be read in one scan
        partly: list[tuple[int, Only, Interval]] = []
        apart: list[tuple[int, int]] = []
        aside: list[tuple[int, Only, Interval]] = []
        unparsed: list[tuple[str, UnparsedRows]] = []
        late = 0
        for at, (file, known) in enumerate(zip(self.listing.to_read, self._times(), strict=True)):
            since = file.since if lower is None else lower  # rows that were put aside are not taken later either
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
                moved = known.count(~at_or_after(self.schema.time, lower))
                late += moved
                if self.log.late == "quarantine":
                    aside.append((at, "late", (lower, upper)))
                    file = replace(file, since=lower)
                else:
                    file = replace(file, late=moved)
                    only = "advanced"
            grown = self.listing.grown.get(file.path)
            if grown is not None and lower is not None and (late_row := known.before_from(grown[0], lower)):
                row, first = late_row
                raise late_error(first, row, self._tables.place(known.path, row), self._kinds, lower, first)
            if new and self._paths[at] in self.unparsed:
                unparsed.append((file.path, self.unparsed[self._paths[at]]))
            files.append(self._taken(file, known, upper, done=not left))
            if not known.rows or (self.tables is not None and at not in self.tables.files):
                continue
            if only:
                partly.append((at, only, (since, upper)))
            elif at in self._growing:  # of rows that arrived with earlier runs none is taken again
                apart.append((at, grown[0] if grown is not None and ARRIVAL in self.log.time else 0))
            else:
                whole.setdefault(self._tables.alike(self._paths[at], self._found[at]), []).append(at)
        slices = self._slices(columns, self._pieces(partly, whole.values(), most, apart), (lower, upper), most)
        put_aside = self._slices(self.schema.columns, self._pieces(aside, (), most), (lower, upper), most, aside=True)
        if len(slices) > 1:
            for known in self._times():
                known.forget()
        return ConsumedRange(
            slices, tuple(sorted(files, key=lambda file: file.path)), late, tuple(put_aside), tuple(unparsed)
        )

    def _taken(self, file: InputFile, times: FileTimes, upper: Times, *, done: bool) -> InputFile:
        """Return a file with the marks of a run that takes its rows in, up to a frontier."""
        rows, late = times.counts(file.since, upper)
        same = file.rows == rows
        late = file.late if file.since is None else late
        at, commit = file.at if done else None, file.commit if same else 0
        return replace(file, done=done, at=at, rows=rows, commit=commit, late=late)

    def taken_whole(self, upper: Times) -> set[str]:
        """Return the keys of the files all of whose rows are before a frontier, and none was put aside."""
        files = zip(self.listing.to_read, self._paths, self._times(), strict=True)
        return {
            file.key
            for file, path, times in files
            if file.since is None and path not in self.unparsed and not times.any_at_or_after(upper)
        }

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
        if self.changed is not None:
            columns = tuple(dict.fromkeys((*columns, *self.changed.columns)))
        reads = [self._piece(piece, columns, part.interval, filled=not part.aside) for piece in part.pieces]
        return reads[0] if len(reads) == 1 else joined(reads)

    def _pieces(
        self,
        partly: Iterable[tuple[int, Only, Interval]],
        whole: Iterable[list[int]],
        most: int | None,
        apart: Iterable[tuple[int, int]] = (),
    ) -> Iterator[FilePiece]:
        """Yield the pieces of files to read, each of at most `most` rows; those `apart` from a row on, with all rows that they have now."""
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

    def _which(self, only: Only, interval: Interval) -> pl.Expr:
        """Return which times are taken."""
        lower, upper = interval
        if only == "late":
            return ~at_or_after(self.schema.time, lower or ())
        return within(self.schema.time, None if only == "advanced" else lower, upper)

    def _piece(self, piece: FilePiece, columns: Sequence[str], interval: Interval, *, filled: bool = True) -> Rows:
        """Read a piece: part of a file as a slice, so that only the row groups that count are read."""
        lower, upper = interval
        if lower is None:
            lower = self.listing.to_read[piece.files[0]].since
        rows = self._rows.read(
            [self._paths[at] for at in piece.files],
            self._found[piece.files[0]],
            columns,
            (piece.first, piece.count),
            self._held_times(piece),
            self._which(piece.only, (lower, upper)) if piece.only else None,
            self._arrived(piece),
            filled=filled,
        )
        if self.without is not None:
            rows = rows.chosen(self.without.keeps(rows.frame))
        elif self.keys is not None and not piece.only:
            counts = [self._times()[at].rows for at in piece.files] if piece.first is None else [piece.count]
            self.keys.note(rows.frame, rows.rows, piece.files, counts, piece.first or 0)
        if self.changed is not None:
            rows = rows._replace(frame=self.changed.of(rows.frame))
        return (
            rows._replace(times=advanced(rows.times, open_first(lower, upper)))
            if piece.only == "advanced" and lower
            else rows
        )

    @property
    def has_latest_rows(self) -> bool:
        """Return whether the newest row of each key counts."""
        return bool(self.log.key) and not self.log.adds_up and not self.log.tables

    @property
    def key_kinds(self) -> Schema:
        """Return the columns of the key with their types."""
        return {name: self.schema.columns[name] for name in self.log.key}

    def key_hashes(self) -> Iterator[tuple[InputFile, bytes]]:
        """Yield the files that were read as a whole, with the hashes of their keys, where these were noted."""
        for at, file in enumerate(self.listing.to_read if self.keys is not None else ()):
            if self.keys is not None and (content := self.keys.content(at, self._times()[at].rows)) is not None:
                yield file, content

    def _held_times(self, piece: FilePiece) -> pl.DataFrame | None:
        """Return the times of a piece's rows, None where they are to be read."""
        surveyed = [self._times()[at] for at in piece.files]
        held = [times.frame for times in surveyed if times.frame is not None]
        if len(held) < len(surveyed):
            return None
        return pl.concat(held) if piece.first is None else held[0].slice(piece.first, piece.count)

    def where(self, condition: RowCondition, most: int) -> Iterator[tuple[InputFile, list[int]]]:
        """Yield each file to read, with the numbers of the rows that match a condition, also of those that can't be read as a whole.

        At most `most` rows are read at once, of files that are alike together.
        """
        whole: dict[tuple[object, ...], list[int]] = {}
        apart: list[tuple[int, int]] = []
        for at, (path, found) in enumerate(zip(self._paths, self._found, strict=True)):
            if at in self._growing:
                apart.append((at, 0))
            elif self._times()[at].rows:
                whole.setdefault(self._tables.alike(path, found), []).append(at)
        numbers: dict[int, set[int]] = {}
        for piece in self._pieces((), whole.values(), most, apart):
            for at, holding in self._holding(piece, condition):
                numbers.setdefault(at, set()).update(holding)
        for at, (file, path) in enumerate(zip(self.listing.to_read, self._paths, strict=True)):
            yield file, self._of_unparsed(path, condition, sorted(numbers.get(at, ())))

    def _of_unparsed(self, path: Path, condition: RowCondition, numbers: list[int]) -> list[int]:
        """Return the numbers of a file's rows for which a condition holds, as it may for rows that can't be read: these have numbers of their own."""
        if (unparsed := self.unparsed.get(path)) is None:
            return numbers
        left = unparsed.drop(condition)[0].numbers
        numbers = [self._tables.number(path, number) for number in numbers]
        return sorted({*numbers, *unparsed.numbers} - {*left})

    def without_rows(self, path: Path, numbers: Collection[int]) -> bytes:
        """Return the content of a file without rows that `where` has found."""
        from ddcli.store.tables.text_kind import without_rows

        return without_rows(path, self._tables.kind(path), numbers, self.log.dialect)

    def _holding(self, piece: FilePiece, condition: RowCondition) -> Iterator[tuple[int, list[int]]]:
        """Yield the files of a piece that have rows for which a condition holds, with the numbers of these rows."""
        paths, found, times = (
            [self._paths[at] for at in piece.files],
            self._found[piece.files[0]],
            self._held_times(piece),
        )
        rows = self._rows.read(paths, found, condition.columns, (piece.first, piece.count), times, None)
        holding = (~condition.keeps(rows.frame)).arg_true()
        numbers = (holding if rows.rows is None else rows.rows[holding]).unique().sort() + (piece.first or 0)
        start = 0
        for at in piece.files:
            end = start + self._times()[at].rows
            some = numbers if len(piece.files) == 1 else numbers.filter(numbers.is_between(start, end, "left")) - start
            if len(some):
                yield at, some.to_list()
            start = end

    def _numbers(self, at: int, condition: RowCondition) -> set[int]:
        """Return the numbers of a file's rows for which a condition holds."""
        pieces = [FilePiece((at,), rows, first) for first, rows in cut(0, self._times()[at].rows, CHUNK)]
        return {number for piece in pieces for _, numbers in self._holding(piece, condition) for number in numbers}

    def kept(self) -> dict[str, Any]:
        """Return the JSON that a manifest keeps of the log beside its files."""
        newest = self.tables.newest if self.tables is not None else None
        kept: dict[str, Any] = {"newest": [newest.order, newest.at]} if newest is not None else {}
        if self.log.former:
            kept["former"] = {name: list(others) for name, others in self.log.former.items()}
            kept |= {"optional": list(self.log.absent)} if self.log.absent else {}
        return self.schema.to_json() | kept | ({"pinned": self.pinned.to_json()} if self.pinned is not None else {})

    @cached_property
    def tables(self) -> NewestTables | None:
        """The tables that count, of a log of tables that have the time at which they arrived."""
        if not self.log.tables or ARRIVAL not in self.log.time:
            return None
        files, ordered = self.listing.to_read, cast("SnapshotsFormat", self.log).orders is not None
        return by_order(files, self._greatest_order, self._known_newest) if ordered else by_name(files)

    def _greatest_order(self, at: int) -> int | None:
        """Return the greatest order of a file's rows; for a file without rows its path's, None if the path has none."""
        path, names, rows = self._paths[at], cast("SnapshotsFormat", self.log).ordering(), self._times()[at].rows
        passed = self._numbers(at, self.without) if self.without is not None else ()
        if len(passed) == rows:
            values = self._tables.from_path(path, names)
            return None if values is None else self._rows.greatest(path, values)
        greatest = []
        for first in range(0, rows, CHUNK):
            frame = self._tables.collect([path], names, (first, CHUNK))
            if passed:
                frame = frame.filter(pl.Series([number not in passed for number in range(first, first + frame.height)]))
            if frame.height:
                greatest.append(self._rows.greatest(path, frame, first))
        return max(greatest)

    def _arrived(self, piece: FilePiece) -> pl.Series | int | None:
        """Return the order that decides which of a piece's rows is the newest where times don't: the order of arrival, or of their table."""
        if self.tables is not None:
            return self.tables.files[piece.files[0]]
        if ARRIVAL not in self.log.time or not self.log.key:
            return None
        counts = [self._times()[at].rows for at in piece.files]
        return arrival_order(piece, counts, self._ranks)

    @cached_property
    def _ranks(self) -> list[int]:
        """The place of each file in the order of their names."""
        return ranks([file.path for file in self.listing.to_read])
