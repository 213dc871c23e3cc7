"""Parquet files in memory made of some pages of a column, for a reader of Parquet that should decode only these."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from ddcli.engine.kernels.page_headers import END, HEADER, SIZE, VALUES, walk_pages
from ddcli.engine.kernels.page_values import SLACK
from ddcli.store.parquet.row_groups import END as AFTER
from ddcli.store.parquet.row_groups import GROUPS, MAGIC, ROWS
from ddcli.store.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    fields,
    number_bytes,
    struct_bytes,
    structs_bytes,
    varint_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    import pyarrow as pa

    from ddcli.engine.columns import Matrix
    from ddcli.store.batch.page_index import Data, Pages

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
