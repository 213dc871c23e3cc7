"""Connections to servers of databases. Imports no third-party library before there is one."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from psycopg import Connection

SETTINGS = "set TimeZone = 'UTC'; set DateStyle = 'ISO'; set bytea_output = 'hex'; set extra_float_digits = 1"
"""What the text depends on that Postgres writes of values."""
WAIT = 10
"""Seconds in which a server must answer, unless the database's URI or PGCONNECT_TIMEOUT say otherwise."""


@contextmanager
def connected(uri: str) -> Iterator[Connection[Any]]:
    """Open a database of Postgres."""
    from psycopg import connect

    timed = "connect_timeout" in uri or "PGCONNECT_TIMEOUT" in os.environ
    more: dict[str, Any] = {} if timed else {"connect_timeout": WAIT}
    opened = connect(uri, prepare_threshold=None, client_encoding="UTF8", fallback_application_name="dd", **more)
    try:
        yield opened
    finally:
        opened.close()


class Connections:
    """Connections that run as long as this: what is read by those to one database is of one snapshot."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._open: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.clear()
        self._stack.close()

    def to(self, uri: str) -> Connection[Any]:
        """Return the connection to a database of Postgres, in a transaction that only reads."""
        opened: Connection[Any] = self.shared(uri, _reading)
        return opened

    def shared(self, uri: str, opened: Callable[[str], AbstractContextManager[Any]]) -> Any:
        """Return the connection to a database, which `opened` opens."""
        if uri not in self._open:
            self._open[uri] = self._stack.enter_context(opened(uri))
        return self._open[uri]


@contextmanager
def _reading(uri: str) -> Iterator[Connection[Any]]:
    """Open a database of Postgres in a transaction that only reads."""
    from psycopg import IsolationLevel

    with connected(uri) as opened:
        opened.read_only, opened.isolation_level = True, IsolationLevel.REPEATABLE_READ
        opened.execute(SETTINGS)
        yield opened
