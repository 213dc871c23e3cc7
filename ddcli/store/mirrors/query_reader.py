"""The reader of a query of a database: its columns, its rows, and a stamp that changes when the database does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ddcli.errors import InputError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl

    from ddcli.expressions.types import Schema, Type

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
