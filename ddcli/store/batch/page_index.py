"""The index of a batch file: the places of its pages, their checksums, and their first keys, in two levels, read from its top.

Behind a file's row groups are their *leaves*, one a row group, of one length: 64-bit numbers with the first key of each page,
and for each column the ends of its pages, the sizes of their headers and their checksums. Then comes the index proper, which
has the checksum of each leaf and the first record of each row group; then Parquet's own footer. The manifest has the checksum of
index and footer together. So a lookup reads, and checks, the index, the leaves of a few row groups and a few pages of each.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddcli.dataclass import frozen
from ddcli.engine.kernels.hashes import hash_ranges
from ddcli.engine.kernels.page_headers import SIZE, walk_pages
from ddcli.engine.kernels.page_values import (
    FLAGGED,
    FLIPPED,
    FLOAT,
    NARROW,
    NULLABLE,
    NUMBERED,
    OTHER,
    PLAIN,
    TEXT,
    UNSIGNED,
    WIDTH,
)
from ddcli.engine.kernels.page_writer import SIZES, describe_pages
from ddcli.engine.kernels.pages import are_sound, find_pages, locate_pages
from ddcli.expressions import types
from ddcli.expressions.types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddcli.engine.lanes import Matrix
    from ddcli.expressions.types import Type

    Data = np.ndarray[Any, np.dtype[np.uint8]]

JSON = json.JSONEncoder(ensure_ascii=False)
MAGIC = b"ddpages1"
TRAILER = len(MAGIC) + 4
"""The bytes at the end of the index: its length and its magic."""
WORD = 8
NARROW_KINDS = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32", "date"})
NARROW_DIGITS = 9
"""Digits of a decimal that Parquet has in 32 bits."""


def form_of(kind: Type, *, numbered: bool) -> int:
    """Return the form (see `kernels.page_values`) of the pages of a column of this type."""
    if kind.kind == "float64":
        form = FLOAT if numbered else FLOAT | PLAIN
    elif kind.kind in ("string", "binary"):
        form = TEXT if numbered else TEXT | PLAIN
    elif kind.kind == "decimal":
        form = NARROW if kind.precision <= NARROW_DIGITS else 0
        if kind.is_wide:
            form = decimal_width(kind.precision) << WIDTH | (0 if numbered else PLAIN)
    elif kind.kind in (*INTEGERS, "date", "time", "datetime", "duration"):
        form = NARROW if kind.kind in NARROW_KINDS else 0
    else:
        return OTHER
    flagged = FLAGGED if kind.nullable and kind.kind in types.FLAGGED else 0
    sign = {"uint32": UNSIGNED, "uint64": FLIPPED}.get(kind.kind, 0)
    return form | sign | flagged | (NULLABLE if kind.nullable else 0) | (NUMBERED if numbered else 0)


def decimal_width(digits: int) -> int:
    """Return the number of bytes that Parquet has for a decimal of `digits` digits.

    >>> [decimal_width(digits) for digits in (18, 19, 21, 22, 38)]
    [8, 9, 9, 10, 16]
    """
    return int(10**digits).bit_length() // 8 + 1


class PageColumn(NamedTuple):
    """A column of a file: its name there, the text of its type, and the form of its pages."""

    name: str
    kind: str
    form: int


@frozen
class PageIndex:
    """The upper level: rows of a row group and of a page, the first record of each row group and the last record of all.

    `start` is where the leaves begin, `checksums` are theirs, `key` is how many lanes of a record they have. `constants` are the columns
    that hold just one number; `mark` identifies the secret under which lanes are hashed, if any are (see `Pool.mark`).
    """

    rows: int
    group: int
    page: int
    key: int
    start: int
    records: Matrix
    checksums: Matrix
    columns: tuple[PageColumn, ...]
    constants: dict[str, int]
    mark: str = ""

    @property
    def groups(self) -> int:
        """Return the number of row groups."""
        return len(self.checksums)

    @property
    def pages(self) -> int:
        """Return the number of pages of a column in a row group; only the last row group may have fewer."""
        return -(-min(self.rows, self.group) // self.page)

    @property
    def length(self) -> int:
        """Return how many numbers a leaf has."""
        return leaf_length(self.pages, self.key, len(self.columns))

    def rows_of(self, groups: Matrix) -> Matrix:
        """Return the number of rows of some row groups."""
        return np.minimum(self.rows - groups * self.group, self.group)

    def to_bytes(self) -> bytes:
        """Return the bytes that `from_bytes` reads, followed by their length and a magic."""
        packed = {
            name: base64.b64encode(getattr(self, name).astype("<i8").tobytes()).decode()
            for name in ("records", "checksums")
        }
        numbers = {name: getattr(self, name) for name in ("rows", "group", "page", "key", "start")}
        tree = {**numbers, **packed, "columns": self.columns, "constants": self.constants, "mark": self.mark}
        text = JSON.encode(tree).encode()
        return text + len(text).to_bytes(4, "little") + MAGIC

    @classmethod
    def from_bytes(cls, data: bytes, width: int) -> PageIndex:
        """Return the index of a file whose records have `width` lanes. Raises ValueError, KeyError or TypeError."""
        try:
            tree = json.loads(data)
        except RecursionError as error:
            raise ValueError(str(error)) from None
        checksums = _numbers(tree["checksums"])
        rows, group, page, key, start = (_natural(tree[name]) for name in ("rows", "group", "page", "key", "start"))
        found = cls(
            rows,
            group,
            page,
            key,
            start,
            _numbers(tree["records"]).reshape(len(checksums) + 1, width),
            checksums,
            _columns(tuple((str(name), str(kind), int(form)) for name, kind, form in tree["columns"])),
            {str(name): int(value) for name, value in tree["constants"].items()},
            str(tree["mark"]),
        )
        if min(found.page, found.group, found.rows) < 1 or found.key > width:
            raise ValueError("an index of no rows")
        if found.groups != -(-found.rows // found.group):
            raise ValueError("an index of another number of row groups")
        return found


@lru_cache(maxsize=1024)
def _columns(given: tuple[tuple[str, str, int], ...]) -> tuple[PageColumn, ...]:
    """Return the columns that an index lists: the batches of an arrangement have the same."""
    return tuple(PageColumn(*column) for column in given)


def row_checksums(numbers: Matrix) -> Matrix:
    """Return the checksum of each row of a matrix.

    >>> a, b = row_checksums(np.array([[1, 2], [1, 3]]))
    >>> bool(a == b)
    False
    """
    count, lanes = numbers.shape
    starts = np.arange(count) * (WORD * lanes)
    found = np.empty(count, np.int64)
    data = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8)
    hash_ranges(starts, np.full(count, WORD * lanes), data, found)
    return found


def leaf_length(pages: int, key: int, columns: int) -> int:
    """Return the count of numbers in a leaf of these numbers of pages, lanes of a key and columns."""
    return pages * key + columns * (2 * pages + 3)


def leaf_of(data: Data, start: int, forms: Sequence[int], keys: Matrix, rows: Matrix, length: int) -> Matrix:
    """Return the leaf of a row group whose bytes are `data`, at `start` in the file; a file's first one includes its magic.

    `keys` are the first keys of its pages, and the last key of all; `rows` the numbers of rows of these pages. A leaf that is shorter
    than `length`, the file's last one, is filled up with pages of that last key that have no rows.
    """
    pages, columns = len(rows), len(forms)
    wide = (length - 3 * columns) // (keys.shape[1] + 2 * columns)
    found = np.empty((columns * (pages + 1), SIZE + 1), np.int64)
    count = walk_pages(data, 0 if start else 4, len(data), found)
    leaf = np.empty(length, np.int64)
    place = wide * keys.shape[1]
    lows = leaf[:place].reshape(wide, keys.shape[1])
    lows[:pages], lows[pages:] = keys[:pages], keys[-1:]
    end = describe_pages(data, found, count, np.array(forms, np.int64), rows, start, wide, leaf, place)
    assert end == len(data), f"other pages than asked for: {end}"
    return leaf


@frozen
class Pages:
    """The pages of a column: the begin and the end of each, and their table for kernels (see `find_rows`)."""

    starts: Matrix
    table: Matrix

    @property
    def ends(self) -> Matrix:
        """Return the end of each page."""
        return self.table[:, 1]

    def of(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Pages:
        """Return those for which the mask is true."""
        return Pages(self.starts[chosen], self.table[chosen])


class Leaves:
    """The leaves of some row groups, in order.

    Pages of them are rows [place of the row group here | number of the page there | rows of the page].
    """

    def __init__(self, index: PageIndex, groups: Matrix, numbers: Matrix) -> None:
        self.index = index
        self.groups = groups
        self._numbers = numbers

    def pages_of(self, keys: Matrix) -> Matrix:
        """Return the pages that can have one of the sorted keys.

        A leaf has only the lanes of a key: for records that are looked up by more columns, it has the first ones.
        """
        index = self.index
        lanes = min(keys.shape[1], index.key)
        after = np.ascontiguousarray(index.records[self.groups + 1, :lanes])
        found = np.empty((len(self.groups) * index.pages, 3), np.int64)
        heights, keys = index.rows_of(self.groups), np.ascontiguousarray(keys[:, :lanes])
        return found[: find_pages(self._numbers, after, heights, keys, index.pages, index.page, index.key, found)]

    def all(self) -> Matrix:
        """Return all pages."""
        heights, page = self.index.rows_of(self.groups), self.index.page
        counts = -(-heights // page)
        found = np.empty((counts.sum(), 3), np.int64)
        if len(heights) == 1:  # of a small batch: there are many
            found[:, 0], found[:, 1] = 0, np.arange(counts[0])
        else:
            found[:, 0] = np.repeat(np.arange(len(heights)), counts)
            found[:, 1] = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
        found[:, 2] = np.minimum(heights[found[:, 0]] - found[:, 1] * page, page)
        return found

    def pages(self, column: int, chosen: Matrix) -> Pages:
        """Return these pages of a column."""
        found = Pages(np.empty(len(chosen), np.int64), np.empty((len(chosen), 5), np.int64))
        at = self._column(column)
        locate_pages(self._numbers, chosen, at, self.index.pages, found.starts, found.table)
        return found

    def before(self, column: int, places: Matrix) -> tuple[Matrix, Matrix]:
        """Return the begin and end of the bytes before the pages of a column in some row groups: a dictionary, or none; in the first also the magic."""
        at = self._column(column)
        return self._numbers[places, at], self._numbers[places, at + 1] >> SIZES

    def sound(self, data: Data, column: int, chosen: Matrix, pages: Pages, *, numbered: bool) -> bool:
        """Return whether pages of a file are as they were written, and for a `numbered` column the dictionaries before them."""
        at, each = self._column(column), (pages.starts, pages.table)
        return bool(are_sound(data, self._numbers, chosen, at, self.index.pages, int(numbered), *each))

    def _column(self, column: int) -> int:
        """Return the offset of a column's numbers."""
        return self.index.pages * self.index.key + column * (2 * self.index.pages + 3)


def _numbers(text: str) -> Matrix:
    found: Matrix = np.frombuffer(base64.b64decode(text, validate=True), "<i8").astype(np.int64)
    return found


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value
