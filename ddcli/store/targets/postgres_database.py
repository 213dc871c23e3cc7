"""Databases of Postgres with tables of outputs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ddcli.expressions.tree import delimited
from ddcli.store.extras import check_package
from ddcli.store.mirrors.connections import SILENT, connected, is_silence
from ddcli.store.targets.database import CHANGES, Database, full_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from ddcli.expressions.types import Schema

# fmt: off
TYPES = {
    "int16": "smallint", "int32": "integer", "int64": "bigint", "float32": "real", "float64": "double precision",
    "bool": "boolean", "string": "text", "binary": "bytea", "date": "date",
}
# fmt: on
WHOLE_NAME = "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)"
COLUMNS = "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum"
BUSY = {"40001", "40P01", "55P03"}
"""The SQLSTATEs of transactions that were in each other's way."""
ALTERED = "the table's columns or rules are others than the output's: put them back, or drop the table, and the next run writes it anew"
HINTS = {
    **dict.fromkeys(("22", "23", "42703", "42804", "42846", "42883"), ALTERED),
    "42501": "the user needs the right to write it: `grant select, insert, update, delete on ... to ...`",
}
"""The hints for some errors, by their SQLSTATE, or the class of that."""
MANY = 5_000
"""Rows from which on a table is analyzed after they are added."""
HASHED = 140_000
"""The version of servers from which on a row has a hash that it is found by."""


class PostgresDatabase(Database):
    """A database that a URI of libpq's names."""

    name = "Postgres"
    types = TYPES
    row, mark, fleeting, scratches = "ctid", "%s", " on commit drop", False

    def __init__(self, uri: str) -> None:
        check_package("psycopg")
        from psycopg import Error

        from ddcli.store.mirrors.postgres_reader import place_of

        self.place, self._uri, self.errors = place_of(uri), uri, (Error,)
        self._hashed = True

    def is_there(self) -> bool:
        return True

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Any]:
        with connected(self._uri) as connection:
            connection.read_only = not write
            self._hashed = connection.info.server_version >= HASHED
            with connection.transaction():
                yield connection

    def resolved(self, connection: Any, name: Sequence[str]) -> tuple[str, ...]:
        found = connection.execute(WHOLE_NAME, [full_name(name)]).fetchall()
        if found or len(name) > 1:
            return (*name[:-2], *(found[0] if found else name[-2:]))
        return (*connection.execute("select coalesce(current_schema(), 'public')").fetchall()[0], *name)

    def folded(self, name: str) -> str:
        return name

    def exclude_others(self, connection: Any, table: Sequence[str]) -> None:
        connection.execute("select pg_advisory_xact_lock(hashtext(%s))", [f"dd {full_name(table)}"])

    def columns(self, connection: Any, table: Sequence[str]) -> list[tuple[str, str]]:
        return [*connection.execute(COLUMNS, [full_name(table)]).fetchall()]

    def is_busy(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) in BUSY

    def hint(self, error: Exception) -> str | None:
        code = getattr(error, "sqlstate", None) or ""
        if is_silence(error):
            return f"{SILENT}; the next run writes what is missing"
        return HINTS.get(code) or HINTS.get(code[:2])

    def exists(self, connection: Any, name: Sequence[str]) -> bool:
        return bool(connection.execute("select to_regclass(%s) is not null", [full_name(name)]).fetchall()[0][0])

    def load(self, connection: Any, table: str, frame: pl.DataFrame) -> None:
        listed = ", ".join(map(delimited, frame.columns))
        with connection.cursor() as cursor, cursor.copy(f"copy {table} ({listed}) from stdin") as copy:
            for row in frame.iter_rows():
                copy.write_row(row)
        if table == CHANGES or frame.height > MANY:
            connection.execute(f"analyze {table}")  # else joins are planned for another number of rows

    def led(self, names: Sequence[str]) -> str:
        return f"{self._hash('t.', names)} = {self._hash('c.', names)}"

    def same(self, columns: Schema) -> str:
        equal = [f"t.{name} is not distinct from c.{name}" for name in map(delimited, columns)]
        decimals = {delimited(name) for name, kind in columns.items() if kind.kind == "decimal"}
        equal += [f"t.{name}::numeric is not distinct from c.{name}" for name in decimals]
        # The text of a value shows a blank that pads it, and another type: `=` finds both equal, as some collations do other letters.
        others = [name for name in map(delimited, columns) if name not in decimals]
        equal += [f'row(t.{name})::text collate "C" = row(c.{name})::text' for name in others]
        return " and ".join(equal)

    def among(self, rows: str) -> str:
        return f"ctid = any(array({rows}))"

    def index(self, connection: Any, table: Sequence[str], names: Sequence[str], *, ours: bool) -> None:
        """Make none of others' tables, for which only their owner has the right."""
        if self._hashed and ours:
            connection.execute(f"create index on {full_name(table)} (({self._hash('', names)}))")

    def _hash(self, before: str, names: Sequence[str]) -> str:
        row = f"row({', '.join(before + delimited(name) for name in names)})"
        return f"hash_record_extended({row}, 0)" if self._hashed else f"{row}::text"
