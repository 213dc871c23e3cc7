"""Connections to servers of databases. Imports no third-party library before there is one."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from ddcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager

    from psycopg import Connection

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
