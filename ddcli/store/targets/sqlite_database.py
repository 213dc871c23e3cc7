"""Databases of SQLite with tables of outputs. Decimals and times are texts there, booleans 0 and 1."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import EngineError
from ddcli.expressions.tree import delimited
from ddcli.expressions.types import SECOND_DIGITS
from ddcli.store.targets.database import Database, committed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema, Type

WAIT = 30.0
"""Seconds to wait for another program that writes."""


class SqliteDatabase(Database):
    """A database in a file."""

    name = "SQLite"
    row = "rowid"
    beside = "cross join"  # SQLite scans the left side of it
    errors = (sqlite3.Error, OSError, OverflowError)

    def __init__(self, file: Path) -> None:
        self.place, self._file = str(file), file

    def is_there(self) -> bool:
        return self._file.exists()

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        if write:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        with (
            closing(sqlite3.connect(self._file, timeout=WAIT, isolation_level=None)) as connection,
            committed(connection, "begin immediate" if write else "begin"),
        ):
            yield connection

    def exists(self, connection: Any, name: Sequence[str]) -> bool:
        query = "select 1 from sqlite_master where type in ('table', 'view') and lower(name) = lower(?)"
        return bool(connection.execute(query, [name[-1]]).fetchall())

    def columns(self, connection: Any, table: Sequence[str]) -> list[tuple[str, str]]:
        query = "select name, lower(type) from pragma_table_info(?)"
        return [*map(tuple, connection.execute(query, [table[-1]]).fetchall())]

    def is_busy(self, error: Exception) -> bool:
        return getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY"

    def type_of(self, kind: Type) -> str:
        if kind.is_integer or kind.kind == "bool":
            return "integer"
        return "real" if kind.is_float else "blob" if kind.kind == "binary" else "text"

    def load(self, connection: Any, table: str, frame: pl.DataFrame) -> None:
        plain = frame.select(_plain(frame[name]) for name in frame.columns)
        listed, marks = ", ".join(map(delimited, plain.columns)), ", ".join("?" * plain.width)
        connection.executemany(f"insert into {table} ({listed}) values ({marks})", plain.iter_rows())

    def same(self, columns: Schema) -> str:
        names = [*map(delimited, columns)]
        equal = [f"t.{name} is c.{name} collate binary" for name in names]
        # In a comparison a column of numbers makes one of the text '1.50', which is no longer there.
        kinds = [f"(typeof(t.{name}) = 'text') = (typeof(c.{name}) = 'text')" for name in names]
        return " and ".join([*equal, *kinds])

    def index(self, connection: Any, table: Sequence[str], names: Sequence[str], *, ours: bool) -> None:
        """Make the index of others' tables, too: SQLite would compare each row of the change with each of the table."""
        listed = ", ".join(f"{delimited(name)} collate binary" for name in names)
        name = delimited(f"dd_rows_of_{table[-1]}")
        connection.execute(f"create index if not exists {name} on {delimited(table[-1])} ({listed})")


def _plain(values: pl.Series) -> pl.Series:
    """Return values in types that SQLite has."""
    dtype = values.dtype
    if dtype.is_float() and values.is_nan().any():
        problem = f"SQLite has no NaN, and the column '{values.name}' has one"
        hint = "the run is committed, and the table stays as it was; have `case when is_nan(x) ...` put another value there"
        raise EngineError(problem, hint=hint)
    if dtype == pl.Boolean():
        return values.cast(pl.Int64)
    if isinstance(dtype, pl.Datetime):
        digits = SECOND_DIGITS[dtype.time_unit]  # as many each time: equal times are equal texts, in their order
        return values.dt.strftime(f"%Y-%m-%d %H:%M:%S%.{digits}f{'%:z' if dtype.time_zone else ''}")
    if dtype == pl.Date():
        return values.dt.strftime("%Y-%m-%d")
    return values.cast(pl.String) if dtype.is_decimal() else values
