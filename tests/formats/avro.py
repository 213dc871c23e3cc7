"""A writer of Avro files by the specification, for the types that polars doesn't write."""

from __future__ import annotations

import json
import struct
from typing import Any

SYNC = b"0123456789abcdef"


def avro_file(schema: dict[str, Any], rows: list[dict[str, Any]]) -> bytes:
    """Return a file of rows, as one block."""
    named: dict[str, Any] = {}
    body = b"".join(value_bytes(schema, row, named) for row in rows)
    entries = {"avro.schema": json.dumps(schema), "avro.codec": "null"}
    header = b"".join(text_bytes(part) for entry in entries.items() for part in entry)
    block = long_bytes(len(rows)) + long_bytes(len(body)) + body + SYNC if rows else b""
    return b"Obj\x01" + long_bytes(len(entries)) + header + b"\0" + SYNC + block


def long_bytes(number: int) -> bytes:
    """Return a number: the sign in the lowest bit, seven bits a byte."""
    number = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def text_bytes(text: str | bytes) -> bytes:
    """Return a text, or bytes, behind their length."""
    data = text.encode() if isinstance(text, str) else text
    return long_bytes(len(data)) + data


def value_bytes(kind: Any, value: Any, named: dict[str, Any]) -> bytes:
    """Return a value of a type; `named` are the types that were defined so far."""
    if isinstance(kind, list):
        at = next(at for at, one in enumerate(kind) if (one == "null") == (value is None))
        return long_bytes(at) + value_bytes(kind[at], value, named)
    shape = named.get(kind, {"type": kind}) if isinstance(kind, str) else kind
    if "name" in shape:
        named[shape["name"]] = shape
    name = shape["type"]
    if name == "record":
        return b"".join(value_bytes(field["type"], value[field["name"]], named) for field in shape["fields"])
    if name in ("array", "map"):
        parts = [
            value_bytes(shape["items"], each, named)
            if name == "array"
            else text_bytes(each) + value_bytes(shape["values"], value[each], named)
            for each in value
        ]
        return (long_bytes(len(parts)) + b"".join(parts) if parts else b"") + b"\0"
    plain = {
        "null": lambda: b"",
        "boolean": lambda: bytes([value]),
        "int": lambda: long_bytes(value),
        "long": lambda: long_bytes(value),
        "float": lambda: struct.pack("<f", value),
        "double": lambda: struct.pack("<d", value),
        "bytes": lambda: text_bytes(value),
        "string": lambda: text_bytes(value),
        "fixed": lambda: value,
        "enum": lambda: long_bytes(shape["symbols"].index(value)),
    }
    return plain[name]()
