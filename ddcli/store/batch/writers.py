"""The writers of batch files: of any columns, by pyarrow; and of integers alone, whose pages kernels make of lanes, in half the time.

An index follows the pages. The file of lanes is the one that `FrameWriter` writes, but for the order of values in dictionaries. In each row group, a
column's values are numbered if the file's first rows have few different ones; else they are packed as differences.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddcli.engine import kernels
from ddcli.engine.kernels.page_values import NUMBERED, OTHER, PLAIN
from ddcli.store.batch import file
from ddcli.store.batch.file import IndexWriter, most_numbered
from ddcli.store.batch.page_index import PageColumn, form_of
from ddcli.store.batch.row_group_file import (
    FEW_SLOTS,
    PageScratch,
    chunk_bytes,
    footer_bytes,
    group_bytes,
    is_plain,
    lanes_of,
    stored_order,
)
from ddcli.store.parquet.row_groups import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl
    import pyarrow as pa

    from ddcli.engine.lanes import Matrix
    from ddcli.expressions.types import Type
    from ddcli.store.batch.file import BatchLayout


def is_packed(layout: BatchLayout) -> bool:
    """Return whether all columns of a batch are integers, which kernels pack."""
    forms = [form_of(kind, numbered=False) for kind in layout.columns.values()]
    return is_plain(layout) and not any(form == OTHER or form & PLAIN for form in forms)


class LaneWriter:
    """The writer of a batch file of `about` rows, if that is known, into memory: `append` rows in order, then `finish`."""

    def __init__(self, layout: BatchLayout, about: int = 0) -> None:
        self.rows = 0
        self._layout = layout
        self._columns: tuple[PageColumn, ...] = ()
        self._sink = _Sink()
        self._sink.write(MAGIC)
        self._about = about
        self._carried: list[Matrix] = []
        self._index = IndexWriter(layout.key.width)
        self._groups: list[bytes] = []
        self._scratch: PageScratch | None = None
        self._same: dict[str, _SameValue] = {}

    def append(self, matrix: Matrix) -> None:
        """Add sorted rows, at least one."""
        self.rows += len(matrix)
        if self._carried:
            room = file.GROUP - sum(map(len, self._carried))
            self._carried.append(matrix[:room].copy())
            matrix = matrix[room:]
            if sum(map(len, self._carried)) == file.GROUP:
                self._write(kernels.concat(self._carried))
                self._carried = []
        whole = len(matrix) - len(matrix) % file.GROUP
        for at in range(0, whole, file.GROUP):
            self._write(matrix[at : at + file.GROUP])
        if whole < len(matrix):
            self._carried.append(matrix[whole:].copy())

    def finish(self) -> memoryview:
        """Return the content of the file."""
        assert self.rows, "an empty batch needs no file"
        if self._carried:
            self._write(kernels.concat(self._carried))
            self._carried = []
        for part in self._index.finish(self._columns, self._sink.size):
            self._sink.write(part)
        self._sink.write(footer_bytes(self._layout, self._columns, self._groups, self.rows))
        return self._sink.content().data

    def _write(self, rows: Matrix) -> None:
        """Write a row group."""
        layout, count = self._layout, len(rows)
        scratch = self._scratch = self._scratch or PageScratch(count)
        first = not self._groups
        begin = self._sink.size
        start = begin if self._groups else 0
        described, columns, constants = [], [], {}
        for at, name in enumerate(stored_order(layout)):
            lanes, lane = lanes_of(name, layout, rows)
            form = self._form(name, scratch, lanes, lane) if first else self._columns[at].form
            columns.append(PageColumn(name, str(layout.columns[name]), form))
            place, dictionary = self._sink.size, 0
            if not form & NUMBERED:
                size = scratch.pack_differences(lanes, lane, form)
                self._sink.write(scratch.out[:size])
            elif (same := self._same.get(name)) and same.holds(lanes, lane):
                size, dictionary, constants[name] = len(same.pages), same.dictionary, same.value
                self._sink.write(same.pages)
            else:
                distinct = scratch.numbered(lanes, lane, form)
                value = int(scratch.known[0])
                size, dictionary = scratch.pack_numbers(count, form, distinct)
                self._sink.write(scratch.out[:size])
                if name in layout.hidden and distinct == 1 and layout.record.names:
                    constants[name] = value
                    self._same[name] = _SameValue(value, count, scratch.out[:size].tobytes(), dictionary)
            ends = (int(lanes[0, lane]), int(lanes[-1, lane])) if name == layout.leading_column else None
            described.append(chunk_bytes(columns[-1], place, size, dictionary, count, ends))
        self._columns = tuple(columns)
        end = self._sink.size
        self._groups.append(group_bytes(described, count, end - begin))
        self._index.note_constants(constants)
        data = rows[:, : layout.record.width]
        content = self._sink.content()[start:]
        leaf = self._index.add(content, start, columns, data[:: file.PAGE], data[-1:], count)
        if first:  # the others will be about as large
            self._sink.reserve(-(-self._about // count) * (end - begin + leaf) * 9 // 8)

    def _form(self, name: str, scratch: PageScratch, lanes: Matrix, lane: int) -> int:
        """Return the form in which a column is packed, as suits its values in the first rows."""
        layout = self._layout
        form = form_of(layout.columns[name], numbered=True)
        distinct = scratch.number(lanes, lane, form, FEW_SLOTS)
        if name != layout.leading_column and 0 <= distinct <= most_numbered(len(lanes)):
            return form
        return form_of(layout.columns[name], numbered=False)


class _Sink:
    """Bytes that are added to, in memory for more of them: `io.BytesIO` moves all that it has at each eighth that is added."""

    def __init__(self) -> None:
        self.size = 0
        self._memory = np.empty(0, np.uint8)

    def write(self, data: bytes | np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Add bytes."""
        end = self.size + len(data)
        if end > len(self._memory):
            self.reserve(end + end // 2)
        self._memory[self.size : end] = np.frombuffer(data, np.uint8)
        self.size = end

    def reserve(self, size: int) -> None:
        """Take memory for `size` bytes in all, unless there is as much: memory that is never written to costs nothing."""
        if size > len(self._memory):
            memory = np.empty(size, np.uint8)
            memory[: self.size] = self.content()
            self._memory = memory

    def content(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return all that was written."""
        return self._memory[: self.size]


class _SameValue(NamedTuple):
    """The pages of a hidden column that has one value in a row group: times and diffs of a load have it in all of them."""

    value: int
    rows: int
    pages: bytes
    dictionary: int

    def holds(self, rows: Matrix, lane: int) -> bool:
        """Return whether a lane of another row group makes the same pages."""
        return len(rows) == self.rows and kernels.rounds_equal(rows, lane, (self.value,))


LEVEL = 1
"""The level of compression."""
TOGETHER = 1 << 20
"""Bytes that pyarrow hands over at once: for each piece it waits until no other thread runs Python, and a page is several pieces."""
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
        self._file = io.BytesIO()
        self._sink: Any = None
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
        for part in self._index.finish(self._columns, self._written, self.mark):
            self._sink.write(part)
        self._writer.close()
        self._sink.flush()
        return memoryview(self._file.getvalue())

    def _begin(self, frame: pl.DataFrame, schema: pa.Schema) -> None:
        """Decide how each column is packed, by its values in the first rows."""
        import pyarrow as pa

        first = frame.head(file.GROUP)
        few = most_numbered(first.height)
        # Most columns of many values have them in the first pages: counting these first is 60 times quicker.
        counted = sorted({min(2 * few, first.height), first.height})
        forms = {}
        for name, kind in self._types.items():
            numbered = form_of(kind, numbered=True)
            many = (first[name].head(rows).n_unique() > few for rows in counted)
            if numbered != OTHER and (name == self._leading or any(many)):
                numbered = form_of(kind, numbered=False)
            forms[name] = numbered
        self._columns = tuple(
            PageColumn(field.name, str(self._types[field.name]), forms[field.name])
            for field in schema
            for _ in _paths(field)
        )
        nullable = [self._types[name].nullable or self._types[name].kind == "null" for name in schema.names]
        self._schema = pa.schema([field.with_nullable(may) for field, may in zip(schema, nullable, strict=True)])
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._file, "w"), TOGETHER)
        self._writer = _writer(self._sink, self._schema, forms, self._leading)

    def _write(self, table: pa.Table) -> None:
        start = self._written
        self._writer.write_table(table, row_group_size=file.GROUP)
        self._sink.flush()
        self._written = self._file.tell()
        pages = -(-len(table) // file.PAGE)
        assert self._last is not None, "rows come before their row group"
        firsts = np.concatenate(self._firsts)
        self._firsts = [firsts[pages:]]
        with self._file.getbuffer() as data:
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


def _writer(sink: Any, schema: pa.Schema, forms: Mapping[str, int], leading: str | None) -> Any:
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
