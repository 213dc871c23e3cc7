"""The rows of a query of DuckDB or SQLite, each value as the database has it.

Of DuckDB a type in none of the lists here is not read: Arrow has no such type, or polars changes or loses some of its values. Values of SQLite have
types of their own: each must have the type of its column.
"""

from __future__ import annotations

import sqlite3
import time as clock
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

from ddcli.errors import InputError
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column, delimited
from ddcli.expressions.types import Type
from ddcli.privacy import preview
from ddcli.store.mirrors.query_reader import MOST, QueryReader, Start, enclosed, errors_at_file, from_start
from ddcli.store.tables.footers import TEXT
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema

EXACT = {
    *("boolean", "tinyint", "smallint", "integer", "bigint", "utinyint", "usmallint", "uinteger", "ubigint"),
    *("float", "double", "decimal", "varchar", "blob", "uuid", "enum", "null"),
    *("date", "timestamp", "timestamp_ms", "timestamp_ns", "timestamp with time zone", "timestamptz_ns"),
}
"""Types whose values come over as they are, in lists and structs too."""
DIGITS = pl.Decimal(38, 0)
CHECKED: dict[str, tuple[str, pl.DataType]] = {
    "hugeint": ("cast({} as varchar)", DIGITS),
    "uhugeint": ("cast({} as varchar)", DIGITS),
    "time": ("epoch_us({}) * 1000", pl.Time()),
    "time_ns": ("epoch_ns({})", pl.Time()),
    "timestamp_s": ("cast({} as timestamp)", pl.Datetime("us")),
}
"""Types that are read by an expression, whose result is then read as a type of ours: a value that doesn't fit it is refused."""
LEFT_OUT = {"map", "tuple"}
"""Types whose columns are left out, as in files, and columns of types that contain them."""
DAY = 86_400 * 10**9


def reading(query: Any, place: str, named: set[str] | None) -> Iterator[tuple[str, str, pl.DataType | None]]:
    """Yield the columns of a query that are read: name, expression, and the type that values must fit, if not all do.

    A column that can't be read is refused if the file names it, or names none; maps are left out.
    """
    for name, kind in zip(query.columns, query.types, strict=True):
        column = delimited(name)
        if kind.id in CHECKED:
            expression, dtype = CHECKED[kind.id]
            yield name, expression.format(column), dtype
        elif {*_inside(kind)} <= EXACT:
            yield name, column, None
        elif name in named if named is not None else not LEFT_OUT & {*_inside(kind)}:
            wanted = "`, or name the others under `columns`" if named is None else "`"
            hint = f"cast it in a `query`, such as `cast({column} as {_castable(kind)}){wanted}"
            problem = f"the column '{name}' is {kind}, and not all values of this type can be read"
            raise InputError(problem, place=place, hint=hint)


def held_to(values: pl.Series, dtype: pl.DataType, place: str) -> pl.Series:
    """Return the values of such an expression in their type. Raises InputError for a value that the type can't have."""
    if dtype == pl.Time():
        failed = (values >= DAY).fill_null(value=False)
        found = values.to_frame().select(pl.when(~failed).then(values)).to_series().cast(dtype)
    else:
        found = values.cast(dtype, strict=False)
        failed = found.is_null() & values.is_not_null()
    if failed.any():
        what = (
            "24:00:00, which is not a time"
            if dtype == pl.Time()
            else f"{values.filter(failed)[0]}, of more than 38 digits"
        )
        hint = f"cast it in a `query`, such as `cast({delimited(values.name)} as varchar)`, or leave such rows out"
        raise InputError(f"the column '{values.name}' has {what}", place=place, hint=hint)
    return found


def _inside(kind: Any) -> Iterator[str]:
    """Yield the names of the types that lists and structs are made of, however deep they are inside each other."""
    if kind.id in ("list", "struct"):
        for _, each in kind.children:
            yield from _inside(each)
    else:
        yield kind.id


def _castable(kind: Any) -> str:
    if kind.id in ("list", "array"):
        inner = dict(kind.children)["child"]
        return f"{inner if {*_inside(inner)} <= EXACT else 'varchar'}[]"
    return "varchar"


class DuckdbReader(QueryReader):
    """Reads a query of the database in a file. Where columns are `named`, no other one needs to be readable."""

    def __init__(self, uri: str, file: Path, query: str, named: set[str] | None) -> None:
        check_package("duckdb")
        self.uri, self.place, self.stamp = uri, str(file), stamp_of(file)
        self._file, self._query = file, enclosed(query)
        with self._connected() as database:
            if len(database.extract_statements(f"select * from {self._query}")) > 1:
                raise InputError("the query is more than one statement", place=self.place)
            found = list(reading(database.sql(f"select * from {self._query} limit 0"), self.place, named))
            self._checked = {name: dtype for name, _, dtype in found if dtype is not None}
            listed = ", ".join(f"{expression} as {delimited(name)}" for name, expression, _ in found)
            self._selected = f"select {listed or 'null'}"
            schema = pl.DataFrame(database.sql(f"{self._selected} from {self._query} limit 0")).schema
        self.kinds = {name: self._checked.get(name, dtype) for name, dtype in schema.items() if found}

    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        rows, values = self._query, []
        if start is not None:
            column, sign, value = start
            named = delimited(column)
            ordered = f'cast({named} as varchar) collate "C"' if columns[column].kind == "string" else named
            rows, values = enclosed(f"select * from {rows} where {from_start(named, ordered, sign, '?')}"), [value]
        import pyarrow as pa

        dtypes = pl.Schema({name: kind.to_polars() for name, kind in columns.items()})
        with self._connected() as database:
            for batch in pa.RecordBatchReader.from_stream(database.sql(f"{self._selected} from {rows}", params=values)):
                yield self._held(pl.DataFrame(batch)).select(*columns).cast(dtypes)

    def unordered_cursor_hint(self, kind: Type) -> str | None:
        return None

    def _held(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(held_to(frame[name], dtype, self.place) for name, dtype in self._checked.items())

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Open the database to read it, and turn its errors into errors of the input."""
        import duckdb
        import pyarrow as pa

        with errors_at_file(self._file, duckdb.Error, OSError, pa.ArrowException):  # errors of rows come through Arrow
            opened = duckdb.connect(self.place, read_only=True, config={"enable_external_access": False})
            with closing(opened):
                opened.execute("set TimeZone = 'UTC'")
                yield opened


AFFINITIES = {
    "INT": "int64",
    "CHAR": "string",
    "CLOB": "string",
    "TEXT": "string",
    "REAL": "float64",
    "FLOA": "float64",
    "DOUB": "float64",
}
"""Parts of the types with which columns of SQLite are declared, and the usual types of their values."""


class SqliteReader(QueryReader):
    """Reads a query of the database in a file. Columns have the types that are `declared`, else their affinities' types.

    Where columns are declared, no other one than those `named` needs to be readable.
    """

    def __init__(self, uri: str, file: Path, query: str, declared: Schema, named: set[str] | None) -> None:
        self.uri, self.place, self.stamp = uri, str(file), stamp_of(file)
        self._file, self._query = file, query
        self.kinds = self._types(declared, named)

    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        query, values = f"select * from {enclosed(self._query)}", []
        if start is not None:
            column, sign, value = start
            named = delimited(column)
            query, values = f"{query} where {from_start(named, f'{named} collate binary', sign, '?')}", [value]
        with self._connected() as database:
            rows = database.execute(query, values)
            names = [column[0] for column in rows.description]
            while some := rows.fetchmany(MOST):
                found = dict(zip(names, zip(*some, strict=True), strict=True))
                yield pl.DataFrame([self._typed(name, kind, found[name]) for name, kind in columns.items()])

    def unordered_cursor_hint(self, kind: Type) -> str | None:
        plain = kind.is_integer or kind.kind == "string"
        return None if plain else "declare it under `columns` as an integer or a string, as the database has it"

    def _types(self, declared: Schema, named: set[str] | None) -> dict[str, pl.DataType]:
        with self._connected() as database:
            database.execute(f"create temp view types_of_dd as select * from {enclosed(self._query)}")
            found = {
                name: str(kind).upper() for _, name, kind, *_ in database.execute("pragma temp.table_info(types_of_dd)")
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

    def _typed(self, name: str, kind: Type, values: Sequence[Any]) -> pl.Series:
        """Return values that have a type of their own each, in the type of their column."""
        dtype = kind.to_polars()
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
        problem = f"the column '{name}' is {kind.required()}, and {preview(name, wrong)!r} is not"
        raise InputError(problem, place=self.place, hint="declare another type for it under the input's `columns`")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open the database to read it, and turn its errors into errors of the input."""
        with (
            errors_at_file(self._file, sqlite3.Error),
            closing(sqlite3.connect(f"file:{quote(self.place)}?mode=ro", uri=True)) as opened,
        ):
            yield opened


LOGS = ("-wal", ".wal", "-journal")
"""The endings of files beside a database with changes that are not in it yet."""
RACY = 2.0
"""Seconds before a look at a file in which a change of it may not show in its time."""


def stamp_of(file: Path) -> str:
    """Return sizes and times of a database's files; another text each time where one has changed just now."""
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
