"""The reader of a query of a database: its columns, its rows, a stamp that changes when the database does; and connections to servers.

Imports no third-party library before there is a connection.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from ddcli.errors import InputError, UsageError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import polars as pl
    from psycopg import Connection

    from ddcli.expressions.types import Schema, Type


SETTINGS = "set TimeZone = 'UTC'; set DateStyle = 'ISO'; set bytea_output = 'hex'; set extra_float_digits = 1"
"""The settings that the text depends on in which Postgres writes values."""
MONTH = 31 * 86_400
WAIT = 10
"""Seconds in which a server must let us in, unless the database's URI or PGCONNECT_TIMEOUT state others."""
SILENCE = 600
"""Seconds for which a server may be silent, unless `VARIABLE` states others: it computes the first rows, or it has stopped."""
VARIABLE = "DDCLI_DATABASE_TIMEOUT"
SILENT_FOR = "the server has been silent for"
SILENT = f"a query that takes longer needs more: set {VARIABLE} to as many seconds; if the server has stopped, run again when it answers"
"""The hint for a silent server."""


def longest_silence() -> int:
    """Return for how many seconds a server may be silent. Raises UsageError for a variable that is no such number."""
    given = os.environ.get(VARIABLE) or str(SILENCE)
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < MONTH:
        raise UsageError(f"{VARIABLE} is '{given}'", hint="write a whole number of seconds, such as 3600")
    return int(given)


@contextmanager
def connected(uri: str) -> Iterator[Connection[Any]]:
    """Open a database of Postgres."""
    from psycopg import Connection, OperationalError

    limit = longest_silence()

    class Impatient(Connection[Any]):
        """A connection that is closed, with an error, when the server is silent for too long."""

        def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
            return super().wait(self._while_it_answers(gen), *given, **named)

        def _while_it_answers(self, gen: Any) -> Generator[Any, Any, Any]:
            ready, heard = None, monotonic()
            while True:
                try:
                    wanted = gen.send(ready)
                except StopIteration as done:
                    return done.value
                ready = yield wanted
                if ready:
                    heard = monotonic()
                elif monotonic() - heard > limit:
                    self.pgconn.finish()  # else a rollback would wait as long
                    raise OperationalError(f"{SILENT_FOR} {limit} s")

    timed = "connect_timeout" in uri or "PGCONNECT_TIMEOUT" in os.environ
    more: dict[str, Any] = {} if timed else {"connect_timeout": WAIT}
    opened = Impatient.connect(
        uri, prepare_threshold=None, client_encoding="UTF8", fallback_application_name="dd", **more
    )
    try:
        yield opened
    finally:
        opened.close()


def is_silence(error: Exception) -> bool:
    """Return whether an error is that a server was silent for too long."""
    return str(error).startswith(SILENT_FOR)


class Connections:
    """Connections that stay open as long as this context: all reads of one database are of one snapshot. Tables of Spark are read by its session."""

    def __init__(self, session: Any = None) -> None:
        self._stack = ExitStack()
        self.session = session
        self._open: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.clear()
        self._stack.close()

    def shared(self, uri: str, opened: Callable[[str], AbstractContextManager[Any]]) -> Any:
        """Return the connection to a database, which `opened` opens."""
        if uri not in self._open:
            self._open[uri] = self._stack.enter_context(opened(uri))
        return self._open[uri]


@contextmanager
def reading(uri: str) -> Iterator[Connection[Any]]:
    """Open a database of Postgres in a transaction that only reads."""
    from psycopg import IsolationLevel

    with connected(uri) as opened:
        opened.read_only, opened.isolation_level = True, IsolationLevel.REPEATABLE_READ
        opened.execute(SETTINGS)
        yield opened


MOST = 1 << 16
"""Rows that are values of Python at a time, at most."""
Start = tuple[str, str, Any]
"""A column, `>` or `>=`, and a value: which rows are read."""


class QueryReader(ABC):
    """The reader of a query of the database at `place`; `uri` names the database without user and password.

    `stamp` is a text that changes whenever the database may have changed, as of the reader's creation; `kinds` are the columns that can be read.
    """

    uri: str
    place: str
    stamp: str
    kinds: dict[str, pl.DataType]

    @abstractmethod
    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        """Yield the rows that the query returns now, in these columns; those from `start` on, and those with a null there."""

    def unordered_cursor_hint(self, kind: Type) -> str | None:
        """Return the hint for a cursor of a type whose order in the database differs from ours; None for other types."""
        plain = kind.is_integer or kind.kind in ("string", "date", "datetime", "decimal")
        return None if plain else "a cursor is an integer, a decimal, a text, a date or a timestamp"


class ServerReader(QueryReader):
    """Reads a query of the database that a URI names, on a server, by `connections` that may be shared.

    Where columns are `named`, no other one needs to be readable; numbers of digits that we don't have, or that are not known, have those that are `declared`.
    """

    def __init__(
        self, uri: str, query: str, declared: Schema, named: set[str] | None, connections: Connections | None
    ) -> None:
        self._uri, self._query, self._connections = uri, enclosed(query), connections
        self.place = self.uri = self._named_place()
        with self._connected() as connection:
            self._look(connection, declared, named)

    @abstractmethod
    def _named_place(self) -> str:
        """Return the database's URI without user and password."""

    @abstractmethod
    def _look(self, connection: Any, declared: Schema, named: set[str] | None) -> None:
        """Set the stamp and the kinds of columns."""

    @abstractmethod
    def _opened(self, uri: str) -> AbstractContextManager[Any]:
        """Open the database, in a transaction that only reads and sees the rows of one moment."""

    @abstractmethod
    def _explained(self, error: Exception) -> tuple[str, str | None] | None:
        """Return the problem and the hint for an error that the server reported; None for any other error."""

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Turn errors of the database into errors of the input."""
        try:
            if self._connections is not None:
                yield self._connections.shared(self._uri, self._opened)
                return
            with self._opened(self._uri) as connection:
                yield connection
        except Exception as error:
            if (explained := self._explained(error)) is None:
                raise
            problem, hint = explained
            raise InputError(f"the database can't be read: {problem}", place=self.place, hint=hint) from None


@contextmanager
def errors_at_file(file: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turn errors of a database in a file into errors of the input."""
    if not file.is_file():
        raise InputError("there is no such database", place=str(file))
    try:
        yield
    except errors as error:
        raise InputError(f"the database can't be read: {first_line(error)}", place=str(file)) from None


def from_start(column: str, ordered: str, sign: str, value: str) -> str:
    """Return the condition of rows from a start on, in SQL: `ordered` is the column in an order of ours. A null is among them, to be refused."""
    return f"{column} is null or {ordered} {sign} {value}"


def enclosed(query: str) -> str:
    """Return a query as a part of another one, also where it ends in a comment or a semicolon."""
    return f"({query.strip().rstrip(';')}\n) as rows_of_dd"
