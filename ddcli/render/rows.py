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
    rows, cut = 0, False

    def kept() -> Iterator[pl.DataFrame]:
        nonlocal rows, cut
        for frame in frames if limit is None else first(frames, limit):
            shown = frame if limit is None else frame.head(limit - rows)
            cut = frame.height > shown.height
            rows += shown.height
            yield preview_frame(shown) if hides else shown

    WRITERS[form](kept(), out)
    out.flush()
    return rows, cut


def _write_json_lines(frames: Iterator[pl.DataFrame], out: BinaryIO) -> None:
    out.writelines(_json_lines(frame) for frame in frames)


def _write_json(frames: Iterator[pl.DataFrame], out: BinaryIO) -> None:
    """Write a JSON array with a line for each row."""
    between = b"["
    for frame in frames:
        if not frame.is_empty():
            out.write(between + _json_lines(frame)[:-1].replace(b"\n", b",\n"))
            between = b",\n"
    out.write(b"[]\n" if between == b"[" else b"]\n")


def _write_csv(frames: Iterator[pl.DataFrame], out: BinaryIO) -> None:
    """Write CSV with a header, as inputs are read: an empty field is null, two quotes are empty text."""
    for at, frame in enumerate(frames):
        texts = [as_text(column) if _needs_text(column.dtype) else column for column in frame]
        if out.isatty():  # CSV has no escapes: a file gets the text as it is, a screen gets it visible
            texts = [visible_column(column) if column.dtype == pl.String else column for column in texts]
            texts = [column.rename(visible(column.name)) for column in texts]
        out.write(pl.DataFrame(texts).write_csv(include_header=not at).encode())


def _write_arrow(frames: Iterator[pl.DataFrame], out: BinaryIO, *, parquet: bool) -> None:
    """Write Arrow tables, by pyarrow: as Parquet, or as Arrow IPC."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file: Any = None
    for frame in frames:
        table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        if file is None:
            file = (
                pq.ParquetWriter(out, table.schema, compression="zstd")
                if parquet
                else pa.ipc.new_file(out, table.schema)
            )
        file.write_table(table)
    file.close()


def _write_text(frames: Iterator[pl.DataFrame], out: BinaryIO) -> None:
    """Write text in columns under their names, numbers to the right; a later page may have wider columns."""
    guarded, head, widths = in_actions(), list[str](), list[int]()
    for at, frame in enumerate(frames):
        right = [kind.is_numeric() for kind in frame.dtypes]
        if not at:
            head = [*map(visible, frame.columns)]
            widths = [*map(len, head)]
        lines: list[Sequence[str]] = [] if at else [head]
        for page in pl.DataFrame([shown(column) for column in frame]).iter_slices(PAGE):
            longest = page.select(pl.all().str.len_chars().max()).row(0)
            widths = [max(pair) for pair in zip(widths, longest, strict=True)]
            lines += page.iter_rows()
            out.write(b"".join(_line(cells, widths, right, guarded=guarded) for cells in lines))
            lines = []
        out.write(b"".join(_line(cells, widths, right, guarded=guarded) for cells in lines))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], *, guarded: bool) -> bytes:
    """Return cells as a line, numbers to the right."""
    columns = zip(cells, widths, right, strict=True)
    line = "  ".join(cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in columns).rstrip()
    return (as_line(line) if guarded else line).encode() + b"\n"


WRITERS: dict[RowFormat, Callable[[Iterator[pl.DataFrame], BinaryIO], None]] = {
    "text": _write_text,
    "json": _write_json,
    "jsonl": _write_json_lines,
    "csv": _write_csv,
    "parquet": partial(_write_arrow, parquet=True),
    "arrow": partial(_write_arrow, parquet=False),
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
