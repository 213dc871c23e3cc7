"""The writer of a batch file of any columns: pyarrow makes its pages of frames, and an index follows them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.kernels.page_values import NUMBERED, OTHER, PLAIN
from ddcli.store.batch import file
from ddcli.store.batch.index_writer import IndexWriter, most_numbered
from ddcli.store.batch.page_index import PageColumn, form_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl
    import pyarrow as pa

    from ddcli.engine.columns import Matrix
    from ddcli.expressions.types import Type

LEVEL = 1
"""The level of compression."""
UNBOUNDED = 1 << 30
"""The bytes of a page, and of a dictionary: these end by their number of rows alone."""


class FrameWriter:
    """Writes a batch file into memory: `append` frames with the data lanes that they are ordered by, in order, then `finish`."""

    def __init__(self, columns: Mapping[str, Type], leading: str | None, key: int) -> None:
        """Make a writer of these columns; `leading` is the one that rows are first ordered by, `key` how many lanes a key has."""
        self.rows = 0
        self.mark = ""
        self._types = dict(columns)
        self._leading = leading
        self._sink = io.BytesIO()
        self._writer: Any = None
        self._schema: Any = None
        self._columns: tuple[PageColumn, ...] = ()
        self._carried: pa.Table | None = None
        self._index = IndexWriter(key)
        self._firsts: list[Matrix] = []
        """The data lanes of the first rows of pages that are not written yet."""
        self._last: Matrix | None = None
        self._written = 0

    def append(self, frame: pl.DataFrame, records: Matrix, constants: Mapping[str, int]) -> None:
        """Add rows: their columns, their data lanes (n > 0, width), and the hidden columns that hold just one number."""
        import pyarrow as pa

        table = frame.to_arrow()
        if self._writer is None:
            self._begin(frame, table.schema)
        table = pa.Table.from_arrays(table.columns, schema=self._schema)
        self._firsts += [records[at : end : file.PAGE].copy() for at, end in _page_ranges(self.rows, len(records))]
        self._last = records[-1:].copy()
        self.rows += len(records)
        self._index.note_constants(constants)
        if self._carried is not None:
            table = pa.concat_tables([self._carried, table])
        whole = len(table) - len(table) % file.GROUP
        for at in range(0, whole, file.GROUP):
            self._write(table.slice(at, file.GROUP))
        self._carried = table.slice(whole) if whole < len(table) else None

    def finish(self) -> memoryview:
        """Return the content of the file."""
        assert self.rows, "an empty batch needs no file"
        if self._carried is not None:
            self._write(self._carried)
        for part in self._index.finish(self._columns, self._sink.tell(), self.mark):
            self._sink.write(part)
        self._writer.close()
        return memoryview(self._sink.getvalue())

    def _begin(self, frame: pl.DataFrame, schema: pa.Schema) -> None:
        """Decide how each column is packed, by its values in the first rows."""
        import pyarrow as pa

        first = frame.head(file.GROUP)
        few = most_numbered(first.height)
        forms = {}
        for name, kind in self._types.items():
            numbered = form_of(kind, numbered=True)
            if numbered != OTHER and (name == self._leading or first[name].n_unique() > few):
                numbered = form_of(kind, numbered=False)
            forms[name] = numbered
        self._columns = tuple(
            PageColumn(field.name, str(self._types[field.name]), forms[field.name])
            for field in schema
            for _ in _paths(field)
        )
        nullable = [self._types[name].nullable or self._types[name].kind == "null" for name in schema.names]
        self._schema = pa.schema([field.with_nullable(may) for field, may in zip(schema, nullable, strict=True)])
        self._writer = _writer(self._sink, self._schema, forms, self._leading)

    def _write(self, table: pa.Table) -> None:
        start = self._written
        self._writer.write_table(table, row_group_size=file.GROUP)
        self._written = self._sink.tell()
        pages = -(-len(table) // file.PAGE)
        assert self._last is not None, "rows come before their row group"
        firsts = np.concatenate(self._firsts)
        self._firsts = [firsts[pages:]]
        with self._sink.getbuffer() as data:
            content = np.frombuffer(data[start : self._written], np.uint8)
            self._index.add(content, start, self._columns, firsts[:pages], self._last, len(table))
            del content


def _page_ranges(before: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield the begin of the first page of each row group, and the row group's end, of those rows that follow `before` others.

    >>> list(_page_ranges(file.GROUP - 3, 10)), list(_page_ranges(file.PAGE - 1, 9))
    ([(3, 10)], [(1, 9)])
    """
    at = 0
    while at < rows:
        place = (before + at) % file.GROUP
        end = min(at + file.GROUP - place, rows)
        if (first := at + -place % file.PAGE) < end:
            yield first, end
        at = end


def _writer(sink: io.BytesIO, schema: pa.Schema, forms: Mapping[str, int], leading: str | None) -> Any:
    """Return Parquet's writer of columns in pages of these forms."""
    import pyarrow.parquet as pq

    numbered = [name for name, form in forms.items() if form != OTHER and form & NUMBERED]
    packed = [name for name, form in forms.items() if form != OTHER and not form & (NUMBERED | PLAIN)]
    packable = [schema.field(name) for name, form in forms.items() if form == OTHER or form & PLAIN]
    compressed = [path for field in packable for path in _paths(field)]
    return pq.ParquetWriter(
        sink,
        schema,
        use_dictionary=numbered,
        column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        compression=dict.fromkeys([*numbered, *packed], "none") | dict.fromkeys(compressed, "zstd"),
        compression_level=dict.fromkeys(compressed, LEVEL),
        write_statistics=[leading] if leading is not None else False,
        store_decimal_as_integer=True,
        max_rows_per_page=file.PAGE,
        data_page_size=UNBOUNDED,
        dictionary_pagesize_limit=UNBOUNDED,
        data_page_version="1.0",
    )


def _paths(field: pa.Field) -> list[str]:
    """Return Parquet's names of the columns that hold a column's values: the columns of lists and structs are further inside."""
    from pyarrow import types

    inner = getattr(field.type, "value_field", None)
    if inner is not None:
        return [f"{field.name}.list.{path}" for path in _paths(inner.with_name("element"))]
    if types.is_struct(field.type):
        return [f"{field.name}.{path}" for each in field.type for path in _paths(each)]
    return [field.name]
