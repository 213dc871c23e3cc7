"""The content of a file without some of its rows: all other rows stay as they were written, in text to the byte."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import polars as pl

from ddcli.errors import InputError
from ddcli.store.parquet import footers
from ddcli.store.tables.compression import packed, unpacked
from ddcli.store.tables.csv_records import records
from ddcli.store.tables.encodings import WIDE

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from ddcli.expressions.csv_dialect import Dialect
    from ddcli.store.tables.kinds import Kind


def without_rows(path: Path, kind: Kind, rows: Collection[int], dialect: Dialect) -> bytes:
    """Return the content of a file without the rows of these numbers. Raises InputError for a kind from which no rows can be left out."""
    if kind.name in (footers.PARQUET, footers.IPC):
        left = (
            kind.scan([path]).with_row_index("\0row").filter(~pl.col("\0row").is_in(list(rows))).drop("\0row").collect()
        )
        data = io.BytesIO()
        if kind.name == footers.PARQUET:
            left.write_parquet(data)
        else:
            left.write_ipc(data, compression="zstd")
        return data.getvalue()
    lines = {line for line in kind.lines(path, sorted(rows)) if line is not None}
    with unpacked(path) as file:
        text = file.read()
    parts = text.split(b"\n")
    written = [*(part + b"\n" for part in parts[:-1]), *parts[-1:]]
    if kind.name == footers.CSV and dialect.encoding not in WIDE:
        ends = {record.last: record.first for record in records(path, dialect)}
        lines = {line for last in lines for line in range(ends[last], last + 1)}
    elif kind.name != footers.NDJSON or _first(text) != b"{":
        raise InputError(
            "rows can't be left out of a file of this kind",
            place=str(path),
            hint="remove the rows from the file, and repeat the command",
        )
    return packed(b"".join(part for line, part in enumerate(written, start=1) if line not in lines), path.name)


def _first(text: bytes) -> bytes:
    """Return the first byte that is no space: in a file of JSON objects a brace."""
    return text.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
