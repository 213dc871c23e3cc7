"""The rows of a query of Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import InputError
from ddcli.expressions.tree import delimited
from ddcli.store.extras import check_package
from ddcli.store.mirrors import connections
from ddcli.store.mirrors.connections import SILENT, is_silence
from ddcli.store.mirrors.postgres_types import reading, series
from ddcli.store.mirrors.query_reader import MOST, ServerReader, Start, from_start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from psycopg import Connection, Error

    from ddcli.expressions.types import Schema

STAMP = "select pg_postmaster_start_time()::text || ' ' || txid_current_snapshot()::text"
"""The query of the server's start, and of the transactions that a query sees: if both are the same, nothing has been written."""
HINTS = {
    "28P01": "libpq takes the password from the variable PGPASSWORD or the file ~/.pgpass",
    "42P01": "check the table's name; of one in another schema write `table: schema.name`",
    "42501": "the user needs the right to read it: `grant select on ... to ...`",
    "3D000": "check the name of the database in `database`",
    "": "check host and port in `database`, and that the server runs and lets this machine in",
}
"""The hints for some errors, by their SQLSTATE."""


class PostgresReader(ServerReader):
    """Reads a query of Postgres, whose URI is one of libpq's."""

    def _named_place(self) -> str:
        check_package("psycopg")
        return place_of(self._uri)

    def _look(self, connection: Connection[Any], declared: Schema, named: set[str] | None) -> None:
        self.uri = place_of(self._uri, connection)
        self.stamp = f"{self.uri} {connection.execute(STAMP).fetchall()[0][0]}"
        self.kinds = self._kinds(connection, declared, named)

    def _kinds(self, connection: Connection[Any], declared: Schema, named: set[str] | None) -> dict[str, pl.DataType]:
        with connection.cursor() as cursor:
            found = cursor.execute(f"select * from {self._query} limit 0", prepare=True)  # of one statement  # noqa: S608 - a person's own
            self._types = {each.name: each.type_code for each in cursor.description or ()}
            return dict(reading(found, declared, named, self.place))

    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        from psycopg.sql import Literal

        listed = ", ".join(map(delimited, columns)) or "null"
        query = f"select {listed} from {self._query}"  # noqa: S608 - a person's own
        with self._connected() as connection:
            self._kinds(connection, columns, {*columns})  # has this connection read them so
            if start is not None:
                column, sign, value = start
                text = columns[column].kind == "string"
                ordered = f'cast({delimited(column)} as text) collate "C"' if text else delimited(column)
                written = Literal(value).as_string(connection)
                query = f"{query} where {from_start(delimited(column), ordered, sign, written)}"
            with connection.cursor(name="rows_of_dd") as cursor:
                cursor.execute(query)
                while some := cursor.fetchmany(MOST):
                    found = zip(columns.items(), zip(*some, strict=True), strict=False)
                    yield pl.DataFrame([series(name, kind, values, self.place) for (name, kind), values in found])

    def _opened(self, uri: str) -> AbstractContextManager[Connection[Any]]:
        return connections.reading(uri)

    def _explained(self, error: Exception) -> tuple[str, str | None] | None:
        from psycopg import Error

        return _explained(error) if isinstance(error, Error) else None


def place_of(uri: str, connection: Connection[Any] | None = None) -> str:
    """Return a database's URI without user and password; parts that it leaves open come from the connection, if there is one."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(uri)
    except ProgrammingError as error:
        problem = f"its URI can't be read: {str(error).strip()}"
        raise InputError(problem, hint="write `postgresql://user@host:5432/database`") from None
    info = connection.info if connection is not None else None
    host = given.get("hostaddr") or given.get("host") or (info.host if info else "")
    port = given.get("port") or (info.port if info else "")
    name = given.get("dbname") or (info.dbname if info else "")
    return f"postgresql://{host}{f':{port}' if port else ''}/{name}"


def _explained(error: Error) -> tuple[str, str | None]:
    """Return an error's first line for a message, and a hint."""
    lines = (error.diag.message_primary or str(error)).strip().splitlines() or [type(error).__name__]
    code = error.sqlstate
    if is_silence(error):
        return lines[0], SILENT
    if code is None and "connection" in lines[0]:  # the message of a server that refuses the connection has no code
        known = {"password": "28P01", 'database "': "3D000"}
        code = next((code for words, code in known.items() if words in lines[-1]), "")
    return lines[0], HINTS.get(code) if code is not None else None
