"""Columns of Parquet files that are equal by their bytes: a program that rewrites a file to change some rows writes most of its columns as they were.

A chunk is a column's pages in a row group, each with its header, the dictionary first. Chunks of the same bytes have the same values if the number of rows, the
column's type and its compression are the same, too. So chunks are compared without decoding them.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import polars as pl

WINDOW = 1 << 18
"""Bytes that are compared at once."""
LEAST = 1 << 12
"""Rows that row groups have on average, at least: columns of fewer are decoded sooner than their chunks are found."""


class ColumnChunks(NamedTuple):
    """The chunks of a column in some row groups: their `kind`, which must be equal as their bytes must, and the range of each in the file."""

    kind: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of bytes of each chunk."""
        return tuple(size for _, size in self.places)


@frozen
class PieceChunks:
    """The chunks of some row groups of a file, by their columns, and how many rows each row group has."""

    path: Path
    rows: tuple[int, ...]
    columns: Mapping[str, ColumnChunks]


@frozen
class PieceColumns:
    """A piece of a file whose columns can be read one by one: their names, some of them as a frame, and the places of those in the file."""

    names: Sequence[str]
    read: Callable[[Sequence[str]], pl.DataFrame]
    chunks: PieceChunks


def chunks_of(path: Path, footer: Any, groups: Sequence[int]) -> PieceChunks | None:
    """Return the places of the columns in some row groups of a file with this footer (pyarrow's); None where they are small, or two have one name."""
    found = [footer.row_group(at) for at in groups]
    rows = tuple(group.num_rows for group in found)
    fields = [*footer.schema.to_arrow_schema()]
    if sum(rows) < LEAST * len(rows) or len({field.name for field in fields}) < len(fields):
        return None
    columns, leaf = {}, 0
    for field in fields:
        leaves = range(leaf, leaf := leaf + _leaves(field.type))
        chunks = [group.column(at) for group in found for at in leaves]
        types = tuple(_type(footer.schema.column(at)) for at in leaves)
        kind = (str(field.type), field.nullable, types, *(chunk.compression for chunk in chunks))
        columns[field.name] = ColumnChunks(kind, tuple(map(_place, chunks)))
    return PieceChunks(path, rows, columns) if leaf == footer.num_columns else None


def _leaves(kind: Any) -> int:
    """Return how many columns of Parquet a type of Arrow has."""
    from pyarrow import types

    if types.is_nested(kind):
        return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields))
    return 1


def _type(column: Any) -> tuple[Any, ...]:
    levels = column.max_definition_level, column.max_repetition_level
    logical = str(column.logical_type), column.length, column.precision, column.scale
    return column.path, column.physical_type, *levels, *logical


def _place(chunk: Any) -> tuple[int, int]:
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, chunk.total_compressed_size


def equal_columns(left: PieceChunks, right: PieceChunks) -> list[str]:
    """Return the columns that have the same bytes in two pieces; none where row groups have other rows, or a file can't be read."""
    if left.rows != right.rows:
        return []
    try:
        with left.path.open("rb", 0) as ours, right.path.open("rb", 0) as theirs:
            return [
                name
                for name, mine in left.columns.items()
                if (other := right.columns.get(name)) is not None
                and (mine.kind, mine.sizes) == (other.kind, other.sizes)
                and all(
                    _same_bytes(ours.fileno(), theirs.fileno(), start, begin, size)
                    for (start, size), (begin, _) in zip(mine.places, other.places, strict=True)
                )
            ]
    except OSError:
        return []  # the reader of its rows reports the error


def _same_bytes(ours: int, theirs: int, start: int, begin: int, size: int) -> bool:
    """Return whether two files have the same bytes at two places; not where one ends before."""
    for at in range(0, size, WINDOW):
        length = min(WINDOW, size - at)
        mine = os.pread(ours, length, start + at)
        if len(mine) < length or mine != os.pread(theirs, length, begin + at):
            return False
    return True


def partners(gone: Sequence[Iterable[Any]], new: Sequence[Iterable[Any]]) -> list[tuple[int, int]]:
    """Return pairs of places on two sides, each place once at most: those with most marks in common that no other on the left has.

    >>> partners(["abx", "cdx", "efx"], ["cdx", "aby", "ghx"])
    [(1, 0), (0, 1)]
    """
    owners: dict[Any, int | None] = {}
    for at, marks in enumerate(gone):
        for mark in marks:
            owners[mark] = at if owners.get(mark, at) == at else None
    found, taken = [], set[int]()
    for at, marks in enumerate(new):
        votes = Counter(owner for mark in marks if (owner := owners.get(mark)) is not None and owner not in taken)
        if votes:
            ((owner, _),) = votes.most_common(1)
            taken.add(owner)
            found.append((owner, at))
    return found
