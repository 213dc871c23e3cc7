"""The rows of a query of SQLite, whose values have types of their own: each must have the type of its column."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import polars as pl

from ddcli.errors import InputError
from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column, delimited
from ddcli.expressions.types import Type
from ddcli.privacy import preview
from ddcli.store.mirrors.query_reader import MOST, QueryReader, Start, enclosed, errors_at_file, from_start
from ddcli.store.parquet.footers import TEXT
from ddcli.store.tables.file_identity import stamp_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from ddcli.expressions.types import Schema

AFFINITIES = {
    "INT": "int64",
    "CHAR": "string",
    "CLOB": "string",
    "TEXT": "string",
    "REAL": "float64",
    "FLOA": "float64",
    "DOUB": "float64",
}
"""Parts of the types with which columns of SQLite are declared, and the usual types of their values."""


class SqliteReader(QueryReader):
    """Reads a query of the database in a file. Columns have the types that are `declared`, else their affinities' types.

    Where columns are declared, no other one than those `named` needs to be readable.
    """

    def __init__(self, uri: str, file: Path, query: str, declared: Schema, named: set[str] | None) -> None:
        self.uri, self.place, self.stamp = uri, str(file), stamp_of(file)
        self._file, self._query = file, query
        self.kinds = self._types(declared, named)

    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        query, values = f"select * from {enclosed(self._query)}", []  # noqa: S608 - a person's own
        if start is not None:
            column, sign, value = start
            named = delimited(column)
            query, values = f"{query} where {from_start(named, f'{named} collate binary', sign, '?')}", [value]
        with self._connected() as database:
            rows = database.execute(query, values)
            names = [column[0] for column in rows.description]
            while some := rows.fetchmany(MOST):
                found = dict(zip(names, zip(*some, strict=True), strict=True))
                yield pl.DataFrame([self._typed(name, kind, found[name]) for name, kind in columns.items()])

    def unordered_cursor_hint(self, kind: Type) -> str | None:
        plain = kind.is_integer or kind.kind == "string"
        return None if plain else "declare it under `columns` as an integer or a string, as the database has it"

    def _types(self, declared: Schema, named: set[str] | None) -> dict[str, pl.DataType]:
        with self._connected() as database:
            database.execute(f"create temp view types_of_dd as select * from {enclosed(self._query)}")  # noqa: S608 - a person's own
            found = {
                name: str(kind).upper() for _, name, kind, *_ in database.execute("pragma temp.table_info(types_of_dd)")
            }
        kinds = {}
        for name, written in found.items():
            known = next((kind for part, kind in AFFINITIES.items() if part in written), None)
            if name not in declared and known is None and named is not None and name not in named:
                continue
            if name not in declared and known is None:
                problem = f"the column '{name}' is {written or 'an expression'}, which SQLite does not hold values to"
                raise InputError(problem, place=self.place, hint=f"declare it under `columns`: {{{name}: string?}}")
            kinds[name] = declared[name] if name in declared else Type(str(known), nullable=True)
        return {name: kind.to_polars() for name, kind in kinds.items()}

    def _typed(self, name: str, kind: Type, values: Sequence[Any]) -> pl.Series:
        """Return values that have a type of their own each, in the type of their column."""
        dtype = kind.to_polars()
        wanted: tuple[type, ...] = (
            (int,) if kind.is_integer or kind.kind == "bool" else (int, float) if kind.is_float else (str,)
        )
        wanted = (bytes,) if kind.kind == "binary" else (str, int, float) if kind.kind == "decimal" else wanted
        wrong = next((value for value in values if value is not None and not isinstance(value, wanted)), None)
        if wrong is None and (wanted[0] is not str or kind.kind == "string"):
            try:
                return pl.Series(
                    name, values, pl.Int64 if int in wanted and not kind.is_float else None, strict=False
                ).cast(dtype)
            except (pl.exceptions.PolarsError, OverflowError):
                wrong = next(value for value in values if value is not None)
        elif wrong is None:
            texts = pl.Series(name, [None if value is None else str(value) for value in values], pl.String)
            cast = Lowering().value(Cast(Column(name, TEXT), kind.or_null(), try_=True)).alias(name)
            found = texts.to_frame().select(cast).to_series()
            failed = found.is_null() & texts.is_not_null()
            if not failed.any():
                return found.cast(dtype)
            wrong = texts.filter(failed)[0]
        problem = f"the column '{name}' is {kind.required()}, and {preview(name, wrong)!r} is not"
        raise InputError(problem, place=self.place, hint="declare another type for it under the input's `columns`")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open the database to read it, and turn its errors into errors of the input."""
        with (
            errors_at_file(self._file, sqlite3.Error),
            closing(sqlite3.connect(f"file:{quote(self.place)}?mode=ro", uri=True)) as opened,
        ):
            yield opened
