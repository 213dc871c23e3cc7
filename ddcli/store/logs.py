"""Reading change logs: the rows of an interval of times, checked.

What a file must not hold (nulls where none may be, values that don't fit, rows at a time that was closed) refuses the whole
run, naming file, column and first row. That row is only searched for once a cheap count has shown that there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.errors import InputError
from ddcli.store.log_schema import INT64, LogFormat, LogSchema, check_file, damaged, first_schema, read_footer
from ddcli.store.widening import widen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Type
    from ddcli.store.listing import Listing
    from ddcli.store.manifest import InputFile, Times

    Matrix = np.ndarray[Any, np.dtype[np.int64]]
    Mask = np.ndarray[Any, np.dtype[np.bool_]]


class FileTimes:
    """The times of one file as a matrix (n, nt) of physical integers."""

    def __init__(self, coordinates: Sequence[Matrix]) -> None:
        first = coordinates[0]
        self.matrix = first.reshape(-1, 1) if len(coordinates) == 1 else np.stack(coordinates, axis=1)
        self.least = self.matrix.min(axis=0) if len(first) else None
        self.largest = self.matrix.max(axis=0) if len(first) else None

    def at_or_after(self, frontier: Times) -> Mask | None:
        """Return which rows are at or after a frontier, or None when none is: usually seen from the largest coordinates."""
        if self.largest is None or not any((self.largest >= time).all() for time in frontier):
            return None
        mask = _at_or_after(self.matrix, frontier)
        return mask if mask.any() else None

    def before(self, frontier: Times) -> Mask | None:
        """Return which rows are not at or after a frontier, or None when none is: usually seen from the least coordinates."""
        if self.least is None or any((self.least >= time).all() for time in frontier):
            return None
        mask = ~_at_or_after(self.matrix, frontier)
        return mask if mask.any() else None


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows of some files."""

    frame: pl.DataFrame
    diffs: Matrix
    times: Matrix


@dataclass(frozen=True, slots=True)
class LogRead:
    """The updates of an interval: data columns, times as physical integers (n, nt) and diffs (n,); and `files`, all files
    of the input with the marks that the next manifest is to have. The arrays may be read-only.
    """

    frame: pl.DataFrame
    times: Matrix
    diffs: Matrix
    files: tuple[InputFile, ...]


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
        return tuple(np.max(largest, axis=0).tolist()) if largest else None

    def read(self, columns: Iterable[str], lower: Times | None, upper: Times) -> LogRead:
        """Return the updates at or after `lower` (None: from the beginning) and not at or after `upper`.

        Only `columns` are read. Rows at or after `upper` stay in their files for a later run; a row before `lower` in a file
        that was never taken from is late.
        """
        columns = list(columns)
        files = list(self.listing.done)
        whole: dict[tuple[tuple[str, pl.DataType], ...], list[int]] = {}  # files whose footers agree exactly: one scan
        reads = []
        for at, (file, times) in enumerate(zip(self.listing.to_read, self._times(), strict=True)):
            late = None if lower is None else times.before(lower)
            if late is not None and at >= len(self.listing.waiting):
                raise self._late(self._paths[at], times.matrix, int(late.argmax()), lower or ())
            left = times.at_or_after(upper)
            files.append(replace(file, done=left is None))
            if late is None and left is None:
                whole.setdefault(tuple(self._found[at].items()), []).append(at)
            else:
                reads += self._read_part(at, columns, late, left)
        reads += [self._read_whole(group, columns) for group in whole.values()]
        if not reads:
            schema = {name: self.schema.columns[name].to_polars() for name in columns}
            reads = [
                _Rows(
                    pl.DataFrame(schema=schema), np.empty(0, np.int64), np.empty((0, len(self.schema.time)), np.int64)
                )
            ]
        frame = pl.concat([rows.frame for rows in reads])
        matrix, diffs = _stack([rows.times for rows in reads]), _stack([rows.diffs for rows in reads])
        return LogRead(frame, matrix, diffs, tuple(sorted(files, key=lambda file: file.path)))

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
            names = list(self.schema.time)
            self._surveyed = []
            for path in self._paths:
                raw = _collect([path], names)
                _refuse_nulls(path, raw, names, "time column")
                self._surveyed.append(
                    FileTimes([_physical(path, raw[name], wanted) for name, wanted in self.schema.time.items()])
                )
        return self._surveyed

    def _late(self, path: Path, times: Matrix, row: int, lower: Times) -> InputError:
        closed = " or ".join(self._show(time) for time in lower) or "the end: the input was closed"
        return InputError(
            f"late rows: row {row} (counted from 0) has the time {self._show(times[row].tolist())}, which is before {closed}, "
            "up to where earlier runs have closed the times",
            place=str(path),
            hint="a new file may only hold rows at times that are still open; leave times open for rows to come with `--until`",
        )

    def _show(self, time: Sequence[int]) -> str:
        """Return a time as people write it."""
        values = []
        for value, column in zip(time, self.schema.time.values(), strict=True):
            physical = pl.Series([value], dtype=pl.Int32 if column.kind == "date" else pl.Int64)
            values.append(str(physical.cast(column.to_polars())[0]))
        return values[0] if len(values) == 1 else f"({', '.join(values)})"

    def _needed(self, columns: Sequence[str]) -> list[str]:
        return list(dict.fromkeys([*columns, self.log.diff] if self.schema.diff else columns))

    def _read_whole(self, group: Sequence[int], columns: Sequence[str]) -> _Rows:
        paths = [self._paths[at] for at in group]
        times = _stack([self._times()[at].matrix for at in group])
        return _Rows(*self._typed(paths, self._raw(paths, columns, 0, len(times)), columns), times)

    def _read_part(self, at: int, columns: Sequence[str], late: Mask | None, left: Mask | None) -> list[_Rows]:
        """Read some rows of a file: as a slice, so that of a file in order of time only the row groups that count are read."""
        path, times = self._paths[at], self._times()[at].matrix
        taken = np.ones(len(times), np.bool_)
        for mask in (late, left):
            if mask is not None:
                taken &= ~mask
        rows = np.flatnonzero(taken)
        if not len(rows):
            return []
        first, end = int(rows[0]), int(rows[-1]) + 1
        raw = self._raw([path], columns, first, end).filter(pl.Series(taken[first:end]))
        return [_Rows(*self._typed([path], raw, columns), times[taken])]

    def _raw(self, paths: Sequence[Path], columns: Sequence[str], first: int, end: int) -> pl.DataFrame:
        """Return the rows [first, end) of files as they are, data and diff columns only."""
        needed = list(dict.fromkeys([*columns, self.log.diff] if self.schema.diff else columns))
        if not needed:
            return pl.DataFrame(height=end - first)
        raw = _collect(paths, needed, slice(first, end))
        if raw.height != end - first:
            raise InputError("the file changed while it was read", place=str(paths[0]), hint="run again")
        return raw

    def _typed(self, paths: Sequence[Path], raw: pl.DataFrame, columns: Sequence[str]) -> tuple[pl.DataFrame, Matrix]:
        """Return the data columns in their types, and the diffs. Refuses nulls where none may be."""
        required = [name for name in columns if not self.schema.columns[name].nullable]
        diff = [self.log.diff] if self.schema.diff else []
        if any(raw[name].null_count() for name in [*required, *diff]):
            for path in paths:  # rows are counted in their own file, from its beginning
                whole = _collect([path], [*required, *diff])
                _refuse_nulls(path, whole, required, "column")
                _refuse_nulls(path, whole, diff, "diff column")
        series = [_fit(paths, raw[name], self.schema.columns[name]) for name in columns]
        frame = pl.DataFrame(series) if series else pl.DataFrame(height=raw.height)
        return frame, _fit(paths, raw[diff[0]], INT64).to_numpy() if diff else np.ones(raw.height, np.int64)


def _collect(paths: Sequence[Path], columns: Sequence[str], rows: slice | None = None) -> pl.DataFrame:
    """Read columns of files that agree exactly, or name the first of them that is damaged."""
    names = list(dict.fromkeys(columns))
    scan = pl.scan_parquet(list(paths), glob=False, hive_partitioning=False).select(names)
    if rows:
        scan = scan.slice(rows.start, rows.stop - rows.start)
    try:
        return scan.collect()
    except OSError as error:
        raise InputError(
            f"the file can't be read: {error.strerror or error}", place=str(error.filename or paths[0])
        ) from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        for path in paths if len(paths) > 1 else ():
            _collect([path], columns)
        raise damaged(paths[0], error) from None


def _refuse_nulls(path: Path, frame: pl.DataFrame, names: Iterable[str], what: str) -> None:
    for name in names:
        if frame[name].null_count():
            row = frame[name].is_null().arg_max()
            raise InputError(
                f"{what} '{name}' has a null, first in row {row} (counted from 0)",
                place=str(path),
                hint="a column declared with '?' may hold nulls, as in `int64?`"
                if what == "column"
                else "each row must have one",
            )


def _fit(paths: Sequence[Path], series: pl.Series, wanted: Type) -> pl.Series:
    """Return a column in its type; where a value is out of the type's range, name the file that has it and the first row."""
    try:
        return widen(series, wanted)
    except OverflowError:
        for path in paths:
            whole = _collect([path], [series.name])[series.name]
            for row in range(len(whole)):
                if not _fits(whole[row : row + 1], wanted):
                    raise InputError(
                        f"column '{series.name}' has a value out of the range of {wanted}: {whole[row]}, first in row {row} "
                        "(counted from 0)",
                        place=str(path),
                    ) from None
        raise


def _fits(series: pl.Series, wanted: Type) -> bool:
    try:
        widen(series, wanted)
    except OverflowError:
        return False
    return True


def _physical(path: Path, series: pl.Series, wanted: Type) -> Matrix:
    """Return a time column as int64."""
    return _fit([path], series, wanted).to_physical().cast(pl.Int64).to_numpy()


def _stack(arrays: Sequence[Matrix]) -> Matrix:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _at_or_after(times: Matrix, frontier: Times) -> Mask:
    mask = np.zeros(len(times), np.bool_)
    for bound in frontier:
        mask |= (times >= np.array(bound)).all(axis=1) if len(bound) > 1 else times[:, 0] >= bound[0]
    return mask
