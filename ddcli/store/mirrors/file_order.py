"""Files of a table beside their rewritten versions: their order, by the least values of columns, and their columns that are equal by their bytes.

A rewrite of some rows changes few least values, so that a file and its new version come one after the other; and most columns are written as they were.
A chunk is a column's pages in a row group, each with its header, the dictionary first. Chunks of the same bytes have the same values if the number of rows, the
column's type and its compression are the same, too. So chunks are compared without decoding them.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.dataclass import frozen
from ddcli.store.files.access import fs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    for each in fields:
        leaves = range(leaf, leaf := leaf + _leaves(each.type))
        chunks = [group.column(at) for group in found for at in leaves]
        types = tuple(_type(footer.schema.column(at)) for at in leaves)
        kind = (str(each.type), each.nullable, types, *(chunk.compression for chunk in chunks))
        columns[each.name] = ColumnChunks(kind, tuple(map(_place, chunks)))
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


PIECE = 1 << 18
"""The rows of a piece of a file, at least: parts of a file that others were rewritten to may each have rows of one of these."""
FIRST = 16
"""The number of columns whose least values are compared."""


Place = list[tuple[bool, Any]]
"""A file's place in the order: whether the least value of each column is known, and that value."""


@frozen
class FileRows:
    """A file, or a part of one: its rows, and the least and largest values of its columns. Files are ordered by these, as a rewrite of some rows changes few of them."""

    read: Callable[[], Iterable[pl.DataFrame]]
    least: Mapping[Any, Any]
    largest: Mapping[Any, Any] = field(default_factory=dict)
    columns: PieceColumns | None = None
    """Its columns, where these can be compared by their bytes."""
    rows: int = 0
    """The number of its rows, as far as that is known before they are read."""

    def marks(self) -> Iterator[Any]:
        """Yield marks of its columns: a mark is shared with the column of the same bytes of another file, and with few others."""
        if self.columns is not None:
            for name, each in self.columns.chunks.columns.items():
                yield name, each.kind, each.sizes, self.least.get(name), self.largest.get(name)


def in_order(*sides: Sequence[FileRows]) -> list[list[tuple[Place, FileRows]]]:
    """Return the files of each side in one order with their places in it: by their least values, first by the values of the column that separates them best.

    That is one whose ranges overlap for few files; if all do, one most of whose least values are on both sides.
    """
    if all(len(pieces) < 2 for pieces in sides):
        return [[([], piece) for piece in pieces] for pieces in sides]
    names = list(dict.fromkeys(name for pieces in sides for piece in pieces for name in piece.least))
    values = [{name: {piece.least.get(name) for piece in pieces} for name in names} for pieces in sides]

    def place(piece: FileRows) -> Place:
        return [(piece.least.get(name) is not None, piece.least.get(name)) for name in names]

    try:
        overlaps = {name: round(_overlap([each for pieces in sides for each in pieces], name), 1) for name in names}
        names.sort(key=lambda name: (overlaps[name], -len(values[0][name] & values[1][name])))
        every = sorted(
            ((place(piece), side, piece) for side, pieces in enumerate(sides) for piece in pieces),
            key=lambda entry: entry[0],
        )
        return [[(at, piece) for at, its, piece in every if its == side] for side in range(len(sides))]
    except TypeError:  # a column whose type was changed: its values have no order
        return [[([], piece) for piece in pieces] for pieces in sides]


def _overlap(pieces: Sequence[FileRows], name: Any) -> float:
    """Return the share of all pairs of files whose ranges of a column overlap; files without a range overlap all."""
    ranges = sorted(
        (each.least[name], each.largest[name])
        for each in pieces
        if each.least.get(name) is not None and each.largest.get(name) is not None
    )
    starts = [least for least, _ in ranges]
    found = sum(bisect_right(starts, largest) - at - 1 for at, (_, largest) in enumerate(ranges))
    every, known = (count * (count - 1) // 2 for count in (len(pieces), len(ranges)))
    return (every - known + found) / every


class RowGroupRange(NamedTuple):
    """Some of a Parquet file's row groups: the first row, the number of rows, and the least and the largest values of their first columns.

    For a file on this machine also the places of their columns.
    """

    start: int
    rows: int
    least: dict[str, Any]
    largest: dict[str, Any]
    chunks: PieceChunks | None = None


def pieces_of(path: Path) -> list[RowGroupRange]:
    """Return a Parquet file's pieces with the least values of the first columns, as far as its footer has them; none if it can't be read."""
    from pyarrow import ArrowException, parquet

    try:
        with path.open("rb") as file:
            footer = parquet.read_metadata(file)
    except (OSError, ArrowException):
        return []  # the reader of its rows reports the error
    found: list[RowGroupRange] = []
    groups: list[list[int]] = []
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        least, largest = dict[str, Any](), dict[str, Any]()
        for column in map(group.column, range(min(group.num_columns, FIRST))):
            known = column.statistics
            if known is not None and known.has_min_max:
                # As the file has them: that of other values takes a package (pandas, for moments with a zone), and fails for some days.
                least[column.path_in_schema], largest[column.path_in_schema] = known.min_raw, known.max_raw
        # An object is fetched whole, so that it is one piece.
        if found and (found[-1].rows < PIECE or not fs(path).is_local):
            last = found.pop()
            with suppress(TypeError):
                least = {name: min(least.get(name, value), value) for name, value in {**least, **last.least}.items()}
                largest = {
                    name: max(largest.get(name, value), value) for name, value in {**largest, **last.largest}.items()
                }
            found.append(RowGroupRange(last.start, last.rows + group.num_rows, least, largest))
            groups[-1].append(at)
        else:
            start = found[-1].start + found[-1].rows if found else 0
            found.append(RowGroupRange(start, group.num_rows, least, largest))
            groups.append([at])
    if not fs(path).is_local:
        return found
    return [each._replace(chunks=chunks_of(path, footer, own)) for each, own in zip(found, groups, strict=True)]
