"""The rows of a query of DuckDB."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from ddcli.errors import InputError
from ddcli.expressions.tree import delimited
from ddcli.store.extras import check_package
from ddcli.store.mirrors.duckdb_types import held_to, reading
from ddcli.store.mirrors.file_stamp import stamp_of
from ddcli.store.mirrors.query_reader import QueryReader, Start, enclosed, errors_at_file, from_start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddcli.expressions.types import Schema, Type


class DuckdbReader(QueryReader):
    """Reads a query of the database in a file. Where columns are `named`, no other one needs to be readable."""

    def __init__(self, uri: str, file: Path, query: str, named: set[str] | None) -> None:
        check_package("duckdb")
        self.uri, self.place, self.stamp = uri, str(file), stamp_of(file)
        self._file, self._query = file, enclosed(query)
        with self._connected() as database:
            if len(database.extract_statements(f"select * from {self._query}")) > 1:  # noqa: S608 - a person's own
                raise InputError("the query is more than one statement", place=self.place)
            found = list(reading(database.sql(f"select * from {self._query} limit 0"), self.place, named))  # noqa: S608 - a person's own
            self._checked = {name: dtype for name, _, dtype in found if dtype is not None}
            listed = ", ".join(f"{expression} as {delimited(name)}" for name, expression, _ in found)
            self._selected = f"select {listed or 'null'}"
            schema = pl.DataFrame(database.sql(f"{self._selected} from {self._query} limit 0")).schema
        self.kinds = {name: self._checked.get(name, dtype) for name, dtype in schema.items() if found}

    def rows(self, columns: Schema, start: Start | None) -> Iterator[pl.DataFrame]:
        rows, values = self._query, []
        if start is not None:
            column, sign, value = start
            named = delimited(column)
            rows, values = enclosed(f"select * from {rows} where {from_start(named, named, sign, '?')}"), [value]  # noqa: S608 - a person's own
        dtypes = pl.Schema({name: kind.to_polars() for name, kind in columns.items()})
        with self._connected() as database:
            for batch in pa.RecordBatchReader.from_stream(database.sql(f"{self._selected} from {rows}", params=values)):
                yield self._held(pl.DataFrame(batch)).select(*columns).cast(dtypes)

    def unordered_cursor_hint(self, kind: Type) -> str | None:
        return None

    def _held(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(held_to(frame[name], dtype, self.place) for name, dtype in self._checked.items())

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Open the database to read it, and turn its errors into errors of the input."""
        import duckdb

        with errors_at_file(self._file, duckdb.Error, OSError, pa.ArrowException):  # errors of rows come through Arrow
            opened = duckdb.connect(self.place, read_only=True, config={"enable_external_access": False})
            with closing(opened):
                opened.execute("set TimeZone = 'UTC'")
                yield opened
