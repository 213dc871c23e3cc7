"""The changes of each snapshot of a table of DuckLake, as updates: from the difference of its data files and inlined rows, without those that are deleted.

The catalogue is read by its tables (DuckLake's specification 1.0), so DuckDB's extension is not needed. What it has of the table is read at once: its
columns, files and inlined rows, each with the snapshots from which and before which it counts. A file of merged ones has each row's snapshot in a column.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import polars as pl

from ddcli.dataclass import frozen
from ddcli.errors import InputError, first_line
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column, delimited
from ddcli.expressions.types import Type, from_polars
from ddcli.store.files.access import fs, locate, reading
from ddcli.store.files.foreign import below, check_plain
from ddcli.store.mirrors.cancellation import DIFF
from ddcli.store.mirrors.ducklake_columns import (
    columns_at,
    field_number,
    nested_value,
    physical,
    python_values,
    shaped,
)
from ddcli.store.mirrors.mirror import UnknownChange
from ddcli.store.mirrors.query_reader import connected, errors_at_file
from ddcli.store.mirrors.server_databases import place_of
from ddcli.store.mirrors.source import MICRO, TableSource
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.store.mirrors.ducklake_columns import LakeColumn
    from ddcli.store.mirrors.mirror import MirrorCursor

    Ask = Callable[..., list[tuple[Any, ...]]]
    Inlined = tuple[int, int, dict[int, Any]]
    """A row that the catalogue has itself: the snapshots of its begin and its end, and its values as text by their columns' numbers."""

VERSION = "1.0"
"""The version of catalogues that is read."""
TABLES = {
    "duckdb": "select 1 from information_schema.tables where table_name = ?",
    "postgresql": "select 1 from information_schema.tables where table_name = ?",
    "sqlite": "select 1 from sqlite_master where type = 'table' and name = ?",
}
"""The queries for whether a catalogue has a table."""
TEXT = Type("string", nullable=True)
PLAIN = frozenset({"blob", "varchar", "json"})
"""The types whose values a catalogue holds as they are; in Postgres all of these are bytes."""
SNAPSHOT, POSITION = "_ducklake_internal_snapshot_id", "pos"
NEVER = 1 << 62
WAITS = 60
"""Seconds for which a commit waits for another one to a catalogue in SQLite."""


@frozen
class _Part:
    """A file of data or of deleted positions, that counts from one snapshot on and before another; `partial`: up to the snapshots that its own rows have."""

    number: int
    begin: int
    end: int
    path: str
    of: int = 0
    partial: bool = False

    def counts(self, snapshot: int) -> bool:
        """Return whether it counts as of a snapshot."""
        return self.begin <= snapshot < self.end


class DuckLakeSource(TableSource):
    """A table of DuckLake as it is now, by its name, `main.orders`, in the catalogue at `uri`; `file` is the catalogue's, if it is one of SQLite or DuckDB."""

    def __init__(self, uri: str, file: Path, table: str) -> None:
        self.place, self._base = place_of(uri) if uri.startswith("postgres") else uri, file.parent
        # In other catalogues than its own DuckDB keeps structs as text in another form than its casts make.
        self._literal = not uri.startswith("duckdb")
        with open_catalogue(uri, file) as ask:
            facts = checked_facts(ask, self.place)
            found = find_table(ask, *named(table))
            if found is None:
                raise InputError(
                    f"the catalogue has no table '{table}'",
                    place=self.place,
                    hint="name it with its schema: `main.orders`",
                )
            self._table, identity, begin, *paths = found
            self.identity = str(identity)
            self._folder = str(locate(self._base, str(facts["data_path"])))
            self._below = within(self._folder, paths)
            moments = ask(
                "select s.snapshot_id, s.snapshot_time, c.changes_made from ducklake_snapshot s left join ducklake_snapshot_changes c on c.snapshot_id = s.snapshot_id"
            )
            self._moments = {number: _micros(at) for number, at, _ in moments}
            here = re.compile(rf"(?:^|,)\w+:{self._table}(?=,|$)")
            changed = [number for number, _, made in moments if number == begin or here.search(made or "")]
            # The snapshots with changes of the table; if the lake has forgotten all of these, its newest one.
            self._changed = sorted(changed) or [max(self._moments)]
            self.version = self._changed[-1]
            self._history = [
                *ask(
                    "select column_id, column_name, column_type, nulls_allowed, begin_snapshot, end_snapshot, initial_default, parent_column from ducklake_column where table_id = ? order by column_order",
                    self._table,
                )
            ]
            self._files = self._parts(
                ask(
                    "select data_file_id, begin_snapshot, end_snapshot, path, path_is_relative, 0, partial_max, file_format, mapping_id from ducklake_data_file where table_id = ?",
                    self._table,
                )
            )
            self._deletes = self._parts(
                ask(
                    "select delete_file_id, begin_snapshot, end_snapshot, path, path_is_relative, data_file_id, partial_max, format, null from ducklake_delete_file where table_id = ?",
                    self._table,
                )
            )
            inlined = ask(
                "select table_name, schema_version from ducklake_inlined_data_tables where table_id = ?", self._table
            )
            self._inlined = [row for each in inlined for row in self._inlined_rows(ask, *each)]
            self._deleted = self._inlined_deletes(ask, uri)
        columns = columns_at(self._history, NEVER - 1)
        super().__init__(
            self.place,
            {each.name: dtype for each in columns if (dtype := each.dtype) is not None},
            {each.name: each.nullable for each in columns},
        )
        self._named = {each.name: each for each in columns}
        self.numbers = {each.name: each.number for each in columns}
        self._defaults = {each.name: each.default for each in columns if each.default is not None}

    def _parts(self, rows: Iterable[Sequence[Any]]) -> list[_Part]:
        found = []
        for number, begin, end, path, relative, of, merged, form, mapping in rows:
            if form not in (None, "parquet"):
                raise InputError(
                    f"the table has files of the format '{form}', and only Parquet is read", place=self.place
                )
            if mapping is not None:
                hint = "rewrite them in DuckLake: `call ducklake_rewrite_data_files(...)`, or copy the table"
                raise InputError(
                    "the table has files that were added by their columns' names, which are not read",
                    place=self.place,
                    hint=hint,
                )
            location = f"{self._below}/{path}" if relative else str(path)
            found.append(_Part(number, begin, NEVER if end is None else end, location, of, merged is not None))
        return found

    def _inlined_rows(self, ask: Ask, table: str, version: int) -> Iterator[Inlined]:
        """Yield the rows in a table of the catalogue, which has the columns of a version of the table's schema."""
        stated = "select min(begin_snapshot) from ducklake_schema_versions where table_id = ? and schema_version = ?"
        first = "select min(snapshot_id) from ducklake_snapshot where schema_version >= ?"
        # Of a version that only began to hold rows in the catalogue nothing is stated: the table has the columns that it had.
        ((at,),) = ask(f"select coalesce(({stated}), ({first}))", self._table, version, version)
        known = [each for each in columns_at(self._history, at) if each.dtype is not None]
        texts = [
            delimited(each.name) if each.kind in PLAIN else f"cast({delimited(each.name)} as varchar)" for each in known
        ]
        listed = ", ".join(["begin_snapshot", "end_snapshot", *texts])
        for begin, end, *found in ask(f"select {listed} from {delimited(table)}"):  # noqa: S608 - names of the catalogue
            values = {each.number: self._nested(each, value) for each, value in zip(known, found, strict=True)}
            yield begin, NEVER if end is None else end, values

    def _nested(self, column: LakeColumn, value: Any) -> Any:
        """Return a value of the catalogue, a list or struct of the texts in it. Raises InputError for a text that is none."""
        if not column.parts:
            return value
        try:
            return nested_value(column, value, literal=self._literal)
        except ValueError:
            problem = f"the catalogue has a value of '{column.name}' that is no {column.kind} as DuckDB writes it"
            raise InputError(problem, place=self.place) from None

    def _inlined_deletes(self, ask: Ask, uri: str) -> dict[int, list[tuple[int, int]]]:
        """Return the positions that the catalogue itself deletes in data files, with their snapshots."""
        name = f"ducklake_inlined_delete_{self._table}"
        if not ask(TABLES[uri.partition(":")[0]], name):
            return {}
        found: dict[int, list[tuple[int, int]]] = {}
        for file, *deleted in ask(f"select file_id, row_id, begin_snapshot from {name}"):  # noqa: S608 - with a number
            found.setdefault(file, []).append((deleted[0], deleted[1]))
        return found

    def changes(
        self, mark: MirrorCursor, mirrored: Sequence[Path], *, stepwise: bool
    ) -> tuple[MirrorCursor, Iterator[pl.DataFrame]] | None:
        if self._is_at(mark):
            return None
        if stepwise and self.version <= mark.version and self.tip != mark.tip:
            raise self._rolled_back(mark)
        added = [self.numbers[name] for name in self.columns if name not in mark.columns]
        if (
            self._tip(mark.version) != mark.tip
            or any(name not in mark.columns for name in self._defaults)
            or any(row[0] in added and row[4] <= mark.version for row in self._history)
        ):
            raise UnknownChange  # that snapshot is expired, or old rows have a new column's default, or values that were left out
        later = [number for number in self._changed if number > mark.version]
        steps, end = [], mark
        for number in later if stepwise else later[-1:]:
            end = self._mark(number, max(end.committed + 1, self._moments[number]))
            steps.append(end)
        return end, self._updates(mark.version, steps)

    def _updates(self, before: int, steps: Sequence[MirrorCursor]) -> Iterator[pl.DataFrame]:
        for end in steps:
            yield from self._labelled(self._consolidated(self._between(before, end.version)), end)
            before = end.version

    def _rows(self) -> Iterator[pl.DataFrame]:
        yield from (frame.drop(DIFF) for frame in self._between(-1, self.version))

    def _between(self, before: int, now: int) -> Iterator[pl.DataFrame]:
        """Yield the difference of the rows as of two snapshots: of each file that counts in another way, and of inlined rows."""
        rows = [((begin <= now < end) - (begin <= before < end), values) for begin, end, values in self._inlined]
        if found := [row for row in rows if row[0]]:
            yield self._typed_inlined(found)
        for file in self._files:
            if self._state(file, before) != self._state(file, now):
                frame, snapshots = self._read(file)
                diff = self._counts(file, now, frame.height, snapshots) - self._counts(
                    file, before, frame.height, snapshots
                )
                yield frame.with_columns(pl.Series(DIFF, diff, pl.Int64)).filter(pl.col(DIFF) != 0)

    def _state(self, file: _Part, snapshot: int) -> Any:
        """Return what decides which rows of a file count as of a snapshot; None if none does."""
        if not file.counts(snapshot):
            return None
        deletes = [(each.number, snapshot if each.partial else 0) for each in self._deletes_of(file, snapshot)]
        return (
            deletes,
            sum(begin <= snapshot for _, begin in self._deleted.get(file.number, ())),
            snapshot if file.partial else 0,
        )

    def _deletes_of(self, file: _Part, snapshot: int) -> list[_Part]:
        return [each for each in self._deletes if each.of == file.number and each.counts(snapshot)]

    def _counts(self, file: _Part, snapshot: int, rows: int, snapshots: np.ndarray | None) -> np.ndarray:
        """Return for each row of a file whether it counts as of a snapshot, as 0 or 1."""
        if not file.counts(snapshot):
            return np.zeros(rows, np.int64)
        counts = np.ones(rows, np.int64) if snapshots is None else (snapshots <= snapshot).astype(np.int64)
        for each in self._deletes_of(file, snapshot):
            with self._opened(each) as data:
                found = pl.read_parquet(data)
            if each.partial:
                found = found.filter(pl.col(SNAPSHOT) <= snapshot)
            counts[found[POSITION].to_numpy()] = 0
        counts[[position for position, begin in self._deleted.get(file.number, ()) if begin <= snapshot]] = 0
        return counts

    def _read(self, file: _Part) -> tuple[pl.DataFrame, np.ndarray | None]:
        """Return the rows of a file in the table's columns, and the snapshots of its rows if it was merged of several."""
        from pyarrow import parquet

        with self._opened(file) as data, parquet.ParquetFile(data) as opened:
            fields = {field_number(each): each for each in opened.schema_arrow}
            own = {name: fields[self.numbers[name]] for name in self.columns if self.numbers[name] in fields}
            wanted = [*(each.name for each in own.values()), *([SNAPSHOT] if file.partial else [])]
            frame = pl.DataFrame(opened.read(wanted))
            rows = opened.metadata.num_rows
        columns = [
            frame.select(
                shaped(pl.col(own[name].name), self._named[name], own[name], self._leaves).alias(name)
            ).to_series()
            if name in own
            else self._parsed(name, [self._defaults.get(name)] * rows)
            for name in self._dtypes
        ]
        return pl.DataFrame(columns), frame[SNAPSHOT].to_numpy() if file.partial else None

    def _typed_inlined(self, rows: Sequence[tuple[int, dict[int, Any]]]) -> pl.DataFrame:
        """Return inlined rows with their diffs, in the table's columns."""
        diff = pl.Series(DIFF, [diff for diff, _ in rows], pl.Int64)
        values = {
            name: [found.get(self.numbers[name], self._defaults.get(name)) for _, found in rows]
            for name in self.columns
        }
        return pl.DataFrame([*(self._parsed(name, each) for name, each in values.items()), diff])

    def _parsed(self, name: str, values: Sequence[Any]) -> pl.Series:
        """Return values that the catalogue has as text, in a column's type. Raises InputError for a text that is no value of it."""
        column, dtype = self._named[name], self._dtypes[name]
        if column.parts:
            nested = [self._nested(column, value) if isinstance(value, str) else value for value in values]
            found = python_values(column, nested, self._leaves)
            return pl.Series(name, found, physical(dtype)).cast(dtype)
        return self._leaves(column, values)

    def _leaves(self, column: LakeColumn, values: Sequence[Any]) -> pl.Series:
        name, dtype = column.name, column.dtype
        assert dtype is not None
        kind = from_polars(dtype, nullable=True)
        assert kind is not None
        if kind.kind == "string":
            values = [value.decode() if isinstance(value, bytes) else value for value in values]
        if kind.kind in ("string", "binary"):
            return pl.Series(name, values, kind.to_polars())
        texts = pl.Series(name, values, pl.String)
        found = (
            texts.to_frame().select(Lowering().value(Cast(Column(name, TEXT), kind, try_=True)).alias(name)).to_series()
        )
        if found.null_count() > texts.null_count():
            raise InputError(f"the catalogue has a value of '{name}' that is no {kind.required()}", place=self.place)
        return found

    @contextmanager
    def _opened(self, part: _Part) -> Iterator[IO[bytes]]:
        """Open a file of the table, which must be below the lake's folder. Raises UnknownChange where it is gone."""
        below(part.path, self._folder)
        path = locate(self._base, part.path)
        if fs(path).is_local:
            check_plain(path)
        try:
            with reading(path) as file:
                yield file
        except FileNotFoundError:
            raise UnknownChange(part.path) from None

    def _tip(self, version: int) -> str:
        return str(self._moments.get(version, ""))

    def _committed_now(self, least: int) -> int:
        return max(least, self._moments[self.version])


@contextmanager
def open_catalogue(uri: str, file: Path, *, write: bool = False) -> Iterator[Ask]:
    """Open a catalogue to read it as of one moment, or to change it by one transaction; its errors become errors of the input."""
    if uri.startswith("postgres"):
        check_package("psycopg")
        from psycopg import Error

        try:
            with connected(uri) as server:
                server.read_only = not write
                with server.transaction():
                    if write:  # a later one waits, and sees what this one has done
                        server.execute("lock table ducklake_snapshot in exclusive mode")
                    # A query without values may have names with either sign in it.
                    yield lambda query, *values: _fetched(
                        server.execute(query.replace("?", "%s"), values) if values else server.execute(query)
                    )
        except (Error, OSError) as error:
            raise InputError(f"the catalogue can't be read: {first_line(error)}", place=place_of(uri)) from None
        return
    if uri.startswith("duckdb"):
        check_package("duckdb")
        import duckdb

        failures: tuple[type[Exception], ...] = (duckdb.Error, OSError)
        config: Any = {"enable_external_access": False}
        opened: Any = partial(duckdb.connect, str(file), read_only=not write, config=config)
        begin = "begin transaction"
    else:
        failures, mode = (sqlite3.Error, OSError), "rw" if write else "ro"
        named = f"file:{quote(str(file))}?mode={mode}"
        opened = partial(sqlite3.connect, named, uri=True, isolation_level=None, timeout=WAITS)
        begin = "begin immediate" if write else "begin transaction"
    with errors_at_file(file, *failures), closing(opened()) as connection:
        connection.execute(begin)
        yield lambda query, *values: connection.execute(query, values).fetchall()
        connection.execute("commit")


def _fetched(cursor: Any) -> list[tuple[Any, ...]]:
    return cursor.fetchall() if cursor.description else []


def checked_facts(ask: Ask, place: str) -> dict[str, Any]:
    """Return what a catalogue states of itself. Raises InputError for another version, and for encrypted files."""
    facts: dict[str, Any] = dict(ask("select key, value from ducklake_metadata where scope is null"))
    if facts.get("version") != VERSION:
        hint = "DuckDB brings it up: `attach 'ducklake:...' (automatic_migration true)`"
        problem = f"the catalogue has version {facts.get('version')} of DuckLake, and {VERSION} is read"
        raise InputError(problem, place=place, hint=hint)
    if facts.get("encrypted") == "true":
        hint = "copy the table to a lake without `encrypted`"
        raise InputError("the files of this DuckLake are encrypted, and such are not read", place=place, hint=hint)
    return facts


def named(table: str) -> tuple[str, str]:
    """Return the schema and the name of a table."""
    schema, _, name = table.rpartition(".")
    return schema or "main", name


def find_table(ask: Ask, schema: str, name: str) -> tuple[Any, ...] | None:
    """Return a table's number in the catalogue, its identity, the snapshot from which on it exists, and the paths that `within` takes; None if there is none."""
    found = ask(
        "select t.table_id, t.table_uuid, t.begin_snapshot, s.path, s.path_is_relative, t.path, t.path_is_relative "
        "from ducklake_table t join ducklake_schema s on s.schema_id = t.schema_id "
        "where t.end_snapshot is null and s.end_snapshot is null and t.table_name = ? and s.schema_name = ?",
        name,
        schema,
    )
    return found[0] if found else None


def within(folder: str, paths: Sequence[Any]) -> str:
    """Return the folder of a table: `paths` are its schema's path and whether it is relative, then the same of the table."""
    for part, relative in zip(paths[::2], paths[1::2], strict=True):
        folder = f"{folder.rstrip('/')}/{part}" if relative else str(part)
    return folder.rstrip("/")


def _micros(at: Any) -> int:
    moment = at if isinstance(at, datetime) else datetime.fromisoformat(re.sub(r"([+-]\d\d)$", r"\1:00", str(at)))
    return round(moment.timestamp() * MICRO)
