"""The rows of a query of a server, each value as the database has it: of Postgres, and of MySQL or MariaDB.

Integers, floats and booleans of Postgres come as values of Python, all others as text, which polars reads; a value that it can't read is refused. All values of MySQL
come as text, so that each is exactly the one of the database.
"""

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
from ddcli.expressions.tree import delimited
from ddcli.expressions.tree import in_backticks as quoted
from ddcli.store.mirrors import query_reader
from ddcli.store.mirrors.query_reader import (
    MOST,
    SILENT,
    WAIT,
    ServerReader,
    Start,
    from_start,
    is_silence,
    longest_silence,
)
from ddcli.version import check_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from psycopg import Connection, Cursor, Error

    from ddcli.expressions.types import Schema, Type


VALUES: dict[str, pl.DataType] = {
    "bool": pl.Boolean(),
    "int2": pl.Int16(),
    "int4": pl.Int32(),
    "int8": pl.Int64(),
    "oid": pl.UInt32(),
    "float4": pl.Float32(),
    "float8": pl.Float64(),
}
"""Types whose values are read as numbers and booleans."""
TIMES: dict[str, pl.DataType] = {
    "date": pl.Date(),
    "time": pl.Time(),
    "timestamp": pl.Datetime("us"),
    "timestamptz": pl.Datetime("us", "UTC"),
}
TEXTS = {
    *("text", "varchar", "bpchar", "name", "citext", "uuid", "json", "jsonb", "xml"),
    *("inet", "cidr", "macaddr", "macaddr8"),
}
"""Types whose values are read as the database's text for them; so are enums."""
DIGITS = 38
TYPES_OF = """
select t.oid, format_type(t.oid, null), coalesce(e.oid, 0), coalesce(e.typname, t.typname), coalesce(e.typtype, t.typtype)::text,
    coalesce(e.typnamespace, t.typnamespace) = 'pg_catalog'::regnamespace
from pg_type t left join pg_type e on e.oid = t.typelem and e.typarray = t.oid where t.oid = any(%s)
"""


def reading(
    cursor: Cursor[Any], declared: Schema, named: set[str] | None, place: str
) -> Iterator[tuple[str, pl.DataType]]:
    """Yield the columns of an executed query that can be read. Another column is refused if it is `named`, or if no names are given."""
    columns = cursor.description or []
    result = cursor.pgresult
    assert result is not None, "it is executed"
    if twice := {each.name for each in columns if sum(other.name == each.name for other in columns) > 1}:
        raise InputError(f"the query has two columns '{min(twice)}'", place=place, hint="name each once, with `as`")
    rows = cursor.connection.execute(TYPES_OF, [[each.type_code for each in columns]])
    known = {oid: found for oid, *found in rows}
    for at, each in enumerate(columns):
        shown, inner, name, kind, ours = known[each.type_code]
        dtype = _dtype(name if ours or name == "citext" else "", kind)
        if name == "numeric" and ours:
            wanted = declared.get(each.name)
            dtype = _decimal(result.fmod(at), wanted.inner if wanted and inner else wanted)
        if dtype is not None:
            _load(cursor.connection, each.type_code, inner, dtype)
            yield each.name, pl.List(dtype) if inner else dtype
        elif named is None or each.name in named:
            column, several = delimited(each.name), "[]" if inner else ""
            if name == "numeric" and ours:
                example = "list[decimal(18, 2)?]?" if inner else "decimal(18, 2)?"
                problem, hint = "has no number of digits", f'declare it under `columns`: {{{each.name}: "{example}"}}'
            else:
                problem, hint = "is a type that is not read", f"cast it in a `query`: `cast({column} as text{several})`"
            raise InputError(f"the column '{each.name}' is {shown}, which {problem}", place=place, hint=hint)


def series(name: str, kind: Type, values: Sequence[Any], place: str) -> pl.Series:
    """Return the values of a column in its type. Raises InputError for a value that the type can't have."""
    if kind.kind != "list":
        return _scalars(name, kind, values, place)
    assert kind.inner is not None
    lists = [each for each in values if each is not None]
    if any(isinstance(value, list) for each in lists for value in each):
        raise _wrong(name, kind, "an array of several dimensions", place, f"{delimited(name)} as text")
    flat = _scalars(name, kind.inner, [value for each in lists for value in each], place)
    parts, at = [], 0
    for each in values:
        parts.append(None if each is None else flat.slice(at, len(each)))
        at += len(each or ())
    return pl.Series(name, parts, kind.to_polars())


def _scalars(name: str, kind: Type, values: Sequence[Any], place: str) -> pl.Series:
    dtype = kind.to_polars()
    if dtype in (pl.String(), *VALUES.values()) and not (values and any(isinstance(each, str) for each in values)):
        return pl.Series(name, values, dtype)
    return typed(pl.Series(name, values, pl.String), kind, place, f"{delimited(name)} as text")


def typed(texts: pl.Series, kind: Type, place: str, cast: str) -> pl.Series:
    """Return texts of a database's as values of a type. Raises InputError, with this `cast` in the hint, for a text that is none of it."""
    if kind.kind == "string":
        return texts
    found = texts.to_frame().select(_read(pl.col(texts.name), kind.to_polars())).to_series()
    failed = found.is_null() & texts.is_not_null()
    if failed.any():
        raise _wrong(texts.name, kind, f"'{texts.filter(failed)[0]}'", place, cast)
    return found


def _read(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return texts of the database's in a type; null where they are none of it."""
    if dtype == pl.Binary():
        return text.str.slice(2).str.decode("hex", strict=False)
    if dtype == pl.Date():
        return text.str.to_date("%Y-%m-%d", strict=False)
    if dtype == pl.Time():
        return text.str.to_time("%H:%M:%S%.f", strict=False)
    if isinstance(dtype, pl.Datetime):
        plain = text.str.strip_suffix("+00") if dtype.time_zone else text
        return plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False).dt.replace_time_zone(
            dtype.time_zone
        )
    # A decimal, or an integer that a column of decimals is declared as: a cast would round values with more digits.
    scale = dtype.scale if isinstance(dtype, pl.Decimal) else 0
    exact = text.str.extract(r"\.(\d*?)0*$").str.len_bytes().fill_null(0) <= scale
    return pl.when(exact).then(text.cast(pl.Decimal(DIGITS, scale), strict=False)).cast(dtype, strict=False)


def _wrong(name: str, kind: Type, what: str, place: str, cast: str) -> InputError:
    hint = f"cast it in a `query`, such as `cast({cast})`, or leave such rows out"
    return InputError(f"the column '{name}' has {what}, which is no {kind.required()}", place=place, hint=hint)


def _dtype(name: str, kind: str) -> pl.DataType | None:
    if kind == "e" or name in TEXTS:
        return pl.String()
    return VALUES.get(name) or TIMES.get(name) or (pl.Binary() if name == "bytea" else None)


def _decimal(modifier: int, wanted: Type | None) -> pl.DataType | None:
    """Return the type of a column of numbers: by its modifier, which has the digits, else as it is declared."""
    precision, scale = (modifier - 4) >> 16, ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
    if modifier >= 4 and precision <= DIGITS and 0 <= scale <= precision:
        return pl.Decimal(precision, scale)
    fits = wanted is not None and (wanted.kind == "decimal" or wanted.is_integer)
    return wanted.to_polars() if wanted is not None and fits else None


def _load(connection: Connection[Any], oid: int, inner: int, dtype: pl.DataType) -> None:
    """Have a connection read values of a type as text, or as numbers."""
    from psycopg.types import TypeInfo
    from psycopg.types.string import TextLoader

    if dtype not in VALUES.values():
        connection.adapters.register_loader(inner or oid, TextLoader)
    if inner and connection.adapters.types.get(inner) is None:  # an enum or a type of an extension
        TypeInfo("", inner, oid).register(connection)


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
            found = cursor.execute(f"select * from {self._query} limit 0", prepare=True)  # of one statement
            self._types = {each.name: each.type_code for each in cursor.description or ()}
            return dict(reading(found, declared, named, self.place))

    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        from psycopg.sql import Literal

        listed = ", ".join(map(delimited, columns)) or "null"
        query = f"select {listed} from {self._query}"
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
        return query_reader.reading(uri)

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
DECIMALS, TEXT_CODES = {0, 246}, {15, 249, 250, 251, 252, 253, 254}
FLOAT = 4
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
        return _mysql_place(self._uri)

    def _look(self, connection: Any, declared: Schema, named: set[str] | None) -> None:
        with connection.cursor() as cursor:
            self.stamp = f"{self.uri} {_stamp(cursor)}"
            cursor.execute(f"select * from {self._query} limit 0")
            self._floats: set[str] = set()
            fields = cursor._result.fields  # noqa: SLF001 - `description` lacks signs and character sets
            self.kinds = dict(self._kinds(fields, declared, named))

    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        from pymysql.cursors import SSCursor

        # A single float is written with six digits, but as a double, which it is exactly, with all.
        listed = ", ".join(f"{quoted(name)} + 0e0" if name in self._floats else quoted(name) for name in columns)
        query, values = f"select {listed or 'null'} from {self._query}", []
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
            dtype = _dtype_of(field, declared)
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
            return first_line(error, str(error.args[1]) if len(error.args) > 1 else None), _hint(error)
        return _strange_answer(error) if _is_raised_in_package(error) else None


@contextmanager
def connected(uri: str) -> Iterator[Any]:
    """Open a database, in a transaction that only reads and sees the rows of one moment."""
    from pymysql import connect
    from pymysql.converters import encoders

    parts, options = _parts(uri)
    limit = longest_silence()
    own = Path(os.path.expanduser("~/.my.cnf"))  # noqa: PTH111 - `Path.expanduser` is an error where the user has no home
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


def _dtype_of(field: Any, declared: Schema) -> pl.DataType | None:
    code, unsigned = field.type_code, bool(field.flags & UNSIGNED)
    if code in DECIMALS:
        digits = field.length - bool(field.scale) - (not unsigned)
        if digits <= DIGITS:
            return pl.Decimal(digits, field.scale)
        wanted = declared.get(field.name)
        return wanted.to_polars() if wanted is not None and wanted.kind == "decimal" else None
    if code in TEXT_CODES:
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


def _mysql_place(uri: str) -> str:
    """Return a database's URI without user and password."""
    parts, options = _parts(uri)
    place = options.get("unix_socket", "") if not parts.hostname else parts.hostname
    return f"mysql://{place}{f':{parts.port}' if parts.port else ''}{parts.path}"


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
