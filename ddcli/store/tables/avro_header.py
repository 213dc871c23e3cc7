"""The header of an Avro file, with another schema that lets polars read columns that it can't read by their own.

The rows of an Avro file don't repeat their schema. So a schema whose types have the same encoding reads the same bytes: a map is a
list of pairs, an enumeration and a time are numbers. polars panics at maps, and makes times outside of a day null.
See https://avro.apache.org/docs/1.12.0/specification/.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO

from ddcli.named_tuple import NamedTuple
from ddcli.store.tables.compression import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Iterator

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
DAY = {"int": 86_400_000, "long": 86_400_000_000}
"""The milliseconds, and the microseconds of a day."""
SCHEMA, CODEC = "avro.schema", "avro.codec"


NOT_WHOLE = "the file is not whole Avro: {}"
WITHOUT = "write the file without the column, or the column in another type"


class AvroError(Exception):
    """A file that is no Avro, or polars can't read any column of it, with a hint."""

    def __init__(self, problem: str, hint: str = DAMAGED) -> None:
        super().__init__(problem)
        self.problem, self.hint = problem, hint


class AvroColumn(NamedTuple):
    """A column as polars reads it by the other schema: a time as a number, with `limit` in a day, an enumeration as the number of a symbol.

    `unfit` is the name of a type that records can't have.
    """

    limit: int = 0
    symbols: tuple[str, ...] = ()
    unfit: str = ""


class AvroHeader(NamedTuple):
    """The header with the other schema, and the columns that polars reads by it."""

    data: bytes
    columns: dict[str, AvroColumn]


def read_header(file: BinaryIO) -> AvroHeader:
    """Read the header of a file, up to its first block. Raises AvroError."""
    if file.read(len(MAGIC)) != MAGIC:
        raise AvroError(NOT_WHOLE.format("it doesn't begin as one"))
    entries = dict(_entries(file))
    sync = _read(file, SYNC)
    codec = entries.get(CODEC, b"null").decode(errors="replace")
    if codec not in CODECS:
        raise AvroError(f"the file is packed with {codec}", f"it can be read if its codec is {', '.join(CODECS)}")
    try:
        schema = json.loads(entries[SCHEMA])
        columns, fields = dict[str, AvroColumn](), list[dict[str, Any]]()
        known = dict[str, Any]()
        for field in schema["fields"]:
            columns[field["name"]], other = _column(field["name"], field["type"], known)
            fields.append({"name": field["name"], "type": other})
    except (KeyError, TypeError, ValueError, RecursionError):
        raise AvroError("the file's header has no schema of a record", "write the file again") from None
    other_schema = {"type": "record", "name": "row", "fields": fields}
    parts = {**entries, SCHEMA: json.dumps(other_schema).encode()}
    written = b"".join(_sized(name.encode()) + _sized(value) for name, value in parts.items())
    return AvroHeader(MAGIC + _long_bytes(len(parts)) + written + b"\0" + sync, columns)


def _column(name: str, kind: Any, known: dict[str, Any]) -> tuple[AvroColumn, Any]:
    """Return a column and its type in the other schema; `known` are the types that have a name."""
    others = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    if len(others) != 1 or (isinstance(kind, list) and len(kind) != 2):
        raise AvroError(f"column '{name}' is {_name(kind)}, a type with which the file can't be read", WITHOUT)
    (inner,) = others
    inner = known.get(inner, inner) if isinstance(inner, str) else inner
    shape = inner if isinstance(inner, dict) else {"type": inner}
    column = AvroColumn()
    if shape["type"] == "enum":
        known[shape["name"]] = shape
        column, other = AvroColumn(symbols=tuple(map(str, shape["symbols"]))), "int"
    elif TIMES.get(shape.get("logicalType", "")) == shape["type"]:
        column, other = AvroColumn(limit=DAY[shape["type"]]), shape["type"]
    else:
        other, odd = _plain(name, shape, known, DEEPEST)
        column = AvroColumn(unfit=odd)
    return column, [other if one != "null" else one for one in kind] if isinstance(kind, list) else other


def _plain(name: str, kind: Any, known: dict[str, Any], depth: int) -> tuple[Any, str]:
    """Return a type in the other schema, and the name of a type within it that records can't have."""
    if isinstance(kind, list):
        if len(kind) != 2 or "null" not in kind:
            raise AvroError(
                f"column '{name}' is or holds {_name(kind)}, a type with which the file can't be read", WITHOUT
            )
        parts = [(one, "") if one == "null" else _plain(name, one, known, depth) for one in kind]
        return [part for part, _ in parts], next((odd for _, odd in parts if odd), "")
    if isinstance(kind, str) and kind in known:
        kind = known[kind]
    if isinstance(kind, str):
        if kind not in PRIMITIVE:
            raise AvroError(f"column '{name}' is or holds {kind}, a type with which the file can't be read", WITHOUT)
        return kind, ""
    if not depth:
        raise AvroError(f"column '{name}' is nested too deep", WITHOUT)
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
            name = _read(file, _long(file)).decode(errors="replace")
            yield name, _read(file, _long(file))


def _read(file: BinaryIO, size: int) -> bytes:
    data = file.read(size) if 0 <= size <= LARGEST else b""
    if len(data) != size:
        raise AvroError(NOT_WHOLE.format("its header ends too early"))
    return data


def _long(file: BinaryIO) -> int:
    """Read a number: seven bits a byte, the lowest first, its sign in the lowest bit."""
    value, shift = 0, 0
    while True:
        (byte,) = _read(file, 1)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1)
        if shift > 63:
            raise AvroError(NOT_WHOLE.format("its header ends too early"))


def _long_bytes(value: int) -> bytes:
    value = value << 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _sized(data: bytes) -> bytes:
    return _long_bytes(len(data)) + data
