"""Databases of DuckDB with tables of outputs."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ddcli.errors import first_line
from ddcli.expressions.tree import delimited
from ddcli.store.extras import check_package
from ddcli.store.targets.database import Database, committed, full_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.expressions.types import Schema, Type

# fmt: off
TYPES = {
    "int8": "tinyint", "int16": "smallint", "int32": "integer", "int64": "bigint",
    "uint8": "utinyint", "uint16": "usmallint", "uint32": "uinteger", "uint64": "ubigint",
    "float32": "float", "float64": "double", "bool": "boolean", "string": "varchar", "binary": "blob", "date": "date",
}
# fmt: on

CLOSED: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False}
"""The setting under which views and macros of a database read no other file, and no extension is loaded."""


class DuckdbDatabase(Database):
    """A database in a file. Its keys refuse rows that take the place of others in one transaction, so there are none."""

    name = "DuckDB"
    row = "rowid"
    types = TYPES
    keeps_keys = False

    def __init__(self, file: Path) -> None:
        check_package("duckdb")
        import duckdb

        self.place, self._file, self.errors = str(file), file, (duckdb.Error, OSError)
        self._kept: ExitStack | None = None
        self._connection: Any = None

    def is_there(self) -> bool:
        return self._file.exists()

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Have the first transaction open the database for writing, and the later ones use that: to open it takes longer than they do.

        Until the end no other process reads or writes there. Where another one does, transactions that only read open it beside that one.
        """
        with ExitStack() as self._kept:
            try:
                yield
            finally:
                self._kept = self._connection = None

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Any]:
        with ExitStack() as opened:
            connection = self._connection or self._connected(opened, write=write)
            with committed(connection):
                yield connection

    def _connected(self, opened: ExitStack, *, write: bool) -> Any:
        """Return a connection that lasts as long as the database is kept open, else as long as a transaction."""
        import duckdb

        if write:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        connection = None
        if self._kept is not None:
            with suppress(*(() if write else (duckdb.IOException,))):
                connection = self._connection = self._kept.enter_context(
                    closing(duckdb.connect(self.place, config=CLOSED))
                )
        if connection is None:
            connection = opened.enter_context(closing(duckdb.connect(self.place, read_only=not write, config=CLOSED)))
        connection.execute("set TimeZone = 'UTC'")
        return connection

    def resolved(self, connection: Any, name: Sequence[str]) -> tuple[str, ...]:
        if len(name) > 1:
            return tuple(name)
        return (*connection.execute("select current_schema()").fetchall()[0], *name)

    def exists(self, connection: Any, name: Sequence[str]) -> bool:
        query = "select 1 from information_schema.tables where lower(table_schema) = lower(?) and lower(table_name) = lower(?)"
        return bool(connection.execute(query, self.resolved(connection, name)[-2:]).fetchall())

    def columns(self, connection: Any, table: Sequence[str]) -> list[tuple[str, str]]:
        return [row[:2] for row in connection.execute(f"describe {full_name(table)}").fetchall()]

    def is_busy(self, error: Exception) -> bool:
        import duckdb

        locked = isinstance(error, duckdb.IOException) and "lock" in first_line(error, quotes=False).lower()
        return locked or isinstance(error, duckdb.TransactionException)

    def type_of(self, kind: Type) -> str:
        if kind.kind == "datetime" and kind.zone is None:
            return {"ms": "timestamp_ms", "ns": "timestamp_ns"}.get(kind.unit or "", "timestamp")
        return super().type_of(kind)

    def count(self, connection: Any, table: str) -> int | None:
        return int(connection.execute(f"select count(*) from {table}").fetchall()[0][0])

    def changed(self, connection: Any, statement: str) -> int:
        return int(connection.execute(statement).fetchall()[0][0])

    def same(self, columns: Schema) -> str:
        return " and ".join(self._is_same(delimited(name), kind) for name, kind in columns.items())

    def _is_same(self, name: str, kind: Type) -> str:
        if kind.kind == "string":  # bytes have no collation
            return f"typeof(t.{name}) = 'VARCHAR' and encode(t.{name}::varchar) is not distinct from encode(c.{name})"
        shown = "varchar" if kind.kind == "datetime" else self.type_of(kind)  # in the text there is a zone
        read = f"try_cast(t.{name} as {shown}) is not distinct from c.{name}::{shown}"
        return f"t.{name} is not distinct from c.{name} and {read}"

    def index(self, connection: Any, table: Sequence[str], names: Sequence[str], *, ours: bool) -> None:
        """Make none: a few columns are looked through faster."""

    def load(self, connection: Any, table: str, frame: pl.DataFrame) -> None:
        connection.register("dd_frame", frame.to_arrow())
        listed = ", ".join(map(delimited, frame.columns))
        connection.execute(f"insert into {table} ({listed}) select {listed} from dd_frame")
        connection.unregister("dd_frame")
