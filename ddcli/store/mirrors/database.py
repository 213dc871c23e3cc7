"""The difference between the rows that a query of a database returns now and returned in the last run, as updates.

Databases keep no past that a reader could ask for. So all rows are compared with the mirror; or only those with
greater values in a column that grows are read, and deleted rows are not noticed.
"""

from __future__ import annotations

import time as clock
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import InputError
from ddcli.store.files.access import reading
from ddcli.store.files.gate import checksum
from ddcli.store.mirrors.cancellation import DIFF, consolidated
from ddcli.store.mirrors.mirror import MirrorCursor, UnknownChange
from ddcli.store.mirrors.source import BEGIN, COMMITTED, MICRO, VERSION, TableSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema
    from ddcli.store.log.rows import RowCondition
    from ddcli.store.mirrors.query_reader import QueryReader


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


def frames_of(files: Iterable[Path]) -> Iterable[pl.DataFrame]:
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
