"""Parquet without a library of Parquet: a batch file of one row group, as a run of few changes writes for each of its arrangements, and files in memory made of some pages.

The batch file has the form that `writers.FrameWriter` writes, with fewer ways to pack: numbers as differences of whole bytes, texts, floats and wide decimals numbered,
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

from ddcli.engine import kernels
from ddcli.engine.columns import NULL, SIGN, float_values
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
from ddcli.engine.kernels.page_values import FLIPPED, FLOAT, NARROW, NULLABLE, NUMBERED, OTHER, SLACK, TEXT, WIDTH
from ddcli.engine.kernels.page_writer import BLOCK, HEAD, pack_deltas
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
    varint_bytes,
)
from ddcli.store.parquet.row_groups import END as AFTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.columns import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Type
    from ddcli.store.batch.file import BatchLayout

    Flags = np.ndarray[Any, np.dtype[np.bool_]]
    import polars as pl
    import pyarrow as pa

    from ddcli.store.batch.page_index import Data, Pages


LENGTH = Struct("<I")
"""The length of a text, before it."""
LEVELS = 3
"""Parquet's number for the encoding of nulls."""
NEXT, LATER, WITHIN = (bytes([step << 4 | kind]) for step, kind in ((1, I64), (2, I64), (1, STRUCT)))
"""The headers of a number in the next field of a struct, of one in the next but one, and of a struct in the next field."""
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
    rows, page = len(matrix), file.PAGE
    assert 0 < rows <= file.GROUP, "as many rows as a row group has"
    chunks = [_chunk(name, layout, matrix, pool, page) for name in stored_order(layout)]
    body, at, described, count = [MAGIC], len(MAGIC), [], number_bytes(rows)
    for column, content, dictionary in chunks:
        described.append(chunk_bytes(column, at, len(content), dictionary, count))
        body.append(content)
        at += len(content)
    group = b"".join(body)
    columns = tuple(column for column, _, _ in chunks)
    index, data = IndexWriter(layout.key.width), matrix[:, : layout.record.width]
    index.note_constants(layout.constants(matrix))
    index.add(np.frombuffer(group, np.uint8), 0, columns, data[::page], data[-1:], rows)
    indexed = index.finish(columns, len(group), pool.mark if layout.hashed else "")
    end = footer_bytes(layout, columns, [group_bytes(described, rows, at - len(MAGIC))], rows)
    return memoryview(b"".join([group, *indexed, end]))


def chunk_bytes(
    column: PageColumn, at: int, length: int, dictionary: int, rows: bytes, ends: tuple[int, int] | None = None
) -> bytes:
    """Return the footer's entry for a column's pages, `length` bytes from `at` on, the first `dictionary` of them a dictionary's.

    `rows` are the bytes of their number, `ends` the least and the greatest of its integers, where readers are to know them.
    """
    begin, size = number_bytes(at), number_bytes(length)
    first = number_bytes(at + dictionary)
    numbered = (LATER, begin) if column.form & NUMBERED else ()
    known = _statistics(column.form, ends) if ends is not None else b""
    meta = (_meta(column), NEXT, rows, NEXT, size, NEXT, size, LATER, first, *numbered, known)
    return b"".join((LATER, begin, WITHIN, *meta, b"\0\0"))


@lru_cache(maxsize=1024)
def _meta(column: PageColumn) -> bytes:
    """Return the fields 1 to 4 of a footer's entry for a column: type, encodings, name, and that nothing is compressed."""
    encodings = [UNENCODED, NUMBERS, LEVELS] if column.form & NUMBERED else [DELTAS, LEVELS]
    path = column.name.encode()
    meta: Fields = {
        1: (I32, number_bytes(_physical(column.form))),
        2: (LIST, bytes([len(encodings) << 4 | I32]) + b"".join(map(number_bytes, encodings))),
        3: (LIST, bytes([1 << 4 | BINARY]) + varint_bytes(len(path)) + path),
        4: (I32, number_bytes(0)),
    }
    return struct_bytes(meta)[:-1]


def _statistics(form: int, ends: tuple[int, int]) -> bytes:
    """Return the field 12 of a footer's entry for a column: that no value is null, the least and the greatest one."""
    size = 4 if form & NARROW else 8
    least, greatest = (_text((end % (1 << 8 * size)).to_bytes(size, "little")) for end in ends)
    step = 12 - (11 if form & NUMBERED else 9)
    return bytes([step << 4 | STRUCT]) + struct_bytes({3: (I64, number_bytes(0)), 5: greatest, 6: least})


def stored_order(layout: BatchLayout) -> list[str]:
    """Return the columns in the order of `BatchLayout.to_frame`."""
    hidden = [*(name for name in layout.columns if name not in layout.stored), *layout.hidden]
    return [*(name for name in layout.stored if name not in layout.hidden), *hidden]


@lru_cache(maxsize=1024)
def column_of(name: str, kind: Type) -> tuple[PageColumn, bool]:
    """Return a column of a file, and whether its rows have numbers of its values."""
    numbered = _is_numbered(kind)
    return PageColumn(name, str(kind), form_of(kind, numbered=numbered)), numbered


def _chunk(name: str, layout: BatchLayout, matrix: Matrix, pool: Pool, page: int) -> tuple[PageColumn, bytes, int]:
    """Return a column, its pages, one after the other, and the size of the dictionary, if the first is one."""
    kind = layout.columns[name]
    there, lanes = _lanes(name, kind, layout, matrix)
    column, numbered = column_of(name, kind)
    form = column.form
    pages: list[bytes] = []
    dictionary = 0
    if numbered:
        known, lanes = _distinct(lanes, there)
        pages.append(_dictionary(known, kind, pool))
        dictionary = len(pages[0])
        size = 1 if len(known) <= 1 << 8 else 2
    elif form & FLIPPED:
        lanes = lanes ^ SIGN
    for at in range(0, len(lanes), page):
        values = lanes[at : at + page]
        count = len(values)
        levels = b""
        if form & NULLABLE:
            here = None if there is None else there[at : at + page]
            levels = _levels(here, count)
            values = values if here is None else values[here]
        body = levels + (_numbers(values, size) if numbered else _differences(values, narrow=bool(form & NARROW)))
        pages += [_data_header(count, NUMBERS if numbered else DELTAS, len(body)), body]
    return column, b"".join(pages), dictionary


def _lanes(name: str, kind: Type, layout: BatchLayout, matrix: Matrix) -> tuple[Flags | None, Matrix]:
    """Return which rows have a value in a column, None where all do, and the lanes of the values."""
    if name not in layout.stored:
        return None, np.ascontiguousarray(layout.leading(matrix))
    lane, _, _ = layout.stored[name]
    if kind.is_wide:
        there = matrix[:, lane] != NULL
        return None if there.all() else there, np.ascontiguousarray(matrix[:, lane : lane + 2])
    if not kind.nullable:
        return None, np.ascontiguousarray(matrix[:, lane])
    flagged = kind.kind in FLAGGED
    there = matrix[:, lane] == 0 if flagged else matrix[:, lane] != NULL
    return None if there.all() else there, np.ascontiguousarray(matrix[:, lane + flagged])


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
def _data_header(count: int, encoding: int, size: int) -> bytes:
    """Return the header of a page of `count` values."""
    levels = (I32, number_bytes(LEVELS))
    header: Fields = {1: (I32, number_bytes(count)), 2: (I32, number_bytes(encoding)), 3: levels, 4: levels}
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


def _differences(values: Matrix, *, narrow: bool) -> bytes:
    """Return numbers as differences of neighbours, in one block, as wide as the largest in whole bytes. They wrap around, as they are read.

    >>> list(_differences(np.array([7, 8, 8]), narrow=False)[:9])
    [128, 1, 1, 3, 14, 0, 8, 1, 0]
    """
    out = np.empty(HEAD + 8 * (len(values) + BLOCK), np.uint8)
    return out[: pack_deltas(values, int(narrow), out)].tobytes()


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
PLAIN, RLE = 0, 3
"""Parquet's numbers for types, codecs and encodings."""


def read_pages(data: Data, parts: Sequence[tuple[Pages, Any]], field: pa.Field, rows: int) -> pl.Series:
    """Return the values of some pages without a dictionary, `rows` rows of a column; a struct has some pages for each value inside.

    Each part has its pages, and their description in their own file. Raises pa.ArrowException, OSError or ValueError if they can't be read.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    contents, chunks, begin = [MAGIC], [], len(MAGIC)
    for pages, chunk in parts:
        content, found = _walked(data, pages)
        chunks.append(_described(chunk, len(content), int(found[:, VALUES].sum()), begin))
        contents.append(content)
        begin += len(content)
    size = (I64, number_bytes(begin - len(MAGIC)))
    group = struct_bytes({1: (LIST, structs_bytes(chunks)), 2: size, 3: (I64, number_bytes(rows))})
    footer = fields(_empty(field)) | {ROWS: (I64, number_bytes(rows)), GROUPS: (LIST, structs_bytes([group]))}
    tail = struct_bytes(footer)
    file = b"".join([*contents, tail, len(tail).to_bytes(4, "little"), MAGIC])
    table = pq.ParquetFile(pa.BufferReader(file), pre_buffer=False).read(use_threads=False)
    series = pl.from_arrow(table.column(0))
    assert isinstance(series, pl.Series)
    if len(series) != rows:
        raise ValueError("another number of rows")
    return series


def _described(chunk: Any, size: int, values: int, begin: int) -> bytes:
    """Return the footer's entry for pages of `size` bytes and `values` values from `begin` on; `chunk` is the entry in the footer of their own file."""
    path, length = chunk.path_in_schema.encode(), (I64, number_bytes(size))
    described = {
        1: (I32, number_bytes(PHYSICAL[chunk.physical_type])),
        2: (LIST, bytes([2 << 4 | I32]) + number_bytes(PLAIN) + number_bytes(RLE)),
        3: (LIST, bytes([1 << 4 | BINARY]) + varint_bytes(len(path)) + path),
        4: (I32, number_bytes(CODECS[chunk.compression])),
        5: (I64, number_bytes(values)),
        6: length,
        7: length,
        9: (I64, number_bytes(begin)),
    }
    return struct_bytes({2: (I64, number_bytes(0)), 3: (STRUCT, struct_bytes(described))})


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
