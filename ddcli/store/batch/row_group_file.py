"""Parquet without a library of Parquet: a batch file of one row group, as a run of few changes writes for each of its arrangements, and files in memory made of some pages.

The batch file has the form that `writers.FrameWriter` writes, with fewer ways to pack: integers as differences, texts, floats and wide decimals numbered,
nothing compressed. It takes a tenth of a millisecond a column; to import a library of Parquet takes longer than all the rest of such a run.

A file made of some pages of a column lets a reader of Parquet decode these alone. https://parquet.apache.org/docs/file-format/ describes the format, its pages and their encodings.
"""

from __future__ import annotations

import io
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.kernels import page_writer
from ddcli.engine.kernels.page_headers import (
    DELTAS,
    DICTIONARY_PAGE,
    END,
    HEADER,
    NUMBERS,
    SIZE,
    UNENCODED,
    VALUES,
    walk_pages,
)
from ddcli.engine.kernels.page_values import FLOAT, NARROW, NULLABLE, NUMBERED, OTHER, SLACK, TEXT, WIDTH
from ddcli.engine.lanes import NULL, SIGN, float_values
from ddcli.expressions.types import FLAGGED, POOLED
from ddcli.store.batch import file
from ddcli.store.batch.file import IndexWriter
from ddcli.store.batch.page_index import PageColumn, decimal_width, form_of
from ddcli.store.parquet.row_groups import (
    BINARY,
    BYTE,
    FALSE,
    GROUPS,
    I32,
    I64,
    LIST,
    MAGIC,
    ORDERS,
    ROWS,
    SCHEMA,
    STRUCT,
    TRUE,
    Fields,
    fields,
    number_bytes,
    struct_bytes,
    structs_bytes,
    text_bytes,
    varint_bytes,
)
from ddcli.store.parquet.row_groups import END as AFTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Type
    from ddcli.store.batch.file import BatchLayout

    Flags = np.ndarray[Any, np.dtype[np.bool_]]
    import pyarrow as pa

    from ddcli.store.batch.page_index import Data, Pages


LENGTH = Struct("<I")
"""The length of a text, before it."""
LEVELS = 3
"""Parquet's number for the encoding of nulls."""
INT32, INT64, DOUBLE, BYTES, FIXED = 1, 2, 5, 6, 7
REQUIRED, OPTIONAL = 0, 1
WRITER = b"ddcli"
EMPTY = (STRUCT, b"\0")
UNITS = {"ms": 1, "us": 2, "ns": 3}
CONVERTED = {"string": 0, "decimal": 5, "date": 6, "uint8": 11, "uint16": 12, "uint32": 13, "uint64": 14}
CONVERTED |= {"int8": 15, "int16": 16}
"""Parquet's older numbers for types, which older readers go by; it has its own types of 32 and 64 bits."""


@lru_cache(maxsize=1024)
def is_plain(layout: BatchLayout) -> bool:
    """Return whether the columns of a batch have types that are written here, and read as the same types by any reader."""
    return all(
        form_of(kind, numbered=True) != OTHER
        and kind.kind != "duration"
        and (kind.kind != "datetime" or kind.zone in (None, "UTC"))
        for kind in layout.columns.values()
    )


def _is_numbered(kind: Type) -> bool:
    """Return whether the values of a type are in a dictionary, and rows have their numbers."""
    return kind.kind in POOLED or kind.kind == "float64" or kind.is_wide


def row_group_file(matrix: Matrix, layout: BatchLayout, pool: Pool) -> memoryview:
    """Return the content of a file of some updates, sorted: at least one, and no more than a row group has."""
    rows, scratch = len(matrix), PageScratch(len(matrix))
    assert 0 < rows <= file.GROUP, "as many rows as a row group has"
    chunks = [_chunk(name, layout, matrix, pool, scratch) for name in stored_order(layout)]
    body, at, described = [MAGIC], len(MAGIC), []
    for column, content, dictionary in chunks:
        described.append(chunk_bytes(column, at, len(content), dictionary, rows))
        body.append(content)
        at += len(content)
    group = b"".join(body)
    columns = tuple(column for column, _, _ in chunks)
    index, data = IndexWriter(layout.key.width), matrix[:, : layout.record.width]
    index.note_constants(layout.constants(matrix))
    index.add(np.frombuffer(group, np.uint8), 0, columns, data[:: file.PAGE], data[-1:], rows)
    indexed = index.finish(columns, len(group), pool.mark if layout.hashed else "")
    end = footer_bytes(layout, columns, [group_bytes(described, rows, at - len(MAGIC))], rows)
    return memoryview(b"".join([group, *indexed, end]))


FEW_SLOTS = 1 << 10
"""Slots of the table in which values are numbered at first: clearing a large one takes longer than to number a few values."""


class PageScratch:
    """Room for the pages that kernels make of a column of a row group."""

    def __init__(self, rows: int) -> None:
        self.known = np.empty(max(rows, 1), np.int64)
        # A dictionary, and pages.
        self._words = np.empty(2 * rows + page_writer.PAGE_BYTES // 8 * (2 + -(-rows // file.PAGE)), np.uint64)
        self.out = self._words.view(np.uint8)
        self._there, self._values, self._numbers = (np.empty(rows, np.int64) for _ in range(3))
        self._steps = np.empty(page_writer.BLOCK, np.int64)

    def number(self, lanes: Matrix, lane: int, form: int, slots: int) -> int:
        """Return the number of distinct values of a column, which it numbers in a table of `slots` slots; a negative number for too many."""
        table = np.zeros(slots, np.uint32)
        return page_writer.number_values(lanes, lane, form, self._there, self._values, self._numbers, self.known, table)

    def numbered(self, lanes: Matrix, lane: int, form: int) -> int:
        """Return the number of distinct values of a column, which it numbers."""
        found = self.number(lanes, lane, form, FEW_SLOTS)
        return found if found >= 0 else self.number(lanes, lane, form, 2 << len(lanes).bit_length())

    def pack_numbers(self, rows: int, form: int, distinct: int) -> tuple[int, int]:
        """Write the pages of numbered values to `out`; return their bytes, and the dictionary's."""
        size = page_writer.pack_numbers(
            rows, form, file.PAGE, self._there, self._numbers, self.known, distinct, self.out, self._words
        )
        assert size >= 0, "pages take more room than there is"
        return size, int(self.known[0])

    def pack_differences(self, lanes: Matrix, lane: int, form: int) -> int:
        """Write the pages of a column to `out`; return how many bytes they have."""
        size = page_writer.pack_differences(
            lanes, lane, form, file.PAGE, self._there, self._values, self._steps, self.out, self._words
        )
        assert size >= 0, "pages take more room than there is"
        return size


def chunk_bytes(
    column: PageColumn, at: int, length: int, dictionary: int, rows: int, ends: tuple[int, int] | None = None
) -> bytes:
    """Return the footer's entry for a column's pages, `length` bytes from `at` on, the first `dictionary` of them a dictionary's.

    `ends` are the least and the greatest of its integers, where readers are to know them.
    """
    more: Fields = {11: (I64, number_bytes(at))} if column.form & NUMBERED else {}
    if ends is not None:
        size = 4 if column.form & NARROW else 8
        least, greatest = (_text((end % (1 << 8 * size)).to_bytes(size, "little")) for end in ends)
        more[12] = (STRUCT, struct_bytes({3: (I64, number_bytes(0)), 5: greatest, 6: least}))
    encodings = (UNENCODED, NUMBERS, LEVELS) if column.form & NUMBERED else (DELTAS, LEVELS)
    described = _described(_physical(column.form), encodings, column.name, 0)
    return _placed(described | more, rows, length, at, at + dictionary)


@lru_cache(maxsize=1024)
def _described(physical: int, encodings: tuple[int, ...], path: str, codec: int) -> Fields:
    """Return the fields of a footer's entry for a column that belong to its type, not to its place."""
    return {
        1: (I32, number_bytes(physical)),
        2: (LIST, bytes([len(encodings) << 4 | I32]) + b"".join(map(number_bytes, encodings))),
        3: (LIST, bytes([1 << 4 | BINARY]) + text_bytes(path)),
        4: (I32, number_bytes(codec)),
    }


def _placed(described: Fields, values: int, size: int, begin: int, first: int) -> bytes:
    """Return a footer's entry for pages of `size` bytes and `values` values from `begin` on, those behind a dictionary from `first` on."""
    length = (I64, number_bytes(size))
    place: Fields = {5: (I64, number_bytes(values)), 6: length, 7: length, 9: (I64, number_bytes(first))}
    return struct_bytes({2: (I64, number_bytes(begin)), 3: (STRUCT, struct_bytes(described | place))})


def stored_order(layout: BatchLayout) -> list[str]:
    """Return the columns in the order of `BatchLayout.to_frame`."""
    hidden = [*(name for name in layout.columns if name not in layout.stored), *layout.hidden]
    return [*(name for name in layout.stored if name not in layout.hidden), *hidden]


@lru_cache(maxsize=1024)
def column_of(name: str, kind: Type) -> tuple[PageColumn, bool]:
    """Return a column of a file, and whether its rows have numbers of its values."""
    numbered = _is_numbered(kind)
    return PageColumn(name, str(kind), form_of(kind, numbered=numbered)), numbered


def lanes_of(name: str, layout: BatchLayout, matrix: Matrix) -> tuple[Matrix, int]:
    """Return the matrix with the lanes of a column, and the first of these: the hidden key is in none of its own."""
    if name in layout.stored:
        return matrix, layout.stored[name][0]
    return np.ascontiguousarray(layout.leading(matrix)).reshape(-1, 1), 0


def _chunk(
    name: str, layout: BatchLayout, matrix: Matrix, pool: Pool, scratch: PageScratch
) -> tuple[PageColumn, bytes, int]:
    """Return a column, its pages, one after the other, and the size of the dictionary, if the first is one."""
    kind = layout.columns[name]
    rows, lane = lanes_of(name, layout, matrix)
    column, numbered = column_of(name, kind)
    if not numbered:
        return column, scratch.out[: scratch.pack_differences(rows, lane, column.form)].tobytes(), 0
    there, lanes = _values(rows, lane, kind)
    known, numbers = _distinct(lanes, there)
    pages = [_dictionary(known, kind, pool)]
    dictionary = len(pages[0])
    size = 1 if len(known) <= 1 << 8 else 2
    for at in range(0, len(numbers), file.PAGE):
        values = numbers[at : at + file.PAGE]
        count = len(values)
        levels = b""
        if column.form & NULLABLE:
            here = None if there is None else there[at : at + file.PAGE]
            levels = _levels(here, count)
            values = values if here is None else values[here]
        body = levels + _numbers(values, size)
        pages += [_data_header(count, len(body)), body]
    return column, b"".join(pages), dictionary


def _values(rows: Matrix, lane: int, kind: Type) -> tuple[Flags | None, Matrix]:
    """Return which rows have a value in a column, None where all do, and the lanes of the values."""
    flagged = kind.nullable and kind.kind in FLAGGED
    there = rows[:, lane] == 0 if flagged else rows[:, lane] != NULL
    first = lane + flagged
    lanes = rows[:, first : first + 2] if kind.is_wide else rows[:, first]
    return None if not kind.nullable or there.all() else there, np.ascontiguousarray(lanes)


def _distinct(lanes: Matrix, there: Flags | None) -> tuple[Matrix, Matrix]:
    """Return the distinct values, in order, and the number of each row's among them; any number for rows without a value."""
    some = lanes if there is None else lanes[there]
    if lanes.ndim == 1:
        known = kernels.distinct_keys(np.sort(some).reshape(-1, 1), 1).reshape(-1)
        return known, np.searchsorted(known, lanes)
    known = kernels.distinct_keys(kernels.sort_by(some, range(lanes.shape[1])), lanes.shape[1])
    return known, np.searchsorted(file.in_byte_order(known), file.in_byte_order(lanes))


def _dictionary(known: Matrix, kind: Type, pool: Pool) -> bytes:
    """Return the page of the values that rows are numbers of."""
    if kind.kind in POOLED:
        texts = [text or b"" for text in pool.bytes_of(known, kind)]
        body = b"".join(chain.from_iterable(zip(map(LENGTH.pack, map(len, texts)), texts, strict=True)))
    elif kind.is_wide:
        big = np.stack([known[:, 0], known[:, 1] ^ SIGN], axis=1).astype(">i8")
        body = big.view(np.uint8)[:, -decimal_width(kind.precision) :].tobytes()
    else:
        body = float_values(known).tobytes()
    header: Fields = {1: (I32, number_bytes(len(known))), 2: (I32, number_bytes(UNENCODED))}
    return _header(DICTIONARY_PAGE, 7, header, len(body)) + body


@lru_cache(maxsize=1024)
def _data_header(count: int, size: int) -> bytes:
    """Return the header of a page of `count` numbers of a dictionary's entries."""
    levels = (I32, number_bytes(LEVELS))
    header: Fields = {1: (I32, number_bytes(count)), 2: (I32, number_bytes(NUMBERS)), 3: levels, 4: levels}
    return _header(0, 5, header, size)


def _header(kind: int, field: int, header: Fields, size: int) -> bytes:
    """Return the header of a page of `size` bytes, with a struct of its kind in this field of it."""
    sizes = (I32, number_bytes(size))
    return struct_bytes({1: (I32, number_bytes(kind)), 2: sizes, 3: sizes, field: (STRUCT, struct_bytes(header))})


def _levels(there: Flags | None, count: int) -> bytes:
    """Return which rows of a page have a value, as its values are preceded by."""
    if there is None or there.all():
        runs = varint_bytes(count << 1) + b"\1"
    else:
        runs = varint_bytes(-(-count // 8) << 1 | 1) + np.packbits(there, bitorder="little").tobytes()
    return len(runs).to_bytes(4, "little") + runs


def _numbers(values: Matrix, size: int) -> bytes:
    """Return numbers of entries of a dictionary, `size` bytes each."""
    width = bytes([8 * size])
    if not len(values):
        return width
    padded = np.zeros(-(-len(values) // 8) * 8, f"<u{size}")
    padded[: len(values)] = values
    return width + varint_bytes(len(padded) // 8 << 1 | 1) + padded.tobytes()


def group_bytes(chunks: list[bytes], rows: int, size: int) -> bytes:
    """Return the footer's entry for a row group of `size` bytes with these column entries."""
    return struct_bytes({1: (LIST, structs_bytes(chunks)), 2: (I64, number_bytes(size)), 3: (I64, number_bytes(rows))})


def footer_bytes(layout: BatchLayout, columns: Sequence[PageColumn], groups: list[bytes], rows: int) -> bytes:
    """Return Parquet's footer of a file of these row groups, with its length and magic."""
    schema, end = _schema(tuple((column.name, layout.columns[column.name]) for column in columns))
    between = struct_bytes({ROWS - SCHEMA: (I64, number_bytes(rows)), GROUPS - SCHEMA: (LIST, structs_bytes(groups))})
    footer = schema + between[:-1] + end
    return footer + len(footer).to_bytes(4, "little") + MAGIC


@lru_cache(maxsize=256)
def _schema(columns: tuple[tuple[str, Type], ...]) -> tuple[bytes, bytes]:
    """Return the footer's part about some columns, and its part after rows and row groups: its writer, and how values are ordered."""
    root = struct_bytes({4: _text(b"schema"), 5: (I32, number_bytes(len(columns)))})
    elements = [_element(name, kind) for name, kind in columns]
    schema = struct_bytes({1: (I32, number_bytes(2)), SCHEMA: (LIST, structs_bytes([root, *elements]))})
    orders = (LIST, structs_bytes([struct_bytes({1: EMPTY})] * len(columns)))
    return schema[:-1], struct_bytes({6 - GROUPS: _text(WRITER), ORDERS - GROUPS: orders})


@lru_cache(maxsize=1024)
def _element(name: str, kind: Type) -> bytes:
    """Return the footer's entry for a column's type."""
    form = form_of(kind, numbered=_is_numbered(kind))
    found: Fields = {
        1: (I32, number_bytes(_physical(form))),
        3: (I32, number_bytes(OPTIONAL if kind.nullable else REQUIRED)),
        4: _text(name.encode()),
    }
    if form >> WIDTH:
        found[2] = (I32, number_bytes(form >> WIDTH))
    if kind.kind in CONVERTED:
        found[6] = (I32, number_bytes(CONVERTED[kind.kind]))
    if kind.kind == "decimal":
        found |= {7: (I32, number_bytes(kind.scale)), 8: (I32, number_bytes(kind.precision))}
    if (meaning := dict(_meaning(kind))) != {}:
        found[10] = (STRUCT, struct_bytes(meaning))
    return struct_bytes(found)


def _meaning(kind: Type) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Yield the field of Parquet's union of types that a type is, if it is one."""
    if kind.kind == "string":
        yield 1, EMPTY
    elif kind.kind == "decimal":
        yield 5, (STRUCT, struct_bytes({1: (I32, number_bytes(kind.scale)), 2: (I32, number_bytes(kind.precision))}))
    elif kind.kind == "date":
        yield 6, EMPTY
    elif kind.kind in ("time", "datetime"):
        unit = UNITS[kind.unit or "ns"]
        zoned = (TRUE if kind.zone else FALSE, b"")
        yield (
            7 if kind.kind == "time" else 8,
            (STRUCT, struct_bytes({1: zoned, 2: (STRUCT, struct_bytes({unit: EMPTY}))})),
        )
    elif kind.is_integer and kind.kind in CONVERTED:
        bits = int(kind.kind.lstrip("uint"))
        signed = (FALSE if kind.kind.startswith("u") else TRUE, b"")
        yield 10, (STRUCT, struct_bytes({1: (BYTE, bytes([bits])), 2: signed}))


def _physical(form: int) -> int:
    """Return Parquet's number for the type in which columns of a form are stored."""
    if form >> WIDTH:
        return FIXED
    return BYTES if form & TEXT else DOUBLE if form & FLOAT else INT32 if form & NARROW else INT64


def _text(data: bytes) -> tuple[int, bytes]:
    return BINARY, varint_bytes(len(data)) + data


PHYSICAL = {"BOOLEAN": 0, "INT32": 1, "INT64": 2, "INT96": 3, "FLOAT": 4, "DOUBLE": 5, "BYTE_ARRAY": 6}
PHYSICAL["FIXED_LEN_BYTE_ARRAY"] = 7
CODECS = {"UNCOMPRESSED": 0, "ZSTD": 6}
"""Parquet's numbers for types and codecs."""


def read_pages(data: Data, parts: Sequence[tuple[Pages, Any]], field: pa.Field, rows: int) -> pl.Series:
    """Return the values of some pages without a dictionary, `rows` rows of a column; a struct has some pages for each value inside.

    Each part has its pages, and their description in their own file. Raises pa.ArrowException, OSError or ValueError if they can't be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    contents, chunks, begin = [MAGIC], [], len(MAGIC)
    for pages, chunk in parts:
        content, found = _walked(data, pages)
        named = chunk.path_in_schema, CODECS[chunk.compression]
        described = _described(PHYSICAL[chunk.physical_type], (UNENCODED, LEVELS), *named)
        chunks.append(_placed(described, int(found[:, VALUES].sum()), len(content), begin, begin))
        contents.append(content)
        begin += len(content)
    group = group_bytes(chunks, rows, begin - len(MAGIC))
    footer = fields(_empty(field)) | {ROWS: (I64, number_bytes(rows)), GROUPS: (LIST, structs_bytes([group]))}
    tail = struct_bytes(footer)
    file = b"".join([*contents, tail, len(tail).to_bytes(4, "little"), MAGIC])
    table = pq.ParquetFile(pa.BufferReader(file), pre_buffer=False).read(use_threads=False)
    series = pl.from_arrow(table.column(0))
    assert isinstance(series, pl.Series)
    if len(series) != rows:
        raise ValueError("another number of rows")
    return series


def unpacked(data: Data, pages: Pages) -> tuple[Data, Matrix]:
    """Return the contents of some compressed pages, one after the other, and the begin and end of each.

    Raises ValueError where that can't be read.
    """
    import zstandard  # pyarrow has it, too, but its import takes as long as a small run

    content, found = _walked(data, pages)
    codec, parts, begin = zstandard.ZstdDecompressor(), [], 0
    for header, end, size in found[:, [HEADER, END, SIZE]].tolist():
        frame = content[begin + header : end]
        try:
            if zstandard.frame_content_size(frame) != size:
                raise ValueError("a page of another size")
            parts.append(codec.decompress(frame, size, allow_extra_data=False))
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
        begin = end
    ends = np.cumsum(found[:, SIZE])
    return np.frombuffer(b"".join([*parts, bytes(SLACK)]), np.uint8), np.stack([ends - found[:, SIZE], ends], axis=1)


def _walked(data: Data, pages: Pages) -> tuple[bytes, Matrix]:
    """Return the bytes of some pages, and the values of their headers. Raises ValueError."""
    content = b"".join(data[start:end].tobytes() for start, end in _adjacent(pages))
    found = np.empty((len(pages.starts), SIZE + 1), np.int64)
    if walk_pages(np.frombuffer(content, np.uint8), 0, len(content), found) != len(found):
        raise ValueError("no pages")
    return content, found


def _adjacent(pages: Pages) -> Sequence[tuple[int, int]]:
    """Return the ranges of bytes of the pages; adjacent pages are in one range."""
    breaks = np.flatnonzero(pages.starts[1:] != pages.ends[:-1]) + 1
    first = np.concatenate([[0], breaks])
    last = np.append(breaks, len(pages.starts)) - 1
    return list(zip(pages.starts[first].tolist(), pages.ends[last].tolist(), strict=True))


def _empty(field: pa.Field) -> bytes:
    """Return the footer of a file of no rows of a column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.ParquetWriter(sink, pa.schema([field]), store_decimal_as_integer=True).close()
    data = sink.getvalue()
    return data[-AFTER - int.from_bytes(data[-AFTER : AFTER // -2], "little") :]
