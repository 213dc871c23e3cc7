"""The objects of a `.json` file as lines, and numbers in quotes that polars would read as others: so that all JSON is read in one way.

The objects are in an array, or one after the other. The file is held in memory as a whole. A line break within an object becomes a space, which means
the same in JSON.

A number that has more digits than a float, or than polars reads, is put in quotes, so that its column is read from the digits. polars takes a number
with a point or an exponent for a float, in a column of any type, and writes that as text again: up to 15 digits come back as they were, of more the
last ones may not. Floats lose nothing by it; a decimal, an integer or text would. An integer of more than 38 digits is an error to polars in any
place. polars also writes lists and objects as text, for which it forgets most escapes: with one, they are put in quotes, too.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.kernels.text_syntax import EXACT_DIGITS, MOST_DIGITS, SHORT_EXPONENT, hash_of
from ddcli.store.tables.compression import UTF_8, Damage, is_padded, unpacked
from ddcli.store.tables.csv_records import not_text, opened
from ddcli.store.tables.input_path import bare, packing_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ddcli.expressions.types import Type


SPACE = re.compile(r"[ \t\r\n]*")
TOMBSTONE = b"null"
"""The line that a topic's consumer writes for a record without a value."""
BREAKS = str.maketrans("\r\n", "  ")
SHAPES = json.JSONDecoder(parse_int=str, parse_float=str)
"""The decoder that finds where values end: numbers stay texts, as Python makes no integer of more than 4 300 digits."""


def is_values(path: Path) -> bool:
    """Return whether a file holds JSON that needn't be one object a line."""
    return bare(path.name).endswith(".json")


def is_read_by_polars(path: Path) -> bool:
    """Return whether polars unpacks a file of text, if it is packed, and finds one object or record in each line."""
    return packing_of(path.name) in ("", ".gz") and not is_values(path) and not is_padded(path)


def has_mark(path: Path) -> bool:
    """Return whether a file begins with the byte order mark of UTF-8. Raises Damage."""
    with unpacked(path) as raw:
        return raw.read(len(BOM_UTF8)) == BOM_UTF8


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file of JSON lines, or the objects of another, each with the number of the line where it begins. A byte order mark before them is no part of them.

    Raises Damage where a file is not whole, and where the objects of a `.json` file can't be separated.
    """
    if not is_values(path):
        with opened(path) as file:
            for line, text in enumerate(file, start=1):
                yield line, text.removeprefix("\ufeff") if line == 1 else text
        return
    with unpacked(path) as raw:
        data = raw.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_text(path, data.count(b"\n", 0, error.start) + 1, UTF_8) from None
    line = at = 0
    for start, end in _values(text, path):
        line += text.count("\n", at, start)
        at = start
        yield line + 1, text[start:end].translate(BREAKS) + "\n"


def _values(text: str, path: Path) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of the values of a text: the elements if it is an array, else one after the other."""
    decode = SHAPES.raw_decode
    at = _after_space(text, 0)
    in_array = text.startswith("[", at)
    at = _after_space(text, at + 1) if in_array else at
    try:
        if in_array and text.startswith("]", at):
            at += 1
        else:
            while at < len(text) or in_array:
                _, end = decode(text, at)
                yield at, end
                at = _after_space(text, end)
                if not in_array:
                    continue
                if text.startswith("]", at):
                    at += 1
                    break
                at = _after_comma(text, at)
    except json.JSONDecodeError as error:
        raise Damage(f"not JSON: {error.msg}", f"{path}:{error.lineno}:{error.colno}") from None
    except RecursionError:
        place = f"{path}:{text.count(chr(10), 0, at) + 1}"
        raise Damage("values are nested too deep", place, "leave out values that no column reads") from None
    if in_array and (rest := _after_space(text, at)) < len(text):
        place = f"{path}:{text.count(chr(10), 0, rest) + 1}"
        raise Damage("not JSON: something comes after the array", place)


def payload_of(line: bytes) -> bytes:
    """Return the payload of an object that has nothing but a schema and a payload, as Kafka Connect writes it; another line as it is.

    A tombstone, which is `null` or has it as payload, becomes an empty line. A line that is no JSON is refused by readers before and after.

    >>> payload_of(b'{"schema": {"type": "struct"}, "payload": {"id": 1.0}}'), payload_of(b'{"id": 1, "payload": {}}')
    (b'{"id": 1.0}', b'{"id": 1, "payload": {}}')
    """
    return payload_and_schema(line)[0]


def payload_and_schema(line: bytes) -> tuple[bytes, str]:
    """Return the same as `payload_of`, and the schema beside the payload, an empty text without one."""
    if b'"payload"' not in line:
        return (b"" if line.strip() == TOMBSTONE else line), ""
    try:
        text = line.decode()
        found = dict(_entries(text))
    except (ValueError, RecursionError):
        return line, ""
    if not {"payload"} <= found.keys() <= {"payload", "schema"}:
        return line, ""
    start, end = found["payload"]
    payload, schema = text[start:end], text[slice(*found.get("schema", (0, 0)))]
    if payload == TOMBSTONE.decode():
        return b"", ""
    return (payload.encode(), schema) if payload.startswith("{") else (line, "")


def _entries(text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the keys of an object, and where their values begin and end. Raises ValueError."""
    decode = SHAPES.raw_decode
    at = _after_space(text, 0)
    if not text.startswith("{", at):
        return
    at = _after_space(text, at + 1)
    while not text.startswith("}", at):
        key, at = decode(text, at)
        at = _after_space(text, at)
        if not isinstance(key, str) or not text.startswith(":", at):
            raise ValueError("not JSON")
        start = _after_space(text, at + 1)
        _, end = decode(text, start)
        yield key, (start, end)
        at = _after_space(text, end)
        if not text.startswith("}", at):
            at = _after_comma(text, at)


def _after_comma(text: str, at: int) -> int:
    if not text.startswith(",", at):
        raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
    return _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at


TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|-?[0-9][0-9.eE+-]*')
NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE][+-]?([0-9]+))?")
LONG = re.compile(rb"[0-9][0-9.]{%d,}|[0-9][eE][+-]?[0-9]{%d,}" % (EXACT_DIGITS, SHORT_EXPONENT + 1))
"""The text in a line without which none of its numbers is long."""
ESCAPE = re.compile(rb'\\[^"n]')
"""An escape that polars does not write again in the text of a list or an object."""
TINY = -400
"""A power of ten below every float but zero, and every decimal."""


class ExactColumns:
    """The columns whose numbers must keep all their digits, and lists and objects their escapes; `nested`: a dot in a name leads into an object."""

    def __init__(self, declared: Mapping[str, Type], *, nested: bool) -> None:
        exact = [name for name, kind in declared.items() if not kind.is_float]
        self.nested = nested
        self.paths = {tuple(name.encode().split(b".", 1)) if nested else (name.encode(),) for name in exact}
        self.hashes = np.array(sorted({hash_of(path[-1]) for path in self.paths}), np.uint64)

    def exact(self, line: bytes) -> bytes:
        """Return a line of NDJSON with its long numbers, and lists and objects with escapes, in quotes where a watched column has them, or polars can't read them.

        No other byte changes.

        The result depends on the line alone. A line that is no JSON is refused by readers before and after.
        """
        if b"\\" not in line and not LONG.search(line):
            return line
        pieces, at = list[bytes](), 0
        for start, end in self._values(line):
            pieces += [line[at:start], _quoted(line[start:end])]
            at = end
        return b"".join([*pieces, line[at:]])

    def _values(self, line: bytes) -> Iterator[tuple[int, int]]:
        """Yield the begin and end of the values of watched columns with a long number or an escape in a list or an object, and of other numbers that polars can't read."""
        path: list[bytes] = []
        depth, last, watched = 0, b"", -1  # watched: the depth of the column that has this value
        start, long = 0, False
        for match in TOKEN.finditer(line):
            token = match[0]
            first = token[:1]
            if watched >= 0 and first in b",}" and depth == watched:
                if long:
                    yield start, len(line[: match.start()].rstrip())
                watched = -1
            if first in b"{[":
                depth += 1
            elif first in b"}]":
                depth -= 1
            elif first == b'"':
                last = token
                long = long or (depth > watched >= 0 and ESCAPE.search(token) is not None)
            elif first == b":":
                long = long or (depth > watched >= 0 and b"\\" in last)
                if watched < 0 and depth <= 2:
                    path[depth - 1 :] = [_key(last)]
                    if tuple(path) in self.paths:
                        watched, long = depth, False
                        start = len(line) - len(line[match.end() :].lstrip())
            elif first != b",":
                if watched < 0 and is_unreadable(token):
                    yield match.span()
                long = long or is_long(token)


def _key(token: bytes) -> bytes:
    try:
        return str(json.loads(token)).encode(errors="replace") if b"\\" in token else token[1:-1]
    except ValueError:
        return token


def _quoted(value: bytes) -> bytes:
    """Return a number, an object or an array in quotes; other values stay as they are."""
    if NUMBER.fullmatch(value):
        return b'"%s"' % plain_digits(value.decode()).encode()
    try:
        SHAPES.decode(value.decode())
    except (ValueError, RecursionError):
        return value
    return json.dumps(value.decode(), ensure_ascii=False).encode()


def is_long(number: bytes) -> bool:
    """Return whether a number is a float to polars, with so many digits that the float may be another number, or unreadable."""
    parts = NUMBER.fullmatch(number)
    if parts is None or math.isinf(float(number)):
        return False
    if parts[2] is None and parts[3] is None:
        return len(parts[1]) > MOST_DIGITS
    digits = (parts[1] + (parts[2] or b"")).lstrip(b"0")
    return len(digits) > EXACT_DIGITS or len(parts[3] or b"") > SHORT_EXPONENT


def is_unreadable(number: bytes) -> bool:
    """Return whether a number is an integer with more digits than polars reads."""
    return len(number) > MOST_DIGITS and number.lstrip(b"-").isdigit() and is_long(number)


def plain_digits(number: str) -> str:
    """Return a number without exponent and idle zeros, as polars writes the others; as it is, where that would be long.

    >>> plain_digits("-1.234567890123456780e3"), plain_digits("0e-5000")
    ('-1234.56789012345678', '0')
    """
    value = Decimal(number)
    if not value:
        return "-0" if value.is_signed() else "0"
    if value.adjusted() < TINY:
        return number
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
