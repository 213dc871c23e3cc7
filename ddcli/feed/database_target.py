"""A table of DuckDB or SQLite that changes are delivered to, a transaction a delivery."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from ddcli.errors import EngineError, LockedError, StateError, UsageError
from ddcli.expressions.tree import delimited
from ddcli.feed.target import check_subscription, numbered, overtaken
from ddcli.store.extras import check_package

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl

    from ddcli.feed.changes import Delivery
    from ddcli.feed.target import Subscription

FEEDS = "dd_feeds"
"""The table of a database with the positions of its tables, and who is fed to them."""
MAKE = (
    "create table if not exists dd_feeds "
    "(target varchar primary key, consumer varchar, state varchar, log varchar, position bigint)"
)
FIND = "select consumer, state, log, position from dd_feeds where target = ?"
REACH = "insert or replace into dd_feeds values (?, ?, ?, ?, ?)"
CHANGES = "changes_of_dd"
"""What DuckDB calls the changes that are to be added."""
SECONDS = 30
"""How long a process waits for another one's transaction in SQLite."""


class DatabaseFeed:
    """A table in a database's file: its rows and its position, in the table `dd_feeds`, are one transaction."""

    def __init__(self, path: Path, table: str, subscription: Subscription) -> None:
        if table.lower() in (FEEDS, CHANGES):
            raise UsageError(f"'{table}' is a table of `dd feed` itself", hint="name another one with --table")
        self.path, self.table = path, table
        self.place = f"{path}: {table}"
        self._subscription = subscription

    def position(self) -> int:
        """Return the position that the database has for the table."""
        if not self.path.exists():
            return 0
        with self._connected() as database:
            return self._position(database)

    def add(self, delivery: Delivery) -> None:
        """Add rows and the position in one transaction."""
        frame = numbered(delivery)
        self._check(frame)
        with self._connected() as database:
            database.execute(self.begin)
            database.execute(MAKE)
            if self._position(database) != delivery.since:
                raise overtaken(self.place)
            self._insert(database, frame)
            database.execute(REACH, [self.table, *self._subscription, delivery.position])
            database.execute("commit")

    def _position(self, database: Any) -> int:
        there = {name for (name,) in database.execute(self.tables).fetchall()}
        rows: list[Any] = []
        if FEEDS in there:
            rows = database.execute(FIND, [self.table]).fetchall()
        if not rows and self.table.lower() in {name.lower() for name in there}:
            hint = "name another table with --table: this one was not made by a feed"
            raise StateError("the table is there, and nobody knows up to where", place=self.place, hint=hint)
        if not rows:
            return 0
        *found, position = rows[0]
        if type(position) is not int or position < 0:
            raise StateError(f"the position in {FEEDS} is none", place=self.place, hint="deliver to another table")
        check_subscription(tuple(found), self._subscription, self.place)
        return position

    begin = "begin"
    tables = ""

    def _connected(self) -> Any:
        raise NotImplementedError

    def _check(self, frame: pl.DataFrame) -> None:
        raise NotImplementedError

    def _insert(self, database: Any, frame: pl.DataFrame) -> None:
        raise NotImplementedError


class DuckdbFeed(DatabaseFeed):
    """A table of DuckDB."""

    def __init__(self, path: Path, table: str, subscription: Subscription) -> None:
        check_package("duckdb")
        super().__init__(path, table, subscription)

    tables = "select table_name from information_schema.tables where table_schema = current_schema()"

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        import duckdb

        try:
            with closing(duckdb.connect(self.path)) as database:
                yield database
        except duckdb.TransactionException:
            raise overtaken(self.place) from None
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            if isinstance(error, duckdb.IOException) and "lock" in first.lower():
                raise LockedError(
                    "another process has the database open", place=str(self.path), hint="try again"
                ) from None
            raise EngineError(f"DuckDB refuses the changes: {first}", place=self.place) from None

    def _check(self, frame: pl.DataFrame) -> None:
        """Refuse columns that DuckDB would not hold as they are."""
        import polars as pl

        for name, kind in frame.schema.items():
            while isinstance(kind, pl.List):
                kind = kind.inner  # type: ignore[assignment]
            zoned = isinstance(kind, pl.Datetime) and kind.time_zone is not None and kind.time_unit == "ns"
            if zoned or kind in (pl.Duration, pl.Time):
                raise _unheld(self.place, name, str(kind), "DuckDB")

    def _insert(self, database: Any, frame: pl.DataFrame) -> None:
        database.register(CHANGES, frame.to_arrow())
        table = delimited(self.table)
        database.execute(f"create table if not exists {table} as from {CHANGES} limit 0")
        there, wanted = (database.execute(f"describe {each}").fetchall() for each in (table, CHANGES))
        if [row[:2] for row in there] != [row[:2] for row in wanted] or [row[0] for row in there] != frame.columns:
            raise _other_columns(self.place)
        database.execute(f"insert into {table} from {CHANGES}")


class SqliteFeed(DatabaseFeed):
    """A table of SQLite: numbers and texts; what it has no type for is text, as in CSV."""

    begin = "begin immediate"
    tables = "select name from sqlite_master where type in ('table', 'view')"

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            with closing(sqlite3.connect(self.path, timeout=SECONDS, isolation_level=None)) as database:
                yield database
        except (sqlite3.Error, OverflowError) as error:
            if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
                raise LockedError(
                    "another process is writing to the database", place=str(self.path), hint="try again"
                ) from None
            raise EngineError(f"SQLite refuses the changes: {error}", place=self.place) from None

    def _check(self, frame: pl.DataFrame) -> None:
        """Refuse what SQLite would make something else of: a float that is no number is null there."""
        import polars as pl

        for column in frame:
            if column.dtype.is_float() and column.is_nan().any():
                raise _unheld(self.place, column.name, "NaN in some rows", "SQLite")
            if isinstance(column.dtype, pl.UInt64) and (column > (1 << 63) - 1).any():
                raise _unheld(self.place, column.name, "too large in some rows", "SQLite")

    def _insert(self, database: Any, frame: pl.DataFrame) -> None:
        import polars as pl

        from ddcli.render.rows import as_text

        columns = []
        for column in frame:
            number = column.dtype.is_integer() or column.dtype.is_float() or column.dtype == pl.Boolean
            kind = (
                "REAL"
                if column.dtype.is_float()
                else "INTEGER"
                if number
                else "BLOB"
                if column.dtype == pl.Binary
                else "TEXT"
            )
            columns.append((column.name, kind, column if number or column.dtype == pl.Binary else as_text(column)))
        table = delimited(self.table)
        declared = ", ".join(f"{delimited(name)} {kind}" for name, kind, _ in columns)
        database.execute(f"create table if not exists {table} ({declared})")
        known = [tuple(row) for row in database.execute("select name, type from pragma_table_info(?)", [self.table])]
        if known != [(name, kind) for name, kind, _ in columns]:
            raise _other_columns(self.place)
        places = ", ".join("?" * len(columns))
        rows = zip(*(values.to_list() for _, _, values in columns), strict=True)
        database.executemany(f"insert into {table} values ({places})", rows)  # noqa: S608 - quoted


def _unheld(place: str, name: str, what: str, kind: str) -> UsageError:
    hint = "cast it in the pipeline, to a string for example, or deliver to a directory of Parquet"
    return UsageError(f"{kind} can't hold the column '{name}' as it is: {what}", place=place, hint=hint)


def _other_columns(place: str) -> StateError:
    return StateError("the table has other columns than the output", place=place, hint="name another one with --table")
