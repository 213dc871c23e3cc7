"""The rows of a query of MySQL or MariaDB: values come as text, so that each is exactly the one of the database."""

from __future__ import annotations

import os
import time as clock
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import polars as pl

from ddcli.errors import InputError, first_line
from ddcli.expressions.tree import in_backticks as quoted
from ddcli.store.mirrors.postgres_reader import typed
from ddcli.store.mirrors.query_reader import MOST, SILENT, WAIT, ServerReader, Start, from_start, longest_silence
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from ddcli.expressions.types import Schema, Type

BINARY, UNSIGNED = 63, 32
"""The character set of bytes, and the flag of numbers without a sign."""
INTEGERS: dict[int, pl.DataType] = {
    1: pl.Int8(), 2: pl.Int16(), 3: pl.Int32(), 8: pl.Int64(), 9: pl.Int32(), 13: pl.Int16(),
}  # fmt: skip
NATURALS: dict[int, pl.DataType] = {
    1: pl.UInt8(), 2: pl.UInt16(), 3: pl.UInt32(), 8: pl.UInt64(), 9: pl.UInt32(), 13: pl.Int16(),
}  # fmt: skip
OTHERS: dict[int, pl.DataType] = {
    4: pl.Float32(), 5: pl.Float64(), 7: pl.Datetime("us", "UTC"), 10: pl.Date(), 11: pl.Time(), 12: pl.Datetime("us"), 245: pl.String(),
}  # fmt: skip
DECIMALS, TEXTS = {0, 246}, {15, 249, 250, 251, 252, 253, 254}
FLOAT, DIGITS = 4, 38
SETTINGS = "set time_zone = '+00:00'"
SNAPSHOT = "start transaction with consistent snapshot, read only"
WRITTEN = "show global status where variable_name in ('Innodb_lsn_current', 'Innodb_redo_log_current_lsn')"
"""The query of how much InnoDB has written to its log: if the answer is the same, no row has changed."""
UNLOGGED = """
select 1 from information_schema.tables where table_type = 'BASE TABLE' and engine <> 'InnoDB'
and table_schema not in ('mysql', 'information_schema', 'performance_schema', 'sys') limit 1
"""
"""The query of tables that are not in that log."""


class MysqlReader(ServerReader):
    """Reads a query of MySQL or MariaDB."""

    def _named_place(self) -> str:
        check_package("pymysql")
        return _place_of(self._uri)

    def _look(self, connection: Any, declared: Schema, named: set[str] | None) -> None:
        with connection.cursor() as cursor:
            self.stamp = f"{self.uri} {_stamp(cursor)}"
            cursor.execute(f"select * from {self._query} limit 0")  # noqa: S608 - a person's own
            self._floats: set[str] = set()
            fields = cursor._result.fields  # noqa: SLF001 - `description` lacks signs and character sets
            self.kinds = dict(self._kinds(fields, declared, named))

    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        from pymysql.cursors import SSCursor

        # A single float is written with six digits, but as a double, which it is exactly, with all.
        listed = ", ".join(f"{quoted(name)} + 0e0" if name in self._floats else quoted(name) for name in columns)
        query, values = f"select {listed or 'null'} from {self._query}", []  # noqa: S608 - a person's own
        if start is not None:
            column, sign, value = start
            text = columns[column].kind == "string"
            name = f"cast(convert({quoted(column)} using utf8mb4) as binary)" if text else quoted(column)
            query = f"{query} where {from_start(quoted(column), name, sign, '')}".replace("%", "%%") + "%s"
            values = [value.encode() if text else value]
        with self._connected() as connection, connection.cursor(SSCursor) as cursor:
            cursor.execute(query, values or None)
            while some := cursor.fetchmany(MOST):
                found = zip(columns.items(), zip(*some, strict=True), strict=False)
                yield pl.DataFrame([_series(name, kind, texts, self.place) for (name, kind), texts in found])

    def _kinds(self, fields: list[Any], declared: Schema, named: set[str] | None) -> Iterator[tuple[str, pl.DataType]]:
        """Yield the columns that can be read. Another column is refused if it is `named`, or if no names are given."""
        for field in fields:
            dtype = _dtype(field, declared)
            if field.type_code == FLOAT:
                self._floats.add(field.name)
            if dtype is not None:
                yield field.name, dtype
            elif named is None or field.name in named:
                problem = f"the column '{field.name}' has a type that is not read"
                hint = f"cast it in a `query`: `cast({quoted(field.name)} as char)`"
                if field.type_code in DECIMALS:
                    problem = f"the column '{field.name}' has more than {DIGITS} digits"
                    hint = f'declare it with fewer under `columns`: {{{field.name}: "decimal(38, 9)?"}}'
                raise InputError(problem, place=self.place, hint=hint)

    def _opened(self, uri: str) -> AbstractContextManager[Any]:
        return connected(uri)

    def _explained(self, error: Exception) -> tuple[str, str | None] | None:
        from pymysql import Error

        if isinstance(error, Error | OSError):
            return _problem(error), _hint(error)
        return _strange_answer(error) if _is_raised_in_package(error) else None


@contextmanager
def connected(uri: str) -> Iterator[Any]:
    """Open a database, in a transaction that only reads and sees the rows of one moment."""
    from pymysql import connect
    from pymysql.converters import encoders

    parts, options = _parts(uri)
    limit = longest_silence()
    own = Path(os.path.expanduser("~/.my.cnf"))  # noqa: PTH111 - that of `Path` is an error where the user has no home
    opened = connect(
        user=unquote(parts.username or "") or None,
        password=os.environ.get("MYSQL_PWD", ""),
        host=parts.hostname or None,
        port=parts.port or 0,
        database=unquote(parts.path[1:]) or None,
        unix_socket=options.get("unix_socket"),
        read_default_file=str(own) if own.is_file() else None,
        charset="utf8mb4",
        conv=encoders,  # values come as the texts that the server writes
        connect_timeout=WAIT,
        read_timeout=WAIT,
        write_timeout=WAIT,
        program_name="dd",
    )
    opened._read_timeout = limit  # noqa: SLF001 - before it is open, a server has less time
    try:
        with opened.cursor() as cursor:
            cursor.execute(SETTINGS)
            opened.written = _written(cursor)
            cursor.execute(SNAPSHOT)
        yield opened
    finally:
        opened.close()


def _stamp(cursor: Any) -> str:
    """Return the position of the server's log before the rows were read, or another text each time if the position doesn't show changes."""
    written = cursor.connection.written
    cursor.execute(UNLOGGED)
    return str(clock.time_ns()) if cursor.fetchall() or not written else written


def _written(cursor: Any) -> str:
    cursor.execute(WRITTEN)
    return " ".join(value for _, value in cursor.fetchall())


def _dtype(field: Any, declared: Schema) -> pl.DataType | None:
    code, unsigned = field.type_code, bool(field.flags & UNSIGNED)
    if code in DECIMALS:
        digits = field.length - bool(field.scale) - (not unsigned)
        if digits <= DIGITS:
            return pl.Decimal(digits, field.scale)
        wanted = declared.get(field.name)
        return wanted.to_polars() if wanted is not None and wanted.kind == "decimal" else None
    if code in TEXTS:
        return pl.Binary() if field.charsetnr == BINARY else pl.String()
    return (NATURALS if unsigned else INTEGERS).get(code) or OTHERS.get(code)


def _series(name: str, kind: Type, values: Sequence[Any], place: str) -> pl.Series:
    """Return the values of a column in its type. Raises InputError for a value that the type can't have: a day 0, an hour 25."""
    dtype = kind.to_polars()
    if dtype == pl.Binary():
        return pl.Series(name, values, dtype)
    texts = pl.Series(name, values, pl.String)
    if dtype.is_float():
        return texts.cast(pl.Float64).cast(dtype)
    return typed(texts, kind, place, f"{quoted(name)} as char")


def _parts(uri: str) -> tuple[Any, dict[str, str]]:
    """Return the parts of a URI, and its options. Raises InputError for a text that is no URI."""
    hint = "write `mysql://user@host:3306/database`, with `?unix_socket=/path` perhaps"
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError as error:
        raise InputError(f"its URI can't be read: {error}", hint=hint) from None
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - {"unix_socket"}:
        raise InputError(f"its URI has the option '{min(unknown)}'", hint=hint)
    if not parts.path[1:]:
        raise InputError("its URI names no database", hint=hint)
    return parts, options


def _place_of(uri: str) -> str:
    """Return a database's URI without user and password."""
    parts, options = _parts(uri)
    place = options.get("unix_socket", "") if not parts.hostname else parts.hostname
    return f"mysql://{place}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _problem(error: Exception) -> str:
    return first_line(error, str(error.args[1]) if len(error.args) > 1 else None)


def _is_raised_in_package(error: Exception) -> bool:
    """Return whether an error comes from the code of the package: it checks hardly anything that a server sends."""
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].partition(".")[0] == "pymysql"


def _strange_answer(error: Exception) -> tuple[str, str]:
    """Return the problem and the hint for an answer that none of our queries can have. The package sends no file to a server that requests one."""
    hint = "check that the input's `database` names a server that you trust"
    if isinstance(error, RuntimeError) and "LOAD_LOCAL" in str(error):
        return "the server asks for a file of this machine in place of an answer; no file was sent", hint
    return "the server's answer is none of MySQL's protocol", hint


def _hint(error: Exception) -> str | None:
    code = error.args[0] if error.args else None
    return {
        1045: "the password comes from the variable MYSQL_PWD, or from [client] in ~/.my.cnf",
        1049: "check the name of the database in `database`",
        1142: "the user needs the right to read it: `grant select on ... to ...`",
        1146: "check the table's name; of one in another database write `table: database.name`",
        2002: "check host and port in `database`, and that the server runs and lets this machine in",
        2003: "check host and port in `database`, and that the server runs and lets this machine in",
        2013: SILENT,
    }.get(code)  # type: ignore[arg-type]
