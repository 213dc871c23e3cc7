"""Databases of DuckDB, SQLite and Postgres that hold tables of outputs, and the differences of their SQL. In SQLite decimals and times are texts, booleans 0 and 1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import polars as pl

from ddcli.errors import EngineError, first_line
from ddcli.expressions.tree import delimited
from ddcli.expressions.types import SECOND_DIGITS
from ddcli.store.mirrors.query_reader import SILENT, connected, is_silence
from ddcli.store.targets.mark import COMMITTED
from ddcli.version import check_package

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ddcli.errors import DdError
    from ddcli.expressions.types import Schema, Type

CHANGES, FOUND = "dd_changes", "dd_found"
"""Tables of a transaction: rows that a change adds or retracts, and the table's rows that it retracts."""
AT, TIMES, STAYS = "dd_at", "dd_diff", "dd_stays"
"""Columns of these: the number of a row of the change, its diff, and 1 where the change adds a row of its key."""


class Database(ABC):
    """A database at `place` in which there are tables of outputs."""

    name: str
    """The name for people of databases of the kind."""
    place: str
    row: str
    """The column that distinguishes a row of a table from all others."""
    mark = "?"
    """The placeholder for a value in a statement."""
    keeps_keys = True
    """True: a key is one of the table's, so a row may take the place of another."""
    beside = "join"
    """The join of a table with the table of changes, which makes the database scan the changes."""
    types: Mapping[str, str] = {}
    """The names of types that have no parameters."""
    scratches = True
    """True: a transaction that only reads may make temporary tables."""
    fleeting = ""
    """The clause that drops a temporary table with its transaction, where the connection may be another's then."""
    errors: tuple[type[Exception], ...]

    @abstractmethod
    def transaction(self, *, write: bool) -> AbstractContextManager[Any]:
        """Return a connection in a transaction, which is committed unless something is raised. To `write` a database is made if there is none."""

    @contextmanager
    def guarded(self, refusal: Callable[[Exception], DdError], *, write: bool) -> Iterator[Any]:
        """Yield a connection in a `transaction`; an error of the database is raised as the refusal that people read."""
        try:
            with self.transaction(write=write) as connection:
                yield connection
        except self.errors as error:
            raise refusal(error) from None

    def rows(self, connection: Any, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query, by the names of their columns."""
        found = connection.execute(query)
        names = [each[0] for each in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def kept_open(self) -> AbstractContextManager[None]:
        """Have all transactions until the end share a connection, where to connect takes longer than they do."""
        return nullcontext()

    @abstractmethod
    def is_there(self) -> bool:
        """Return whether the database exists."""

    def resolved(self, connection: Any, name: Sequence[str]) -> tuple[str, ...]:
        """Return the fully qualified name of a table; of one that does not exist, the name under which it would be created."""
        return tuple(name)

    def folded(self, name: str) -> str:
        """Return a table's name in the form in which names are compared: by default without the case of ASCII letters."""
        return "".join(letter.lower() if letter.isascii() else letter for letter in name)

    @abstractmethod
    def exists(self, connection: Any, name: Sequence[str]) -> bool:
        """Return whether there is a table."""

    def column_names(self, connection: Any, table: str) -> list[str]:
        """Return the names of a table's columns."""
        return [each[0] for each in connection.execute(f"select * from {table} limit 0").description]

    @abstractmethod
    def columns(self, connection: Any, table: Sequence[str]) -> list[tuple[str, str]]:
        """Return the names and types of a table's columns, as the database writes types."""

    def count(self, connection: Any, table: str) -> int | None:
        """Return the number of a table's rows; None where that costs a look at all of them."""
        return None

    def exclude_others(self, connection: Any, table: Sequence[str]) -> None:  # noqa: B027 - most have one writer at a time
        """Have other transactions that ask the same for a table wait until this one ends, where several may write at once."""

    @abstractmethod
    def is_busy(self, error: Exception) -> bool:
        """Return whether an error is that another process writes there."""

    def escaped(self, statement: str) -> str:
        """Return a part of a statement with values, escaped so that no other part of it is taken for a value."""
        return statement.replace("%", "%%") if self.mark == "%s" else statement

    def hint(self, error: Exception) -> str | None:
        """Return the hint for an error, if there is one."""
        return None

    def type_of(self, kind: Type) -> str:
        """Return the type of a column."""
        if kind.kind == "list":
            assert kind.inner is not None, "a list has an inner type"
            return f"{self.type_of(kind.inner)}[]"
        if kind.kind == "struct":
            return f"struct({', '.join(f'{delimited(name)} {self.type_of(each)}' for name, each in kind.fields)})"
        if kind.kind == "datetime":
            return "timestamptz" if kind.zone else "timestamp"
        return self.types.get(kind.kind) or f"decimal({kind.precision}, {kind.scale})"

    def declared(self, columns: Schema) -> list[str]:
        """Return columns as statements that make a table declare them."""
        return [f"{delimited(name)} {self.type_of(kind)}" for name, kind in columns.items()]

    @abstractmethod
    def load(self, connection: Any, table: str, frame: pl.DataFrame) -> None:
        """Add rows to a table, by the names of their columns."""

    def changed(self, connection: Any, statement: str) -> int:
        """Execute a statement, and return how many rows it has changed."""
        return int(connection.execute(statement).rowcount)

    def temporary(self, connection: Any, columns: Schema) -> None:
        """Make the table of the changes; it is dropped with the connection."""
        listed = ", ".join([f"{AT} bigint", f"{TIMES} bigint", f"{STAYS} bigint", *self.declared(columns)])
        connection.execute(f"create temporary table {CHANGES} ({listed}){self.fleeting}")

    def led(self, names: Sequence[str]) -> str:
        """Return a condition of `same` rows that lets an index lead from a row of the changes to the table's rows."""
        return "true"

    @abstractmethod
    def same(self, columns: Schema) -> str:
        """Return the condition that a row `t` of the table and one `c` of the changes have the same values, nulls too.

        Columns of the table may have been declared by others: values are the same only if readers find them so, whatever the column's collation takes for equal.
        """

    def among(self, rows: str) -> str:
        """Return the condition that a row of the table is one of those that a query returns."""
        return f"{self.row} in ({rows})"

    @abstractmethod
    def index(self, connection: Any, table: Sequence[str], names: Sequence[str], *, ours: bool) -> None:
        """Create an index that finds rows by all their values, if that pays; `ours`: the table has just been made."""


def breaks_constraint(error: Exception) -> bool:
    """Return whether an error is that rows break a constraint of their table, as all of Python's interfaces of databases name it."""
    return any(each.__name__ == "IntegrityError" for each in type(error).__mro__)


def full_name(table: Sequence[str]) -> str:
    """Return the name of a table as statements have it."""
    return ".".join(map(delimited, table))


@contextmanager
def committed(connection: Any, begin: str = "begin") -> Iterator[Any]:
    """Begin a transaction; commit it at the end, or roll it back if the block fails."""
    connection.execute(begin)
    try:
        yield connection
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


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


WAIT = 30.0
"""Seconds to wait for another program that writes."""


class SqliteDatabase(Database):
    """A database in a file."""

    name = "SQLite"
    row = "rowid"
    beside = "cross join"  # SQLite scans the left side of it

    def __init__(self, file: Path) -> None:
        import sqlite3

        self.place, self._file = str(file), file
        self.errors = (sqlite3.Error, OSError, OverflowError)

    def is_there(self) -> bool:
        return self._file.exists()

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        import sqlite3

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
        """Create the index on tables of others, too: without it SQLite would compare each row of the change with each row of the table."""
        listed = ", ".join(f"{delimited(name)} collate binary" for name in names)
        name = delimited(f"dd_rows_of_{table[-1]}")
        connection.execute(f"create index if not exists {name} on {delimited(table[-1])} ({listed})")


def _plain(values: pl.Series) -> pl.Series:
    """Return values in types that SQLite has."""
    dtype = values.dtype
    if dtype.is_float() and values.is_nan().any():
        problem = f"SQLite has no NaN, and the column '{values.name}' has one"
        hint = f"{COMMITTED}; have `case when is_nan(x) ...` put another value there"
        raise EngineError(problem, hint=hint)
    if dtype == pl.Boolean():
        return values.cast(pl.Int64)
    if isinstance(dtype, pl.Datetime):
        digits = SECOND_DIGITS[dtype.time_unit]  # as many each time: equal times are equal texts, in their order
        return values.dt.strftime(f"%Y-%m-%d %H:%M:%S%.{digits}f{'%:z' if dtype.time_zone else ''}")
    if dtype == pl.Date():
        return values.dt.strftime("%Y-%m-%d")
    return values.cast(pl.String) if dtype.is_decimal() else values


# fmt: off
POSTGRES_TYPES = {
    "int16": "smallint", "int32": "integer", "int64": "bigint", "float32": "real", "float64": "double precision",
    "bool": "boolean", "string": "text", "binary": "bytea", "date": "date",
}
# fmt: on
WHOLE_NAME = "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)"
COLUMNS = "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum"
BUSY = {"40001", "40P01", "55P03"}
"""The SQLSTATEs of transactions that were in each other's way."""
ALTERED = "the table's columns or rules differ from the output's: restore them, or drop the table, and the next run rewrites it"
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
    types = POSTGRES_TYPES
    row, mark, fleeting, scratches = "ctid", "%s", " on commit drop", False

    def __init__(self, uri: str) -> None:
        check_package("psycopg")
        from psycopg import Error

        from ddcli.store.mirrors.server_databases import place_of

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
        """Create no index on tables of others: only their owner may."""
        if self._hashed and ours:
            connection.execute(f"create index on {full_name(table)} (({self._hash('', names)}))")

    def _hash(self, before: str, names: Sequence[str]) -> str:
        row = f"row({', '.join(before + delimited(name) for name in names)})"
        return f"hash_record_extended({row}, 0)" if self._hashed else f"{row}::text"
