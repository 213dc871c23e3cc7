"""The rows of Avro files, which polars reads by another schema where it can't read columns by their own.

The rows of an Avro file don't repeat their schema. So a schema whose types have the same encoding reads the same bytes: a map is a
list of pairs, an enumeration and a time are numbers. polars panics at maps, and makes times outside of a day null.
See https://avro.apache.org/docs/1.12.0/specification/.
"""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import polars as pl

from ddcli.errors import InputError, first_line
from ddcli.store.parquet.row_groups import number_bytes
from ddcli.store.tables.compression import DAMAGED, Damage, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


MAGIC = b"Obj\x01"
SYNC = 16
"""Bytes of the mark between blocks."""
LARGEST = 1 << 26
"""Bytes of a header's part, at most."""
DEEPEST = 100
"""Types within types."""
CODECS = ("null", "deflate", "snappy")
"""The packings of blocks that polars reads."""
PRIMITIVE = ("boolean", "int", "long", "float", "double", "bytes", "string")
TIMES = {"time-millis": "int", "time-micros": "long"}
UNITS_OF_A_DAY = {"int": 86_400_000, "long": 86_400_000_000}
"""The milliseconds, and the microseconds of a day."""
SCHEMA, CODEC = "avro.schema", "avro.codec"


NOT_WHOLE = "the file is not whole Avro: {}"
WITHOUT = "write the file without the column, or the column in another type"


def _refused(problem: str, hint: str = DAMAGED) -> InputError:
    """Return the error for a file that is no Avro, or has a column that polars can't read."""
    return InputError(problem, hint=hint)


class AvroColumn(NamedTuple):
    """A column as polars reads it by the other schema: a time as a number, with `limit` in a day, an enumeration as the number of a symbol.

    `unfit` is the name of a type that records can't have.
    """

    limit: int = 0
    symbols: tuple[str, ...] = ()
    unfit: str = ""


AvroHeader = tuple[bytes, dict[str, AvroColumn]]
"""The header with the other schema, and the columns that polars reads by it."""


def read_header(file: BinaryIO) -> AvroHeader:
    """Read the header of a file, up to its first block. Raises InputError."""
    if file.read(len(MAGIC)) != MAGIC:
        raise _refused(NOT_WHOLE.format("it doesn't begin as one"))
    entries = dict(_entries(file))
    sync = _read_entry(file, SYNC)
    codec = entries.get(CODEC, b"null").decode(errors="replace")
    if codec not in CODECS:
        raise _refused(f"the file is packed with {codec}", f"it can be read if its codec is {', '.join(CODECS)}")
    try:
        schema = json.loads(entries[SCHEMA])
        columns, fields = dict[str, AvroColumn](), list[dict[str, Any]]()
        known = dict[str, Any]()
        for field in schema["fields"]:
            columns[field["name"]], other = _column(field["name"], field["type"], known)
            fields.append({"name": field["name"], "type": other})
    except (KeyError, TypeError, ValueError, RecursionError):
        raise _refused("the file's header has no schema of a record", "write the file again") from None
    other_schema = {"type": "record", "name": "row", "fields": fields}
    parts = {**entries, SCHEMA: json.dumps(other_schema).encode()}
    written = b"".join(_sized(name.encode()) + _sized(value) for name, value in parts.items())
    return MAGIC + number_bytes(len(parts)) + written + b"\0" + sync, columns


def _column(name: str, kind: Any, known: dict[str, Any]) -> tuple[AvroColumn, Any]:
    """Return a column and its type in the other schema; `known` are the types that have a name."""
    others = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    if len(others) != 1 or (isinstance(kind, list) and len(kind) != 2):
        raise _refused(f"column '{name}' is {_name(kind)}, a type with which the file can't be read", WITHOUT)
    (inner,) = others
    inner = known.get(inner, inner) if isinstance(inner, str) else inner
    shape = inner if isinstance(inner, dict) else {"type": inner}
    column = AvroColumn()
    if shape["type"] == "enum":
        known[shape["name"]] = shape
        column, other = AvroColumn(symbols=tuple(map(str, shape["symbols"]))), "int"
    elif TIMES.get(shape.get("logicalType", "")) == shape["type"]:
        column, other = AvroColumn(limit=UNITS_OF_A_DAY[shape["type"]]), shape["type"]
    else:
        other, odd = _plain(name, shape, known, DEEPEST)
        column = AvroColumn(unfit=odd)
    return column, [other if one != "null" else one for one in kind] if isinstance(kind, list) else other


def _plain(name: str, kind: Any, known: dict[str, Any], depth: int) -> tuple[Any, str]:
    """Return a type in the other schema, and the name of a type within it that records can't have."""
    if isinstance(kind, list):
        if len(kind) != 2 or "null" not in kind:
            raise _refused(
                f"column '{name}' is or holds {_name(kind)}, a type with which the file can't be read", WITHOUT
            )
        parts = [(one, "") if one == "null" else _plain(name, one, known, depth) for one in kind]
        return [part for part, _ in parts], next((odd for _, odd in parts if odd), "")
    if isinstance(kind, str) and kind in known:
        kind = known[kind]
    if isinstance(kind, str):
        if kind not in PRIMITIVE:
            raise _refused(f"column '{name}' is or holds {kind}, a type with which the file can't be read", WITHOUT)
        return kind, ""
    if not depth:
        raise _refused(f"column '{name}' is nested too deep", WITHOUT)
    shape, logical = kind["type"], kind.get("logicalType", "")
    if isinstance(shape, dict | list):
        return _plain(name, shape, known, depth - 1)
    if "name" in kind and shape in ("record", "fixed", "enum"):
        known[kind["name"]] = kind
    if shape == "record":
        inside = [_plain(name, field["type"], known, depth - 1) for field in kind["fields"]]
        fields = [
            {"name": field["name"], "type": part} for field, (part, _) in zip(kind["fields"], inside, strict=True)
        ]
        other = {"type": "record", "name": f"r{len(known)}_{depth}", "fields": fields}
        return other, next((odd for _, odd in inside if odd), "")
    if shape == "array":
        part, odd = _plain(name, kind["items"], known, depth - 1)
        return {"type": "array", "items": part}, odd
    if shape == "map":
        part, _ = _plain(name, kind["values"], known, depth - 1)
        pair = {"type": "record", "name": "pair", "fields": [_field("key", "string"), _field("value", part)]}
        return {"type": "array", "items": pair}, _name(kind)
    if shape == "enum":
        return "int", _name(kind)
    if shape == "fixed" and logical == "duration":
        return {"type": "fixed", "name": kind["name"], "size": kind["size"]}, logical
    if TIMES.get(logical) == shape:  # within another type nobody would look at the numbers
        return shape, logical
    return (kind, "") if shape in (*PRIMITIVE, "fixed") else _plain(name, shape, known, depth - 1)


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _name(kind: Any) -> str:
    """Return the name of a type for people."""
    if isinstance(kind, list):
        return "a union of " + " and ".join(map(_name, kind))
    if not isinstance(kind, dict):
        return str(kind)
    return f"map[{_name(kind['values'])}]" if kind.get("type") == "map" else _name(kind.get("type"))


def _entries(file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield the names and values of a header."""
    while count := _long(file):
        if count < 0:
            _long(file)  # the bytes of this part
        for _ in range(abs(count)):
            name = _read_entry(file, _long(file)).decode(errors="replace")
            yield name, _read_entry(file, _long(file))


def _read_entry(file: BinaryIO, size: int) -> bytes:
    data = file.read(size) if 0 <= size <= LARGEST else b""
    if len(data) != size:
        raise _refused(NOT_WHOLE.format("its header ends too early"))
    return data


def _long(file: BinaryIO) -> int:
    """Read a number: seven bits a byte, the lowest first, its sign in the lowest bit."""
    value, shift = 0, 0
    while True:
        (byte,) = _read_entry(file, 1)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1)
        if shift > 63:
            raise _refused(NOT_WHOLE.format("its header ends too early"))


def _sized(data: bytes) -> bytes:
    return number_bytes(len(data)) + data


TIME_HINT = "a time lies from 00:00:00 until before 24:00:00: correct the value, or leave the column out of the declared `columns`"
DAY = 86_400_000_000_000
"""The nanoseconds of a day."""


def columns_of_avro(path: Path) -> dict[str, pl.DataType | str]:
    """Return the columns of a file with their types; a text is the name of one that records can't have."""
    columns, frame = _read(path, 1)
    return {name: column.unfit or _dtype(column) or frame[name].dtype for name, column in columns.items()}


def frame_of_avro(path: Path) -> pl.DataFrame:
    """Return the rows of a file, without columns that records can't have. A number that is no time becomes null: see `find_no_time`."""
    columns, frame = _read(path)
    return pl.DataFrame([_typed(frame[name], column) for name, column in columns.items() if not column.unfit])


def find_no_time(path: Path, names: Iterable[str]) -> Damage | None:
    """Return the first value of these columns that is a time by its type, and lies outside of a day."""
    with unpacked_file(path) as file:
        limits = {name: limit for name, column in _header(path, file)[1].items() if (limit := column.limit)}
    times = [name for name in names if name in limits]
    frame = _read(path)[1] if times else pl.DataFrame()
    for name in times:
        outside = (frame[name] < 0) | (frame[name] >= limits[name])
        if outside.any():
            row = outside.arg_max() or 0
            value = f"{frame[name][row]}, first in row {row} (counted from 0)"
            return Damage(f"column '{name}' has a value that is not a time of day: {value}", str(path), TIME_HINT)
    return None


@contextmanager
def unpacked_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file, unpacked; a packed one that is not whole raises the error that polars has for a damaged file."""
    try:
        with unpacked(path) as file:
            yield file
    except Damage as error:
        raise pl.exceptions.ComputeError(error.problem) from None


def damaged_file(error: Exception) -> pl.exceptions.ComputeError:
    """Return the error that polars raises for a file that is damaged: no error of the system."""
    return pl.exceptions.ComputeError(first_line(error))


def _read(path: Path, rows: int | None = None) -> tuple[dict[str, AvroColumn], pl.DataFrame]:
    """Return the columns of a file as polars reads them by the other schema."""
    with unpacked_file(path) as file:
        header, columns = _header(path, file)
        return columns, pl.read_avro(io.BytesIO(header + file.read()), n_rows=rows)


def _header(path: Path, file: BinaryIO) -> AvroHeader:
    try:
        return read_header(file)
    except InputError as error:
        error.place = str(path)
        raise


def _dtype(column: AvroColumn) -> pl.DataType | None:
    """Return the type of a column that polars reads as numbers."""
    return pl.Time() if column.limit else pl.String() if column.symbols else None


def _typed(series: pl.Series, column: AvroColumn) -> pl.Series:
    """Return a column in its own type."""
    if column.limit:
        return (series.cast(pl.Int64) * (DAY // column.limit)).cast(pl.Time, strict=False)
    if column.symbols:
        symbols = pl.Series(column.symbols, dtype=pl.String)
        return pl.select(pl.lit(symbols).gather(series)).to_series().alias(series.name)
    return series
