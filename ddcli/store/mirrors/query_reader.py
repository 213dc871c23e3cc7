"""The reader of a query of a database: its columns, its rows, and a stamp that changes when the database does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ddcli.errors import InputError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import polars as pl

    from ddcli.expressions.types import Schema, Type
    from ddcli.store.mirrors.connections import Connections

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
        raise InputError("there is no such database", place=str(file), hint="check the input's `database`")
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
