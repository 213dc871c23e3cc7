"""Reading change logs: the rows of an interval of times, checked, in slices as large as wanted.

What a file must not hold (nulls where none may be, values that don't fit, rows at a time that was closed) refuses the whole
run, naming file, column and first row. That row is only searched for once a cheap count has shown that there is one.

What is surveyed before (times, for the upper and for what is late or left) is what a slice needs again: for a log that may
be held in memory the times are kept, for a larger one only their bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.engine.lanes import encode
from ddcli.engine.times import Frontier
from ddcli.errors import InputError
from ddcli.store.log_schema import INT64, LogFormat, LogSchema, check_file, first_schema
from ddcli.store.log_times import FileTimes, physical, survey, within
from ddcli.store.tables import collect, fit, read_footer, refuse_nulls
from ddcli.store.time_text import format_frontier, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.store.listing import Listing
    from ddcli.store.manifest import InputFile, Times

    Matrix = np.ndarray[Any, np.dtype[np.int64]]
    Interval = tuple[Times | None, Times]


@dataclass(frozen=True, slots=True)
class Rows:
    """Updates: data columns, times as columns of physical integers, diffs.

    What is read stays in the chunks it was read in: putting 10 M integers in one piece costs 50 ms in fresh memory alone.
    """

    frame: pl.DataFrame
    diffs: pl.Series
    times: pl.DataFrame

    def matrix(self, layout: Layout, pool: Pool) -> Matrix:
        """Return `[data lanes | time lanes | diff]`, the data as a layout has it."""
        nt = self.times.width
        matrix = np.empty((len(self.diffs), layout.width + nt + 1), np.int64)
        encode(self.frame, layout, pool, matrix)
        for lane, series in enumerate([*self.times, self.diffs], start=layout.width):
            row = 0
            for chunk in series.get_chunks():
                matrix[row : row + len(chunk), lane] = chunk.to_numpy()
                row += len(chunk)
            assert row == len(matrix), f"{len(matrix)} rows of room for {row}"
        return matrix


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some rows of files whose footers agree: all of them, or `count` of one file from the row `first`.

    `partly`: of these rows, only those of the interval.
    """

    files: tuple[int, ...]
    count: int
    first: int | None = None
    partly: bool = False


@dataclass(frozen=True)
class Slice:
    """Some of an interval's updates, not read yet: `rows` of them, or fewer. Threads may read different slices at once."""

    reader: LogReader
    columns: tuple[str, ...]
    pieces: tuple[_Piece, ...]
    interval: Interval

    @property
    def rows(self) -> int:
        """How many updates there are, at most."""
        return sum(piece.count for piece in self.pieces)

    def read(self) -> Rows:
        """Return the updates, their data in the columns that were asked for."""
        return self.reader.read(self)

    def matrix(self, layout: Layout, pool: Pool) -> Matrix:
        """Return the updates as `[data lanes | time lanes | diff]`."""
        return self.read().matrix(layout, pool)


@dataclass(frozen=True, slots=True)
class Taken:
    """The updates of an interval, `rows` of them or fewer, and all files with the marks that the next manifest is to have."""

    slices: list[Slice]
    files: tuple[InputFile, ...]

    @property
    def rows(self) -> int:
        """How many updates there are, at most."""
        return sum(each.rows for each in self.slices)


class LogReader:
    """Reads what is new in one log. Footers are read and checked when it is made, times when they are first asked for.

    `known` is the schema of earlier runs, which new files must have too; a wider time type may be put into it. `most` is how
    many rows may be in memory at once, None: all. Raises InputError here and in every method.
    """

    def __init__(
        self, listing: Listing, log: LogFormat, known: LogSchema | None = None, most: int | None = None
    ) -> None:
        self.listing = listing
        self.log = log
        self.most = most
        self._paths = [listing.path(file) for file in listing.to_read]
        self._found = [read_footer(path) for path in self._paths]
        self.schema = self._schema(known)
        for path, found in zip(self._paths, self._found, strict=True):
            check_file(log, self.schema, path, found)
        self._surveyed: list[FileTimes] | None = None

    def largest_time(self) -> tuple[int, ...] | None:
        """Return the largest value of each time coordinate in the files to read, or None when they have no rows.

        From the time columns, which are read anyway: statistics in footers are optional, and polars hands none out.
        """
        largest = [times.largest for times in self._times() if times.largest is not None]
        return tuple(max(values) for values in zip(*largest, strict=True)) or None

    def take(self, columns: Iterable[str], lower: Times | None, upper: Times, most: int | None = None) -> Taken:
        """Take the updates at or after `lower` (None: from the beginning) and not at or after `upper`, to be read by slices.

        A slice has at most `most` rows, or any number; where all are in one, it is one quick read. Only `columns` are read.
        Rows at or after `upper` stay in their files for a later run; a row before `lower` in a file that was never taken
        from is late.
        """
        files = list(self.listing.done)
        whole: dict[tuple[tuple[str, pl.DataType], ...], list[int]] = {}  # files whose footers agree exactly: one scan
        partly = []
        for at, (file, known) in enumerate(zip(self.listing.to_read, self._times(), strict=True)):
            late = lower is not None and known.any_before(lower)
            if late and at >= len(self.listing.waiting):
                raise self._late(known, lower or ())
            left = known.any_at_or_after(upper)
            files.append(replace(file, done=not left))
            if not known.rows:
                continue
            if late or left:
                partly.append(at)
            else:
                whole.setdefault(tuple(self._found[at].items()), []).append(at)
        interval = lower, upper
        pieces = self._pieces(partly, whole.values(), interval, most)
        slices = [Slice(self, tuple(columns), part, interval) for part in _packed(pieces, most)]
        if len(slices) > 1:
            for known in self._times():
                known.forget()
        return Taken(slices, tuple(sorted(files, key=lambda file: file.path)))

    def read(self, part: Slice) -> Rows:
        """Return the updates of a slice."""
        reads = [self._piece(piece, part.columns, part.interval) for piece in part.pieces]
        if len(reads) == 1:
            return reads[0]
        frames, diffs, times = ([getattr(rows, name) for rows in reads] for name in ("frame", "diffs", "times"))
        return Rows(pl.concat(frames), pl.concat(diffs), pl.concat(times))

    def _schema(self, known: LogSchema | None) -> LogSchema:
        log, listing = self.log, self.listing
        if known and known.diff is not None and tuple(known.time) == log.time:
            return known if log.columns is None else replace(known, columns=log.columns)
        if self._paths:
            return first_schema(log, self._paths[0], self._found[0])
        if listing.done:
            path = listing.path(listing.done[0])
            return first_schema(log, path, read_footer(path))
        if log.columns is None:
            raise InputError(
                "the log has no files yet, so its columns are unknown",
                place=str(listing.root),
                hint="declare them under the input's `columns`",
            )
        return LogSchema(log.columns, dict.fromkeys(log.time, INT64), None)

    def _times(self) -> list[FileTimes]:
        """Return the times of each file, checked for nulls; read once."""
        if self._surveyed is None:
            self._surveyed = survey(self._paths, self.schema.time, self.most)
        return self._surveyed

    def _late(self, times: FileTimes, lower: Times) -> InputError:
        row, first = times.first_before(lower)
        kinds = list(self.schema.time.values())
        closed = format_frontier(Frontier(lower), kinds) if lower else "the end: the input was closed"
        return InputError(
            f"late rows: row {row} (counted from 0) has the time {format_time(first, kinds)}, which is before {closed}, up to "
            "where earlier runs have closed the times",
            place=str(times.path),
            hint="a new file may only hold rows at times that are still open; leave times open for rows to come with `--until`",
        )

    def _pieces(
        self, partly: list[int], whole: Iterable[list[int]], interval: Interval, most: int | None
    ) -> Iterator[_Piece]:
        """Give what is to be read of the files, each piece of at most `most` rows."""
        surveyed = self._times()
        for at in partly:
            first, count = surveyed[at].bounds(*interval)
            for start, rows in _cut(first, count, most):
                yield _Piece((at,), rows, start, partly=True)
        for group in whole:
            together: list[int] = []
            count = 0
            for at in group:
                rows = surveyed[at].rows
                if most is not None and count + rows > most and together:
                    yield _Piece(tuple(together), count)
                    together, count = [], 0
                if most is not None and rows > most:
                    yield from [_Piece((at,), part, start) for start, part in _cut(0, rows, most)]
                else:
                    together.append(at)
                    count += rows
            if together:
                yield _Piece(tuple(together), count)

    def _piece(self, piece: _Piece, columns: Sequence[str], interval: Interval) -> Rows:
        """Read a piece: part of a file as a slice, so that only the row groups that count are read."""
        surveyed = [self._times()[at] for at in piece.files]
        paths = [self._paths[at] for at in piece.files]
        held = [times.frame for times in surveyed if times.frame is not None]
        again = {} if len(held) == len(surveyed) else self.schema.time
        raw = self._raw(paths, [*columns, *again], piece.count, piece.first)
        if again:
            times = physical(paths, raw, again)
        else:
            times = pl.concat(held) if piece.first is None else held[0].slice(piece.first, piece.count)
        if piece.partly:
            mask = times.select(within(self.schema.time, *interval)).to_series()
            raw, times = raw.filter(mask), times.filter(mask)
        return Rows(*self._typed(paths, raw, columns), times)

    def _raw(self, paths: Sequence[Path], columns: Sequence[str], count: int, first: int | None = None) -> pl.DataFrame:
        """Return the data and diff columns of files as they are: `count` rows from the first, or (None) all, which are as many."""
        needed = list(dict.fromkeys([*columns, self.log.diff] if self.schema.diff else columns))
        if not needed:
            return pl.DataFrame(height=count)
        raw = collect(paths, needed, None if first is None else (first, count))
        if raw.height != count:
            raise InputError("the file changed while it was read", place=str(paths[0]), hint="run again")
        return raw

    def _typed(
        self, paths: Sequence[Path], raw: pl.DataFrame, columns: Sequence[str]
    ) -> tuple[pl.DataFrame, pl.Series]:
        """Return the data columns in their types, and the diffs. Refuses nulls where none may be."""
        required = [name for name in columns if not self.schema.columns[name].nullable]
        diff = [self.log.diff] if self.schema.diff else []
        if any(raw[name].null_count() for name in [*required, *diff]):
            for path in paths:  # rows are counted in their own file, from its beginning
                whole = collect([path], [*required, *diff])
                refuse_nulls(path, whole, required, "column")
                refuse_nulls(path, whole, diff, "diff column")
        series = [fit(paths, raw[name], self.schema.columns[name]) for name in columns]
        frame = pl.DataFrame(series) if series else pl.DataFrame(height=raw.height)
        ones = pl.repeat(1, raw.height, dtype=pl.Int64, eager=True)
        return frame, fit(paths, raw[diff[0]], INT64) if diff else ones


def _cut(first: int, count: int, most: int | None) -> Iterator[tuple[int, int]]:
    """Give first row and number of rows of the parts of a range."""
    size = count if most is None else most
    for start in range(first, first + count, size or 1):
        yield start, min(size, first + count - start)


def _packed(pieces: Iterable[_Piece], most: int | None) -> list[tuple[_Piece, ...]]:
    """Put pieces together as long as they have at most so many rows."""
    packed: list[tuple[_Piece, ...]] = []
    room = 0
    for piece in pieces:
        if packed and (most is None or piece.count <= room):
            packed[-1] += (piece,)
        else:
            packed.append((piece,))
            room = most or 0
        room -= piece.count
    return packed
