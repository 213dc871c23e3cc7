"""Numbers of NDJSON that have more digits than a float, or than polars reads: they are put in quotes, so that their column is read from the digits.

polars takes a number with a point or an exponent for a float, in a column of any type, and writes that as text again: up to 15
digits come back as they were, of more the last ones may not. Floats lose nothing by it; a decimal, an integer or text would. An integer
of more than 38 digits is an error to polars in any place.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from ddcli.engine.kernels.text_syntax import EXACT_DIGITS, MOST_DIGITS, SHORT_EXPONENT, hash_of
from ddcli.store.tables.json_values import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ddcli.expressions.types import Type

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|-?[0-9][0-9.eE+-]*')
NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE][+-]?([0-9]+))?")
LONG = re.compile(rb"[0-9][0-9.]{%d,}|[0-9][eE][+-]?[0-9]{%d,}" % (EXACT_DIGITS, SHORT_EXPONENT + 1))
"""The text in a line without which none of its numbers is long."""
TINY = -400
"""A power of ten below every float but zero, and every decimal."""


class ExactColumns:
    """The columns whose numbers must keep all their digits; `nested`: a dot in a name leads into an object."""

    def __init__(self, declared: Mapping[str, Type], *, nested: bool) -> None:
        exact = [name for name, kind in declared.items() if not kind.is_float]
        self.nested = nested
        self.paths = {tuple(name.encode().split(b".", 1)) if nested else (name.encode(),) for name in exact}
        self.hashes = np.array(sorted({hash_of(path[-1]) for path in self.paths}), np.uint64)

    def exact(self, line: bytes) -> bytes:
        """Return a line of NDJSON with its long numbers in quotes where a watched column has them, or polars can't read them.

        No other byte changes.

        The result depends on the line alone. A line that is no JSON is refused by readers before and after.
        """
        if not LONG.search(line):
            return line
        pieces, at = list[bytes](), 0
        for start, end in self._values(line):
            pieces += [line[at:start], _quoted(line[start:end])]
            at = end
        return b"".join([*pieces, line[at:]])

    def _values(self, line: bytes) -> Iterator[tuple[int, int]]:
        """Yield the begin and end of the values of watched columns with a long number, and of other numbers that polars can't read."""
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
            elif first == b":":
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

    >>> plain_digits("-1.234567890123456780e3")
    '-1234.56789012345678'
    """
    value = Decimal(number)
    if value.adjusted() < TINY:
        return number
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
