"""The types that an Arrow IPC file states in its footer, read without pyarrow: polars panics at some of them, and prints a message of its own.

The footer is a FlatBuffer, https://github.com/apache/arrow/tree/main/format: a table has a vtable of the offsets of its fields.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = b"ARROW1"
END = 4 + len(MAGIC)
MOST = 1 << 26
"""The bytes of a footer that is read."""
MANY = 1 << 18
"""Columns, with those within them, that are looked at: a forged footer may name one again and again."""
INTERVAL, UNION, DECIMAL, RUN_ENDS, LIST_VIEW, LARGE_LIST_VIEW = 11, 14, 7, 22, 25, 26
"""Numbers of types in Arrow's `Type`."""
UNREAD = frozenset({INTERVAL, UNION, RUN_ENDS, LIST_VIEW, LARGE_LIST_VIEW})
"""Types at which polars panics as soon as it reads a file's columns."""
WIDE = 256
"""The bits of decimals whose rows polars never reads, however few their digits are."""


def odd_columns(path: Path) -> dict[str, bool]:
    """Return the columns whose type polars doesn't read, or contains one, and whether it can't read the whole file for that.

    Empty for a file whose footer can't be read: other checks report that. Raises OSError.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - END))
        end = file.read(END)
        length = int.from_bytes(end[:4], "little")
        if end[4:] != MAGIC or not 0 < length <= min(MOST, size - END):
            return {}
        file.seek(size - END - length)
        data = file.read(length)
    try:
        schema = _Table(data, *struct.unpack_from("<I", data)).table(1)
        columns = [] if schema is None else [(each.text(0), each) for each in schema.tables(1)]
        found = dict[str, bool]()
        seen = 0
        while columns and seen < MANY:
            name, column = columns.pop()
            seen += 1
            columns += [(name, child) for child in column.tables(5)]
            number, kind = column.number(2, "<B"), column.table(3)
            if number in UNREAD:
                found[name] = True
            elif number == DECIMAL and kind is not None and kind.number(2, "<i", 128) == WIDE:
                found.setdefault(name, False)
    except (struct.error, UnicodeDecodeError):
        return {}
    return found


class _Table:
    """A table at a place of a FlatBuffer. Raises struct.error where that ends."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self._fields = at - self._read("<i", at)
        self._size = self._read("<H", self._fields)

    def _read(self, form: str, at: int) -> int:
        if at < 0:
            raise struct.error("before the beginning")
        (value,) = struct.unpack_from(form, self.data, at)
        return int(value)

    def _place(self, field: int) -> int | None:
        """Return where a field is, None where it has its default."""
        entry = 4 + 2 * field
        offset = self._read("<H", self._fields + entry) if entry < self._size else 0
        return self.at + offset if offset else None

    def _target(self, field: int) -> int | None:
        at = self._place(field)
        return None if at is None else at + self._read("<I", at)

    def number(self, field: int, form: str, default: int = 0) -> int:
        """Return a number."""
        at = self._place(field)
        return default if at is None else self._read(form, at)

    def text(self, field: int) -> str:
        """Return a text."""
        at = self._target(field)
        return "" if at is None else self.data[at + 4 : at + 4 + self._read("<I", at)].decode()

    def table(self, field: int) -> _Table | None:
        """Return a table."""
        at = self._target(field)
        return None if at is None else _Table(self.data, at)

    def tables(self, field: int) -> Iterator[_Table]:
        """Yield the tables of a list, at most `MANY`."""
        at = self._target(field)
        if at is None:
            return
        for number in range(min(MANY, self._read("<I", at))):
            place = at + 4 + 4 * number
            yield _Table(self.data, place + self._read("<I", place))
