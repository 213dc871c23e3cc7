"""Rows for people and for programs: text in columns, JSON, CSV, Parquet, written batch by batch.

Values that have no plain text have one spelling everywhere: binary values are hexadecimal digits; in CSV and in text, lists are
JSON and durations ISO 8601 (`PT1M30S`). JSON has no NaN and no infinities: there they are the texts "NaN", "Infinity" and
"-Infinity", which `cast(text as float64)` reads, and so does an input in NDJSON.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import polars as pl

from ddcli.expressions.lower import Lowering
from ddcli.expressions.tree import Cast, Column
from ddcli.expressions.types import Type, from_polars
from ddcli.privacy import preview_frame
from ddcli.screen import JSON_SUSPECT, SUSPECT, as_line, in_actions, json_value, json_visible, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from polars._typing import PolarsDataType

RowFormat = Literal["text", "json", "jsonl", "csv", "parquet", "arrow"]
BATCH = 1 << 16
"""The most rows of a stream that are in memory together."""
PAGE = 1000
"""The number of rows of text that have columns of one width."""
TEXT = Type("string", nullable=True)
NULL = "null"


def batches(frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of a lazy frame in batches, in order; without rows, one empty frame. Raises the errors of reading."""
    found = False
    for batch in frame.collect_batches(chunk_size=BATCH, maintain_order=True, engine="streaming"):
        found = True
        yield batch
    if not found:
        yield pl.DataFrame(schema=frame.collect_schema())


def first(frames: Iterable[pl.DataFrame], limit: int) -> Iterator[pl.DataFrame]:
    """Yield the first `limit` rows of batches, and one more, if there is one, which shows that rows are left out."""
    room = limit + 1
    for frame in frames:
        yield frame.head(room)
        room -= frame.height
        if room <= 0:
            return


def write_rows(
    frames: Iterable[pl.DataFrame], form: RowFormat, out: BinaryIO, limit: int | None = None, *, hides: bool = True
) -> tuple[int, bool]:
    """Write batches of rows, at least one, perhaps empty; return the number of rows, and whether `limit` cut them. Columns with tags are digests, unless it `hides` none."""
    writer = WRITERS[form](out)
    rows, cut = 0, False
    for frame in frames if limit is None else first(frames, limit):
        room = frame.height if limit is None else limit - rows
        cut = frame.height > room
        shown = frame.head(room)
        writer.add(preview_frame(shown) if hides else shown)
        rows += min(frame.height, room)
    writer.end()
    out.flush()
    return rows, cut


class _Writer:
    """The writer of batches of rows with the same columns."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.begun = False

    def add(self, frame: pl.DataFrame) -> None:
        """Write a batch."""
        raise NotImplementedError

    def end(self) -> None:
        """Write the end of the table, after all batches."""


class _JsonLines(_Writer):
    def add(self, frame: pl.DataFrame) -> None:
        self.out.write(_json_lines(frame))


class _Json(_Writer):
    """The writer of a JSON array with a line for each row."""

    def add(self, frame: pl.DataFrame) -> None:
        if not frame.is_empty():
            self.out.write((b",\n" if self.begun else b"[") + _json_lines(frame)[:-1].replace(b"\n", b",\n"))
            self.begun = True

    def end(self) -> None:
        self.out.write(b"]\n" if self.begun else b"[]\n")


class _Csv(_Writer):
    """The writer of CSV with a header, as inputs are read: an empty field is null, two quotes are empty text."""

    def add(self, frame: pl.DataFrame) -> None:
        texts = [as_text(column) if _needs_text(column.dtype) else column for column in frame]
        if self.out.isatty():  # CSV has no escapes: a file gets the text as it is, a screen gets it visible
            texts = [visible_column(column) if column.dtype == pl.String else column for column in texts]
            texts = [column.rename(visible(column.name)) for column in texts]
        self.out.write(pl.DataFrame(texts).write_csv(include_header=not self.begun).encode())
        self.begun = True


class _Tables(_Writer):
    """The writer of a file of Arrow tables, by pyarrow: Parquet, or Arrow IPC."""

    def __init__(self, out: BinaryIO, form: RowFormat) -> None:
        super().__init__(out)
        self._form = form
        self._file: Any = None

    def add(self, frame: pl.DataFrame) -> None:
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if self._file is None and self._form == "parquet":
            import pyarrow.parquet as pq

            self._file = pq.ParquetWriter(self.out, table.schema, compression="zstd")
        elif self._file is None:
            import pyarrow as pa

            self._file = pa.ipc.new_file(self.out, table.schema)
        self._file.write_table(table)

    def end(self) -> None:
        if self._file is not None:
            self._file.close()


class _TextTable(_Writer):
    """The writer of text in columns under their names, numbers to the right; a later page may have wider columns."""

    def add(self, frame: pl.DataFrame) -> None:
        if not self.begun:
            self._guarded = in_actions()
            self._widths = [len(visible(name)) for name in frame.columns]
            self._right = [kind.is_numeric() for kind in frame.dtypes]
        texts = pl.DataFrame([shown(column) for column in frame])
        for page in texts.iter_slices(PAGE):
            longest = page.select(pl.all().str.len_chars().max()).row(0)
            self._widths = [max(pair) for pair in zip(self._widths, longest, strict=True)]
            self._head(frame.columns)
            self.out.write(b"".join(map(self._line, page.iter_rows())))
        self._head(frame.columns)

    def _head(self, names: Sequence[str]) -> None:
        if not self.begun:
            self.out.write(self._line(map(visible, names)))
            self.begun = True

    def _line(self, cells: Iterable[str]) -> bytes:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, self._widths, self._right, strict=True)
        )
        line = "  ".join(aligned).rstrip()
        return (as_line(line) if self._guarded else line).encode() + b"\n"


WRITERS: dict[RowFormat, Callable[[BinaryIO], _Writer]] = {
    "text": _TextTable,
    "json": _Json,
    "jsonl": _JsonLines,
    "csv": _Csv,
    "parquet": partial(_Tables, form="parquet"),
    "arrow": partial(_Tables, form="arrow"),
}


def _json_lines(frame: pl.DataFrame) -> bytes:
    plain = pl.DataFrame([as_text(column) if column.dtype in (pl.Binary, pl.Duration) else column for column in frame])
    lines = _json_rows(plain) if any(map(_has_no_number, plain)) else plain.write_ndjson()
    return (json_visible(lines) if pl.Series([lines]).str.contains(JSON_SUSPECT).item() else lines).encode()


def _has_no_number(column: pl.Series) -> bool:
    """Return whether a column, or its lists and structs, has floats that are not numbers in JSON."""
    while isinstance(column.dtype, pl.List):
        column = column.drop_nulls().explode()
    if isinstance(column.dtype, pl.Struct):
        return any(map(_has_no_number, column.struct.unnest()))
    return column.dtype.is_float() and not column.is_finite().all()


def _json_rows(frame: pl.DataFrame) -> str:
    """Return rows as JSON, a line each, with texts for floats that are not numbers in JSON: polars would write null."""
    parts = [
        pl.lit("{" if at == 0 else ",") + pl.lit(f"{json.dumps(name)}:") + _json_value(pl.col(name), kind)
        for at, (name, kind) in enumerate(frame.schema.items())
    ]
    lines = frame.select(pl.concat_str([*parts, pl.lit("}\n")]).alias("line"))
    return "".join(lines["line"].to_list())


def _json_value(value: pl.Expr, kind: PolarsDataType) -> pl.Expr:
    """Return the JSON of values; the expression itself is never null."""
    if isinstance(kind, pl.List):
        inner = value.list.eval(_json_value(pl.element(), kind.inner)).list.join(",")
        return (pl.lit("[") + inner + pl.lit("]")).fill_null("null")
    if isinstance(kind, pl.Struct):
        parts = [
            pl.lit("{" if at == 0 else ",")
            + pl.lit(f"{json.dumps(each.name)}:")
            + _json_value(value.struct.field(each.name), each.dtype)
            for at, each in enumerate(kind.fields)
        ]
        return pl.when(value.is_not_null()).then(pl.concat_str([*parts, pl.lit("}")])).otherwise(pl.lit("null"))
    text = pl.struct(value.alias("")).struct.json_encode().str.strip_prefix('{"":').str.head(-1)
    if not kind.is_float():
        return text
    words = pl.when(value.is_nan()).then(pl.lit('"NaN"')).when(value > 0).then(pl.lit('"Infinity"'))
    return pl.when(value.is_finite() | value.is_null()).then(text).otherwise(words.otherwise(pl.lit('"-Infinity"')))


def _needs_text(dtype: pl.DataType) -> bool:
    return not (dtype.is_numeric() or dtype in (pl.String, pl.Boolean))


def as_text(column: pl.Series) -> pl.Series:
    """Return the values of a column as text that `cast(text as type)` reads, if it reads the type; null stays null."""
    value = pl.col(column.name)
    dtype = column.dtype
    if isinstance(dtype, pl.List | pl.Struct):
        texts = [None if one is None else json.dumps(json_value(one), ensure_ascii=False) for one in column.to_list()]
        return pl.Series(column.name, texts, pl.String)
    if isinstance(dtype, pl.Duration):
        value = value.dt.to_string("iso")
    elif isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        value = value.dt.to_string("%Y-%m-%d %H:%M:%S%.f%:z")
    elif dtype == pl.Binary:
        value = value.bin.encode("hex")
    elif dtype == pl.Null:
        value = value.cast(pl.String)
    elif dtype != pl.String:
        kind = from_polars(dtype, nullable=True)
        assert kind is not None, f"a column of {dtype}"
        value = Lowering().value(Cast(Column(column.name, kind), TEXT))
    return column.to_frame().select(value.alias(column.name)).to_series()


def shown(column: pl.Series) -> pl.Series:
    """Return the values of a column as text for a screen, on one line each (see `visible`)."""
    return visible_column(as_text(column)).fill_null(NULL)


def visible_column(column: pl.Series) -> pl.Series:
    """Return texts with visible characters only (see `visible`)."""
    if not column.str.contains(SUSPECT).any():
        return column
    return pl.Series(column.name, [None if text is None else visible(text) for text in column.to_list()], pl.String)
