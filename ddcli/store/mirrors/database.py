"""What a query of a database returns now that it did not before, and the other way round, as updates.

Databases remember no past that a reader could ask for. So all rows are compared with the mirror; or only those are read that have
greater values in a column that grows, and rows that are deleted or changed go unnoticed.
"""

from __future__ import annotations

import importlib.util
import sqlite3
import time as clock
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl
import pyarrow as pa

from ddcli.errors import InputError, UsageError
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column
from ddcli.expressions.types import Type
from ddcli.store.files.gate import checksum
from ddcli.store.mirrors.duckdb_types import held_to, quoted, reading
from ddcli.store.mirrors.mirror import ROWS, Mark, UnknownChange
from ddcli.store.mirrors.source import BEGIN, MICRO, TableSource
from ddcli.store.parquet.footers import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema

LOGS = ("-wal", ".wal", "-journal")
"""Endings of the files beside a database with what isn't in it yet."""
RACY = 2.0
"""Seconds before a look at a file in which a change of it may not show in its time."""
AFFINITIES = {
    "INT": "int64",
    "CHAR": "string",
    "CLOB": "string",
    "TEXT": "string",
    "REAL": "float64",
    "FLOA": "float64",
    "DOUB": "float64",
}
"""Parts of the types that columns of SQLite are declared with, and what their values are then, as a rule."""


class DatabaseSource(TableSource):
    """What a query returns now from the database in a file, of the kind `sqlite` or `duckdb`.

    Its versions count the reads that found the file changed. SQLite does not hold values to the types of columns: they are held to those
    that are `declared`, else to the columns' affinities. Where columns are declared, no other one needs to be readable.
    """

    counts_from_rows = True

    def __init__(self, uri: str, file: Path, query: str, cursor: str | None, declared: Schema | None) -> None:
        self._duckdb = uri.startswith("duckdb")
        if self._duckdb and importlib.util.find_spec("duckdb") is None:
            raise UsageError("databases of DuckDB need the package duckdb", hint="pip install 'ddcli[duckdb]'")
        self.place, self.version = str(file), 0
        self.identity = f"{file} {checksum(repr((uri, query, cursor)).encode())}"
        self._file, self._query, self._cursor = file, f"select * from ({query})", cursor  # noqa: S608 - a person's own
        self._seen = f"{self.identity} {_stamp(file)}"
        self._checked: dict[str, pl.DataType] = {}
        named = None if declared is None else {*declared, *([cursor] if cursor else [])}
        kinds = self._duckdb_types(named) if self._duckdb else self._sqlite_types(declared or {}, named)
        super().__init__(str(file), kinds, dict.fromkeys(kinds, True))
        if cursor is not None and cursor not in self.columns:
            listed = f"its columns are: {', '.join(self.columns)}"
            raise InputError(f"the query has no column '{cursor}', its `cursor`", place=self.place, hint=listed)
        plain = cursor is None or self.columns[cursor].is_integer or self.columns[cursor].kind == "string"
        if cursor is not None and not (plain or self._duckdb):
            hint = "declare it under `columns` as an integer or a string, as the database has it"
            raise InputError(f"the cursor '{cursor}' is {self.columns[cursor]}", place=self.place, hint=hint)

    def changes(
        self, mark: Mark, mirrored: Sequence[Path], *, stepwise: bool
    ) -> tuple[Mark, Iterator[pl.DataFrame]] | None:
        self.version = mark.version + 1
        if self._cursor is None:
            raise UnknownChange
        if mark.identity != self.identity:
            problem = "earlier runs have read another database, by another query or without this `cursor`"
            raise InputError(problem, place=self.place, hint=BEGIN)
        self._check_columns(mark, [])
        if mark.columns.keys() != self.columns.keys():
            problem = "rows that were read before have no value in a column that is new"
            raise InputError(problem, place=self.place, hint=f"name the former columns in a `query`; {BEGIN}")
        end = self._mark(self.version, self._committed_now(mark.committed + 1))
        return end, self._labelled(self._read(self._last(mirrored)), end)

    def _check_columns(self, mark: Mark, described: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
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
        query, values = self._query, []
        if self._cursor is not None and last is not None:
            query, values = f"{query} where {quoted(self._cursor)} > ?", [last]
        frames = self._duckdb_rows(query, values) if self._duckdb else self._sqlite_rows(query, values)
        for frame in frames:
            if self._cursor is not None and frame[self._cursor].null_count():
                hint = "leave such rows out with a `query`, or leave `cursor` out"
                raise InputError(f"the cursor '{self._cursor}' has a null", place=self.place, hint=hint)
            yield frame

    def _duckdb_types(self, named: set[str] | None) -> dict[str, pl.DataType]:
        with self._connected() as database:
            found = list(reading(database.sql(f"{self._query} limit 0"), self.place, named))
            self._checked = {name: dtype for name, _, dtype in found if dtype is not None}
            listed = ", ".join(f"{expression} as {quoted(name)}" for name, expression, _ in found)
            self._selected = f"select {listed or 'null'}"
            schema = pl.DataFrame(database.sql(f"{self._selected} from ({self._query}) limit 0")).schema
        return {name: self._checked.get(name, dtype) for name, dtype in schema.items() if found}

    def _duckdb_rows(self, query: str, values: list[Any]) -> Iterator[pl.DataFrame]:
        with self._connected() as database:
            batches = pa.RecordBatchReader.from_stream(database.sql(f"{self._selected} from ({query})", params=values))
            yield from self._framed(self._held(pl.DataFrame(batch)) for batch in batches)

    def _held(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(held_to(frame[name], dtype, self.place) for name, dtype in self._checked.items())

    def _sqlite_types(self, declared: Schema, named: set[str] | None) -> dict[str, pl.DataType]:
        with self._connected() as database:
            database.execute(f"create temp view rows_of_dd as {self._query}")
            found = {
                name: str(kind).upper() for _, name, kind, *_ in database.execute("pragma temp.table_info(rows_of_dd)")
            }
        kinds = {}
        for name, written in found.items():
            known = next((kind for part, kind in AFFINITIES.items() if part in written), None)
            if name not in declared and known is None and named is not None and name not in named:
                continue
            if name not in declared and known is None:
                problem = f"the column '{name}' is {written or 'an expression'}, which SQLite does not hold values to"
                raise InputError(problem, place=self.place, hint=f"declare it under `columns`: {{{name}: string?}}")
            kinds[name] = declared[name] if name in declared else Type(str(known), nullable=True)
        return {name: kind.to_polars() for name, kind in kinds.items()}

    def _sqlite_rows(self, query: str, values: list[Any]) -> Iterator[pl.DataFrame]:
        with self._connected() as database:
            rows = database.execute(query, values)
            names = [column[0] for column in rows.description]
            while some := rows.fetchmany(ROWS):
                columns = dict(zip(names, zip(*some, strict=True), strict=True))
                yield pl.DataFrame([self._typed(name, columns[name]) for name in self.columns])

    def _typed(self, name: str, values: Sequence[Any]) -> pl.Series:
        """Return values of SQLite, each of which has a type of its own, in the type of their column."""
        kind, dtype = self.columns[name], self.columns[name].to_polars()
        wanted: tuple[type, ...] = (
            (int,) if kind.is_integer or kind.kind == "bool" else (int, float) if kind.is_float else (str,)
        )
        wanted = (bytes,) if kind.kind == "binary" else (str, int, float) if kind.kind == "decimal" else wanted
        wrong = next((value for value in values if value is not None and not isinstance(value, wanted)), None)
        if wrong is None and (wanted[0] is not str or kind.kind == "string"):
            try:
                return pl.Series(
                    name, values, pl.Int64 if int in wanted and not kind.is_float else None, strict=False
                ).cast(dtype)
            except (pl.exceptions.PolarsError, OverflowError):
                wrong = next(value for value in values if value is not None)
        elif wrong is None:
            texts = pl.Series(name, [None if value is None else str(value) for value in values], pl.String)
            cast = Lowering().value(Cast(Column(name, TEXT), kind.or_null(), try_=True)).alias(name)
            found = texts.to_frame().select(cast).to_series()
            failed = found.is_null() & texts.is_not_null()
            if not failed.any():
                return found.cast(dtype)
            wrong = texts.filter(failed)[0]
        problem = f"the column '{name}' is {kind.required()}, and {wrong!r} is none"
        raise InputError(problem, place=self.place, hint="declare another type for it under the input's `columns`")

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Open the database to read it, and turn what goes wrong into errors of the input."""
        if not self._file.is_file():
            raise InputError("there is no such database", place=self.place, hint="check the input's `database`")
        failing: tuple[type[Exception], ...] = (sqlite3.Error,)
        if self._duckdb:
            import duckdb

            failing = (duckdb.Error, OSError, pa.ArrowException)  # errors of rows come through Arrow
        try:
            if self._duckdb:
                opened: Any = duckdb.connect(self.place, read_only=True, config={"enable_external_access": False})
                opened.execute("set TimeZone = 'UTC'")
            else:
                opened = sqlite3.connect(f"file:{quote(self.place)}?mode=ro", uri=True)
            with closing(opened):
                yield opened
        except failing as error:
            raise InputError(f"the database can't be read: {str(error).splitlines()[0]}", place=self.place) from None


def _stamp(file: Path) -> str:
    """Return what changes with a database: sizes and times of its files; another text each time where one has changed just now."""
    found, now = [], clock.time()
    for path in (file, *(file.with_name(file.name + ending) for ending in LOGS)):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append(f"{stat.st_size}:{stat.st_mtime_ns}")
        if stat.st_mtime > now - RACY:
            found.append(str(clock.time_ns()))
    return " ".join(found)
