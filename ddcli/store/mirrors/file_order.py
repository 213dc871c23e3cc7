"""The order in which files of a table are compared with their rewritten versions: by the least values of their columns.

A rewrite of some rows changes few of these, so that a file and its new version come one after the other.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.named_tuple import NamedTuple
from ddcli.store.files.objects import ObjectPath
from ddcli.store.mirrors.column_chunks import chunks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from ddcli.store.mirrors.column_chunks import PieceChunks, PieceColumns

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
        if found and (found[-1].rows < PIECE or isinstance(path, ObjectPath)):
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
    if isinstance(path, ObjectPath):
        return found
    return [each._replace(chunks=chunks_of(path, footer, own)) for each, own in zip(found, groups, strict=True)]
