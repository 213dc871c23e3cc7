"""Reading change logs: the rows of an interval of times, checked.

What a file must not hold (nulls where none may be, values that don't fit, rows at a time that was closed) refuses the whole
run, naming file, column and first row. That row is only searched for once a cheap count has shown that there is one.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.engine.times import Frontier, less_equal
from ddcli.errors import InputError
from ddcli.store.log_schema import INT64, LogFormat, LogSchema, check_file, first_schema
from ddcli.store.parquet import collect, collect_each, fit, read_footer, refuse_nulls
from ddcli.store.time_text import format_frontier, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy as np

    from ddcli.expressions.types import Schema
    from ddcli.store.listing import Listing
    from ddcli.store.manifest import InputFile, Times

    Matrix = np.ndarray[Any, np.dtype[np.int64]]


class FileTimes:
    """The times of one file: a column of physical integers a coordinate, without nulls."""

    def __init__(self, path: Path, raw: pl.DataFrame, schema: Schema) -> None:
        refuse_nulls(path, raw, schema, "time column")
        self.frame = pl.DataFrame(
            [fit([path], raw[name], wanted).to_physical().cast(pl.Int64) for name, wanted in schema.items()]
        )
        self.least: tuple[int, ...] | None = self.frame.min().row(0) if raw.height else None
        self.largest: tuple[int, ...] | None = self.frame.max().row(0) if raw.height else None

    def at_or_after(self, frontier: Times) -> pl.Series | None:
        """Return which rows are at or after a frontier, or None when none is: usually seen from the largest coordinates."""
        if self.largest is None or not any(less_equal(bound, self.largest) for bound in frontier):
            return None
        mask = self._mask(frontier)
        return mask if mask.any() else None

    def before(self, frontier: Times) -> pl.Series | None:
        """Return which rows are not at or after a frontier, or None when none is: usually seen from the least coordinates."""
        if self.least is None or any(less_equal(bound, self.least) for bound in frontier):
            return None
        mask = ~self._mask(frontier)
        return mask if mask.any() else None

    def _mask(self, frontier: Times) -> pl.Series:
        mask = pl.Series("after", [False]).new_from_index(0, self.frame.height)
        for bound in frontier:
            after = [lane >= value for lane, value in zip(self.frame, bound, strict=True)]
            mask |= reduce(operator.and_, after)
        return mask


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of some files: data, diffs, times."""

    frame: pl.DataFrame
    diffs: pl.Series
    times: pl.DataFrame


@dataclass(frozen=True, slots=True)
class LogRead:
    """The updates of an interval: data columns, times as columns of physical integers, diffs; and `files`, all files of the
    input with the marks that the next manifest is to have.

    What is read stays in the chunks it was read in: putting 10 M integers in one piece costs 50 ms in fresh memory alone.
    """

    frame: pl.DataFrame
    times: pl.DataFrame
    diffs: pl.Series
    files: tuple[InputFile, ...]

    def fill(self, matrix: Matrix) -> None:
        """Write times and diffs into the last lanes of a matrix (rows, any + nt + 1), chunk by chunk."""
        for lane, series in enumerate([*self.times, self.diffs], start=matrix.shape[1] - self.times.width - 1):
            row = 0
            for chunk in series.get_chunks():
                matrix[row : row + len(chunk), lane] = chunk.to_numpy()
                row += len(chunk)
            assert row == len(matrix), f"{len(matrix)} rows of room for {row}"


class LogReader:
    """Reads what is new in one log. Footers are read and checked when it is made, times when they are first asked for.

    `known` is the schema of earlier runs, which new files must have too; a wider time type may be put into it. Raises
    InputError here and in every method.
    """

    def __init__(self, listing: Listing, log: LogFormat, known: LogSchema | None = None) -> None:
        self.listing = listing
        self.log = log
        self._paths = [listing.path(file) for file in listing.to_read]
        self._found = [read_footer(path) for path in self._paths]
        self.schema = self._schema(known)
        for path, found in zip(self._paths, self._found, strict=True):
            check_file(log, self.schema, path, found)
        self._surveyed: list[FileTimes] | None = None

    def largest_time(self) -> tuple[int, ...] | None:
        """Return the largest value of each time coordinate in the files to read, or None when they have no rows.

        From the time columns, which `read` needs anyway: statistics in footers are optional, and polars hands none out.
        """
        largest = [times.largest for times in self._times() if times.largest is not None]
        return tuple(max(values) for values in zip(*largest, strict=True)) or None

    def read(self, columns: Iterable[str], lower: Times | None, upper: Times) -> LogRead:
        """Return the updates at or after `lower` (None: from the beginning) and not at or after `upper`.

        Only `columns` are read. Rows at or after `upper` stay in their files for a later run; a row before `lower` in a file
        that was never taken from is late.
        """
        columns = list(columns)
        files = list(self.listing.done)
        whole: dict[tuple[tuple[str, pl.DataType], ...], list[int]] = {}  # files whose footers agree exactly: one scan
        reads = []
        for at, (file, known) in enumerate(zip(self.listing.to_read, self._times(), strict=True)):
            late = None if lower is None else known.before(lower)
            if late is not None and at >= len(self.listing.waiting):
                raise self._late(self._paths[at], known, late, lower or ())
            left = known.at_or_after(upper)
            files.append(replace(file, done=left is None))
            if late is None and left is None:
                whole.setdefault(tuple(self._found[at].items()), []).append(at)
            else:
                reads += self._read_part(at, columns, late, left)
        reads += [self._read_whole(group, columns) for group in whole.values()]
        if not reads:
            schema = {name: self.schema.columns[name].to_polars() for name in columns}
            empty = pl.DataFrame(schema=dict.fromkeys(self.schema.time, pl.Int64))
            reads = [_Rows(pl.DataFrame(schema=schema), pl.Series("diff", [], pl.Int64), empty)]
        frame = pl.concat([rows.frame for rows in reads])
        times, diffs = pl.concat([rows.times for rows in reads]), pl.concat([rows.diffs for rows in reads])
        return LogRead(frame, times, diffs, tuple(sorted(files, key=lambda file: file.path)))

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
        """Return the times of each file, checked for nulls; read once and kept."""
        if self._surveyed is None:
            frames = collect_each(self._paths, list(self.schema.time))
            self._surveyed = [FileTimes(*file, self.schema.time) for file in zip(self._paths, frames, strict=True)]
        return self._surveyed

    def _late(self, path: Path, times: FileTimes, late: pl.Series, lower: Times) -> InputError:
        row, kinds = late.arg_max() or 0, list(self.schema.time.values())
        closed = format_frontier(Frontier(lower), kinds) if lower else "the end: the input was closed"
        time = format_time(times.frame.row(row), kinds)
        return InputError(
            f"late rows: row {row} (counted from 0) has the time {time}, which is before {closed}, up to where earlier runs "
            "have closed the times",
            place=str(path),
            hint="a new file may only hold rows at times that are still open; leave times open for rows to come with `--until`",
        )

    def _read_whole(self, group: Sequence[int], columns: Sequence[str]) -> _Rows:
        paths = [self._paths[at] for at in group]
        times = pl.concat([self._times()[at].frame for at in group])
        return _Rows(*self._typed(paths, self._raw(paths, columns, times.height), columns), times)

    def _read_part(
        self, at: int, columns: Sequence[str], late: pl.Series | None, left: pl.Series | None
    ) -> list[_Rows]:
        """Read some rows of a file: as a slice, so that of a file in order of time only the row groups that count are read."""
        path, times = self._paths[at], self._times()[at].frame
        out = late if left is None else left if late is None else late | left
        assert out is not None, "a file that is taken in full is read whole"
        rows = (~out).arg_true()
        if rows.is_empty():
            return []
        first = rows[0]
        count = rows[-1] + 1 - first
        raw = self._raw([path], columns, count, first).filter(~out.slice(first, count))
        return [_Rows(*self._typed([path], raw, columns), times.filter(~out))]

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
