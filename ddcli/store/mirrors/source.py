"""The base of all tables of other programs: their rows as updates, in the columns of the mirror; and the rows of a query of a database.

Databases keep no past that a reader could ask for. So all rows that a query returns are compared with the mirror; or only those with
greater values in a column that grows are read, and deleted rows are not noticed.
"""

from __future__ import annotations

import time as clock
from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl

from ddcli.errors import InputError
from ddcli.store.files.access import reading
from ddcli.store.files.gate import checksum
from ddcli.store.log.schema import type_of
from ddcli.store.log.writer import in_columns
from ddcli.store.mirrors.cancellation import DIFF, consolidated
from ddcli.store.mirrors.mirror import MirrorCursor, UnknownChange, together
from ddcli.store.scratch.buckets import partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.store.log.rows import RowCondition
    from ddcli.store.mirrors.mirror import Additions
    from ddcli.store.mirrors.query_reader import QueryReader

VERSION, COMMITTED = "_commit_version", "_commit_timestamp"
OWN = {VERSION: pl.Int64(), COMMITTED: pl.Datetime("us", "UTC"), DIFF: pl.Int64()}
"""The columns of a mirror beside the table's."""
BEGIN = "`dd reset PIPELINE --outputs` starts again with the table as it is"
MICRO = 1_000_000


def labelled(frames: Iterable[pl.DataFrame], columns: Schema, end: MirrorCursor) -> Iterator[pl.DataFrame]:
    """Yield updates at a version, in the columns of a mirror. Rows without a diff are inserts."""
    at = (pl.lit(end.version).alias(VERSION), pl.lit(end.committed).cast(OWN[COMMITTED]).alias(COMMITTED))
    diff = pl.lit(1, pl.Int64).alias(DIFF)
    for frame in frames:
        whole = frame.with_columns(*at, *([] if DIFF in frame.columns else [diff]))
        yield whole.select(*columns, *(pl.col(name).cast(dtype) for name, dtype in OWN.items()))


class TableSource(ABC):
    """A table as it is now, at `place`. Columns of types that records can't have are left out."""

    identity: str
    version: int
    counts_from_rows = False
    """True: changes are those since the rows of the mirror, not since its mark."""
    key: tuple[str, ...] = ()
    """Columns that have other values in each row of the table."""
    numbers: Mapping[str, int] = {}
    """The numbers that identify its columns under any name, if the table has such numbers."""

    def __init__(self, place: str, found: Mapping[str, pl.DataType], nullable: Mapping[str, bool]) -> None:
        self.place = place
        self._nullable = nullable
        kinds = {name: type_of(dtype) for name, dtype in found.items()}
        self.columns: Schema = {name: kind.or_null() for name, kind in kinds.items() if kind is not None}
        if taken := sorted(OWN.keys() & self.columns.keys()):
            raise InputError(f"the table has a column '{taken[0]}', a name that its mirror needs", place=place)

    def check_identity(self, mark: MirrorCursor) -> None:
        """Raise InputError if a mark belongs to another table."""
        if mark.identity != self.identity:
            problem = "this is another table than the one that earlier runs have read: its identity is another"
            raise InputError(problem, place=self.place, hint=BEGIN)

    def _is_at(self, mark: MirrorCursor) -> bool:
        """Return whether a mark is of the table as it is now. Raises InputError where it is of another table, or its columns may not follow these."""
        self.check_identity(mark)
        self._check_columns(mark, [])
        now = {name: str(kind) for name, kind in self.columns.items()}
        return self.tip == mark.tip and now == mark.columns

    def _rolled_back(self, mark: MirrorCursor) -> InputError:
        """Return the error for a table whose version is before a cursor's, where each version counts."""
        problem = f"the table was rolled back to version {self.version}, and earlier runs have read {mark.version}"
        return InputError(
            problem, place=self.place, hint=f"under `clock: arrival` that is a change as any other; {BEGIN}"
        )

    @abstractmethod
    def changes(
        self, mark: MirrorCursor, mirrored: Sequence[Path], *, stepwise: bool
    ) -> tuple[MirrorCursor, Iterator[pl.DataFrame]] | None:
        """Return the mark that the updates since `mark`, or since these files, reach, and the updates, to be read one by one; None if nothing is newer.

        They are consolidated: with `stepwise` each version's, else all. Raises UnknownChange, also as they are read, if the
        table no longer has the versions or files that this takes: see `difference`.
        """

    @abstractmethod
    def _rows(self) -> Iterator[pl.DataFrame]:
        """Yield the table's rows as its package reads them."""

    @property
    def tip(self) -> str:
        """The tip of the newest version."""
        return self._tip(self.version)

    @abstractmethod
    def _tip(self, version: int) -> str:
        """Return the text that distinguishes a version from another table's, or from another past of this one."""

    @abstractmethod
    def _committed_now(self, least: int) -> int:
        """Return when the newest version was committed, in microseconds; no earlier than `least`."""

    def whole(self) -> tuple[MirrorCursor, Additions]:
        """Return the mark of the table as it is, and its rows."""
        end = self._mark(self.version, self._committed_now(0))
        return end, self._labelled(self._summed(self._rows(), []) if self.key else self._rows(), end)

    def difference(self, mark: MirrorCursor, mirrored: Sequence[Path]) -> tuple[MirrorCursor, Additions]:
        """Return the mark of the table as it is, and its difference from the sum of these files of a mirror."""
        self._check_columns(mark, [])
        end = self._mark(self.version, self._committed_now(mark.committed + 1))
        return end, self._labelled(self._summed(self._rows(), mirrored), end)

    def joined(
        self, mirrored: Sequence[Path], frames: Iterable[pl.DataFrame], end: MirrorCursor
    ) -> Iterator[pl.DataFrame]:
        """Yield the sum of files of a mirror and later updates, without rows that have come and gone."""
        kept = map(self._kept, mirrored)
        yield from self._labelled(self._consolidated(self._signed(chain(kept, frames), 1)), end)

    def _mark(self, version: int, committed: int) -> MirrorCursor:
        columns = {name: str(kind) for name, kind in self.columns.items()}
        numbers = {name: self.numbers[name] for name in self.columns if name in self.numbers}
        return MirrorCursor(self.identity, version, committed, columns, self._tip(version), numbers=numbers)

    def _labelled(self, frames: Iterable[pl.DataFrame], end: MirrorCursor) -> Iterator[pl.DataFrame]:
        """Yield updates at a version, in the columns of the mirror."""
        return labelled(frames, self.columns, end)

    def _signed(self, frames: Iterable[pl.DataFrame], sign: int) -> Iterator[pl.DataFrame]:
        """Yield rows with their diffs, times a sign."""
        for frame in frames:
            diff = pl.col(DIFF) if DIFF in frame.columns else pl.lit(1, pl.Int64)
            yield frame.select(*self.columns, (diff * sign).alias(DIFF))

    def _consolidated(self, frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield updates with different rows, none with the diff 0."""
        for (part,) in partition([frames], list(self.columns)):
            yield from consolidated(part)

    def _summed(
        self, rows: Iterable[pl.DataFrame], mirrored: Sequence[Path], *, of_keys: bool = False
    ) -> Iterator[pl.DataFrame]:
        """Yield the difference of rows from the sum of these files of a mirror; `of_keys`: only from their rows with a key of the given rows."""
        sides = [self._signed(rows, 1), self._signed(map(self._kept, mirrored), -1)]
        for new, kept in partition(sides, self.key or list(self.columns)):
            if self.key and new:
                found = pl.concat(new).select(self.key)
                self._check_key(found)
                kept = (
                    [each.join(found, on=self.key, how="semi", nulls_equal=True) for each in kept] if of_keys else kept
                )
            elif of_keys:
                continue
            yield from consolidated([*new, *kept])

    def _check_key(self, found: pl.DataFrame) -> None:
        twice = found.filter(found.is_duplicated())
        if twice.height:
            shown = ", ".join(f"{name} = {value}" for name, value in twice.row(0, named=True).items())
            hint = "leave rows out with a `query`, name more columns under `key`, or leave it out"
            raise InputError(f"several rows have one key: {shown}", place=self.place, hint=hint)

    def _framed(self, batches: Iterable[Any]) -> Iterator[pl.DataFrame]:
        """Yield batches of Arrow as frames of many rows, in the columns' types."""
        dtypes = pl.Schema(self._dtypes)
        return together(pl.DataFrame(batch).select(*self.columns).cast(dtypes) for batch in batches)

    @property
    def _dtypes(self) -> dict[str, pl.DataType]:
        return {name: kind.to_polars() for name, kind in self.columns.items()}

    def _kept(self, path: Path) -> pl.DataFrame:
        """Return the updates of a file of the mirror; columns that the table had not then are null."""
        (frame,) = frames_of([path.resolve()])  # a dry run has links to the files of the mirror
        return in_columns(frame, self.columns)

    def _check_columns(self, mark: MirrorCursor, described: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Refuse a table whose columns are gone or have other types, or that got some that can't be null; `described` are the columns of versions since then."""
        now = {name: str(kind) for name, kind in self.columns.items()}
        for name, kind in mark.columns.items():
            if name not in now:
                self._refuse(f"has no column '{name}' any more", name, described)
            if now[name] != kind:
                change = f"has '{name}' as {now[name].removesuffix('?')}, which was {kind.removesuffix('?')}"
                self._refuse(change, name, described)
            if self.renamed(mark, name):
                self._refuse(f"has another column under the name '{name}'", name, described)
        for name in now.keys() - mark.columns.keys():
            if not self._nullable[name]:
                self._refuse(f"has a new column '{name}' that can't be null", name, described)

    def renamed(self, mark: MirrorCursor, name: str) -> bool:
        """Return whether a name means another column now than when a mark was made."""
        return name in mark.numbers and mark.numbers[name] != self.numbers.get(name)

    def _refuse(self, change: str, name: str, described: Sequence[tuple[int, Mapping[str, Any]]]) -> NoReturn:
        last = described[-1][1].get(name) if described else None
        version = next((version for version, columns in described if columns.get(name) == last), self.version)
        problem = f"version {version} of the table {change}"
        raise InputError(problem, place=self.place, hint=f"added columns that may be null are read; {BEGIN}")


def selected(frame: pl.DataFrame, condition: RowCondition, columns: Schema) -> pl.DataFrame:
    """Return the rows for which a condition over these columns holds; a column that the table had not then is null."""
    missing = [pl.lit(None).alias(name) for name in condition.columns if name not in frame.columns]
    kinds = [pl.col(name).cast(columns[name].to_polars()) for name in condition.columns]
    return frame.filter(~condition.keeps(frame.with_columns(missing).select(kinds)))


def count_selected(frames: Iterable[pl.DataFrame], condition: RowCondition, columns: Schema) -> int:
    """Return for how many rows a condition holds."""
    return sum(selected(frame, condition, columns).height for frame in frames)


def count_left(files: Sequence[Path], condition: RowCondition, columns: Schema) -> int:
    """Return the number of distinct rows of the table that fulfil a condition, by these files of its mirror.

    Some of the first files may have lost such rows already, so that the sum of the others may be negative.
    """
    found = [selected(frame, condition, columns) for frame in frames_of(files)]
    found = [frame.drop(VERSION, COMMITTED) for frame in found if frame.height]
    if not found:
        return 0
    whole = pl.concat(found, how="diagonal")
    rows = [name for name in whole.columns if name != DIFF]
    return sum(frame.filter(pl.col(DIFF) > 0).height for frame in consolidated([whole.select(*rows, DIFF)]))


def frames_of(files: Iterable[Path]) -> Iterator[pl.DataFrame]:
    """Yield the rows of each file of a mirror."""
    for path in files:
        with reading(path) as file:
            yield pl.read_parquet(file)


class DatabaseSource(TableSource):
    """The present result of a query of a database. Its versions count the reads that found the database changed.

    With a `cursor` only rows whose value in this column is greater than all before are read. No two rows may have one `key`: with a cursor
    a row replaces the former one of its key, and rows with the greatest value so far are read again, as others may have joined them.
    """

    counts_from_rows = True

    def __init__(self, reader: QueryReader, query: str, cursor: str | None, key: Sequence[str]) -> None:
        super().__init__(reader.place, reader.kinds, dict.fromkeys(reader.kinds, True))
        self.version, self.key = 0, tuple(key)
        asked = (reader.uri, query, cursor, self.key) if key and cursor else (reader.uri, query, cursor)
        self.identity = f"{reader.place} {checksum(repr(asked).encode())}"
        self._reader, self._cursor, self._seen = reader, cursor, f"{self.identity} {reader.stamp}"
        for name, role in [*((name, "key") for name in key), *([(cursor, "cursor")] if cursor else [])]:
            if name not in self.columns:
                listed = f"its columns are: {', '.join(self.columns)}"
                raise InputError(f"the query has no column '{name}', its `{role}`", place=self.place, hint=listed)
        if cursor is not None and (hint := reader.unordered_cursor_hint(self.columns[cursor])):
            raise InputError(f"the cursor '{cursor}' is {self.columns[cursor]}", place=self.place, hint=hint)

    def changes(
        self, mark: MirrorCursor, mirrored: Sequence[Path], *, stepwise: bool
    ) -> tuple[MirrorCursor, Iterator[pl.DataFrame]] | None:
        self.version = mark.version + 1
        if self._cursor is None:
            raise UnknownChange
        if mark.identity != self.identity:
            problem = "earlier runs have read another database, by another query or without this `cursor` and `key`"
            raise InputError(problem, place=self.place, hint=BEGIN)
        self._check_columns(mark, [])
        if mark.columns.keys() != self.columns.keys():
            problem = "rows that were read before have no value in a column that is new"
            raise InputError(problem, place=self.place, hint=BEGIN)
        end = self._mark(self.version, self._committed_now(mark.committed + 1))
        rows = self._read(self._last(mirrored))
        if not self.key:
            return end, self._labelled(rows, end)
        return end, self._labelled(self._summed(rows, mirrored, of_keys=True), end)

    def _check_columns(self, mark: MirrorCursor, described: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """Refuse columns of other types; where all rows are compared, others may come and go."""
        now = {name: str(kind) for name, kind in self.columns.items()}
        for name, kind in mark.columns.items():
            if (name in now or self._cursor is not None) and now.get(name) != kind:
                found = f"is {now[name]}" if name in now else "is gone"
                raise InputError(f"the column '{name}' was {kind}, and {found}", place=self.place, hint=BEGIN)

    def _tip(self, version: int) -> str:
        return self._seen

    def _committed_now(self, least: int) -> int:
        return max(least, int(clock.time() * MICRO))

    def _rows(self) -> Iterator[pl.DataFrame]:
        return self._read(None)

    def _last(self, mirrored: Sequence[Path]) -> Any:
        """Return the greatest value of the cursor in files of the mirror."""
        assert self._cursor is not None, "it is asked for one"
        parts = [self._kept(path)[self._cursor].max() for path in mirrored]
        return max((part for part in parts if part is not None), default=None)

    def _read(self, last: Any) -> Iterator[pl.DataFrame]:
        """Yield the query's rows, or those after a value of the cursor."""
        start = None if self._cursor is None or last is None else (self._cursor, ">=" if self.key else ">", last)
        for frame in self._framed(self._reader.rows(self.columns, start)):
            if self._cursor is not None and frame[self._cursor].null_count():
                hint = "leave such rows out with a `query`, or leave `cursor` out"
                raise InputError(f"the cursor '{self._cursor}' has a null", place=self.place, hint=hint)
            yield frame
