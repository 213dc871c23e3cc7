"""The rows of a query of Postgres, each value as the database has it.

Integers, floats and booleans come as values of Python, all others as text, which polars reads; a value that it can't read is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import InputError
from ddcli.expressions.tree import delimited
from ddcli.store.mirrors import query_reader
from ddcli.store.mirrors.query_reader import MOST, SILENT, ServerReader, Start, from_start, is_silence
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
