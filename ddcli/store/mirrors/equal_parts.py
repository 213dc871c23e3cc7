"""Parts of a table's files that are equal in their rewritten versions: their place in one order, columns equal by their bytes, and equal rows in pairs.

A rewrite of some rows changes few least values, so that a file and its new version come one after the other; and most columns are written as they were.
A chunk is a column's pages in a row group, each with its header, the dictionary first. Chunks of the same bytes have the same values if the number of rows, the
column's type and its compression are the same, too. So chunks are compared without decoding them.

Equal rows of two frames are those at the same places, those with one value in a column that seems to identify rows, and those with one hash.
Rows are compared column by column before they count as equal. Numbers without nulls are compared as machine words, by numpy: polars
takes three times as long to put them in another order.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.dataclass import frozen
from ddcli.engine.arrow import Chunk, Memory, chunks
from ddcli.engine.kernels.pairs import keep_equal_texts, keep_equal_words, pair, pair_near, partition, place_views
from ddcli.store.files.access import fs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


WINDOW = 1 << 18
"""Bytes that are compared at once."""
LEAST = 1 << 12
"""Rows that row groups have on average, at least: columns of fewer are decoded sooner than their chunks are found."""


ColumnChunks = tuple[tuple[Any, ...], tuple[int, ...], tuple[int, ...]]
"""The chunks of a column in some row groups: their kind and their sizes in bytes, which must be equal as their bytes must, and where each begins in the file."""


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
        columns[each.name] = kind, tuple(chunk.total_compressed_size for chunk in chunks), tuple(map(_start, chunks))
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


def _start(chunk: Any) -> int:
    start: int = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start


def equal_columns(left: PieceChunks, right: PieceChunks) -> list[str]:
    """Return the columns that have the same bytes in two pieces; none where row groups have other rows, or a file can't be read."""
    if left.rows != right.rows:
        return []
    try:
        with left.path.open("rb", 0) as ours, right.path.open("rb", 0) as theirs:
            return [
                name
                for name, (kind, sizes, starts) in left.columns.items()
                if (other := right.columns.get(name)) is not None
                and (kind, sizes) == other[:2]
                and all(
                    _same_bytes(ours.fileno(), theirs.fileno(), *each)
                    for each in zip(starts, other[2], sizes, strict=True)
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
            for name, (kind, sizes, _) in self.columns.chunks.columns.items():
                yield name, kind, sizes, self.least.get(name), self.largest.get(name)


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
                # As the file has them: other values take a package (pandas, for moments with a zone), and fails for some days.
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


FEW = 4
"""A comparison place by place may leave one row in this many."""
SAMPLE = 256
"""Rows that are looked at before all are compared place by place, or paired by one column."""
PLACES = 4
"""The number of places from which these come, some from each."""
TOGETHER = 14
"""Hashes that are paired together are as many as this power of two, or fewer."""
NEAR = 4
"""Numbers are near each other if their range is at most this many times their count."""
SPREAD = np.int64(-7046029254386353131)
"""An odd number: no two integers have the same product with it in 64 bits, and the products of near ones are far apart."""
NUMBERS = {pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64}
TEXTS = {pl.String, pl.Binary}


def different(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames without rows that both have, each as often as both have it; some of these may stay.

    >>> left, right = pl.DataFrame({"a": [1, 2, 2, 3]}), pl.DataFrame({"a": [2, 4, 1]})
    >>> [frame["a"].to_list() for frame in different(left, right)]
    [[2, 3], [4]]
    """
    if left.is_empty() or right.is_empty():
        return left, right
    if left.height == right.height and mostly_equal(left, right):
        apart = apart_rows(left, right)
        left, right = left.filter(apart), right.filter(apart)
        if left.height * FEW <= len(apart):
            return left, right
    return different_elsewhere(left, right)


def different_elsewhere(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the same of frames with rows that are known to differ at the same places."""
    ours, theirs = _Rows(left), _Rows(right)
    key = _key(ours)
    if key is not None and key not in theirs.nulls:
        left, right = _unpaired(ours, theirs, pairs(ours.words(key), theirs.words(key), spread=False), key)
        ours, theirs = _Rows(left), _Rows(right)
    if left.height and right.height:
        left, right = _unpaired(ours, theirs, pairs(_hashes(left), _hashes(right)))
    return left, right


class _Texts(NamedTuple):
    """The texts of a column as views with addresses. `chunks` keeps their memory alive, `within` is its begin and end."""

    views: np.ndarray[Any, Any]
    chunks: list[Chunk]
    within: list[int]


class _Rows:
    """A frame, and the values of its columns as far as they can be compared without polars."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self.nulls = {
            each.name: each.is_null().to_numpy()
            for each in frame.get_columns()
            if each.null_count() and each.dtype not in TEXTS
        }

    @cached_property
    def numbers(self) -> dict[str, pl.Series]:
        """Columns of numbers and moments, as numbers; any for null."""
        names = [name for name, dtype in self.frame.schema.items() if dtype in NUMBERS or dtype.is_temporal()]
        plain = self.frame.select(pl.col(names).to_physical())
        plain = plain.fill_null(0) if self.nulls.keys() & {*names} else plain
        return dict(zip(plain.columns, plain.get_columns(), strict=True))

    def words(self, name: str) -> np.ndarray[Any, Any]:
        """Return integers for the values of a column of numbers, others for others. A float may have several: its rows count as different by them."""
        parts = [*self.parts(name)]
        if len(parts) == 1:
            return parts[0]
        whole, row = np.empty(self.frame.height, np.int64), 0
        for part in parts:
            whole[row : (row := row + len(part))] = part
        return whole

    def parts(self, name: str) -> Iterator[np.ndarray[Any, Any]]:
        """Yield these integers as they are in memory; narrow ones are made wide."""
        for part in self.numbers[name].get_chunks():
            values = part.to_numpy()
            yield values.view(f"i{values.itemsize}").astype(np.int64, copy=False)

    @cached_property
    def texts(self) -> list[str]:
        """The columns of texts or bytes."""
        return [name for name, dtype in self.frame.schema.items() if dtype in TEXTS]


def mostly_equal(left: pl.DataFrame, right: pl.DataFrame) -> bool:
    """Return whether most of the rows equal those at the same places of a frame of the same height."""
    # One column of numbers may do to see that they are not: it takes a tenth of the time.
    integers = [name for name, dtype in left.schema.items() if dtype.is_integer()]
    for names in filter(None, (integers[:1], left.columns)):
        ours, theirs = (_some(side.select(names)) for side in (left, right))
        if int(apart_rows(ours, theirs).sum()) * FEW > ours.height * 3:
            return False
    return True


def _some(frame: pl.DataFrame) -> pl.DataFrame:
    """Return some rows, of several places."""
    run = SAMPLE // PLACES
    if not run or frame.height <= SAMPLE:
        return frame.head(SAMPLE)
    return pl.concat(frame.slice((frame.height - run) * at // (PLACES - 1), run) for at in range(PLACES))


def _key(rows: _Rows) -> str | None:
    """Return a column of integers or timestamps without nulls whose values seem to identify rows; None if there is none."""
    if rows.frame.height <= SAMPLE:
        return None
    names = [each for each in rows.numbers if each not in rows.nulls and not rows.frame.schema[each].is_float()]
    some = _some(rows.frame.select(names)) if names else pl.DataFrame()
    return next((each.name for each in some.get_columns() if each.n_unique() == some.height), None)


def _texts(series: pl.Series) -> _Texts:
    found = _Texts(np.empty((len(series), 2), np.int64), [*chunks(series)], [])
    row = 0
    for chunk in found.chunks:
        views, nulls, buffers = chunk.words(2), chunk.nulls(), chunk.viewed()
        placed = found.views[row : (row := row + len(views))]
        place_views(views, np.array([at for at, _ in buffers], np.int64), placed)
        if nulls is not None:
            placed[nulls] = -1
        found.within.extend(end for at, size in buffers if size for end in (at, at + size))
    return found


def _hashes(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = frame.hash_rows(1).to_numpy()
    return found.view(np.int64)


def _unpaired(
    left: _Rows, right: _Rows, found: np.ndarray[Any, Any], key: str | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames without the rows that are equal to their partners: `found` has the place of the partner, or -1.

    The pairs are equal in the column `key`. The left side is not copied: its parts are compared as they are in memory.
    """
    equal = (found >= 0).view(np.uint8)
    for name in left.nulls.keys() | right.nulls.keys():
        mine, its = (side.nulls.get(name, np.zeros(side.frame.height, np.bool_)) for side in (left, right))
        equal &= mine == its[found]
    for name in [each for each in left.numbers if each != key]:
        its_words, row = right.words(name), 0
        for part in left.parts(name):
            rows = slice(row, row := row + len(part))
            keep_equal_words(part, its_words, found[rows], equal[rows])
    for name in left.texts:
        its_texts, row = _texts(right.frame[name]), 0
        for series in left.frame[name].get_chunks():
            rows = slice(row, row := row + len(series))
            _keep_equal(_texts(series), its_texts, found[rows], equal[rows])
    others = [name for name in left.frame.columns if name not in left.numbers and name not in left.texts]
    if others:
        places = np.flatnonzero(equal)
        equal[places] = ~apart_rows(left.frame.select(others)[places], right.frame.select(others)[found[places]])
    kept = np.ones(right.frame.height, np.bool_)
    kept[found[equal != 0]] = False
    return left.frame.filter(pl.Series(equal == 0)), right.frame.filter(pl.Series(kept))


def _keep_equal(left: _Texts, right: _Texts, found: np.ndarray[Any, Any], equal: np.ndarray[Any, Any]) -> None:
    """Write 0 for rows whose texts differ from their pairs'."""
    within = [*left.within, *right.within]
    base, end = min(within, default=0), max(within, default=0)
    data = np.asarray(Memory(base, (end - base,), "|u1", (left, right))) if within else np.empty(0, np.uint8)
    keep_equal_texts(data, base, left.views, right.views, found, equal)


def apart_rows(left: pl.DataFrame, right: pl.DataFrame) -> pl.Series:
    """Return a mask of the places at which two frames of one height have different rows."""
    names = [f"{at}" for at in range(left.width)]
    sides = zip(left.get_columns(), right.get_columns(), names, strict=True)
    both = pl.DataFrame([each for ours, theirs, at in sides for each in (ours.alias(at), theirs.alias(f"-{at}"))])
    return both.select(pl.any_horizontal(pl.col(at).ne_missing(pl.col(f"-{at}")) for at in names)).to_series()


def pairs(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any], *, spread: bool = True) -> np.ndarray[Any, Any]:
    """Return for each number on the left the place of an equal one on the right, or -1; no place twice.

    If they are not `spread`, many may begin with the same bits.

    >>> pairs(np.array([5, 7, 9]), np.array([9, 8, 5, 6])).tolist()
    [2, -1, 0]
    """
    if not right.size:
        return np.full(left.size, -1)
    paired, following = np.empty(left.size, np.int64), np.empty(right.size, np.int64)
    least = int(right.min())
    room = int(right.max()) - least + 1
    if room <= NEAR * right.size:
        pair_near(left, right, least, np.empty(room, np.int64), following, paired)
        return paired
    bits = max((right.size >> TOGETHER).bit_length(), 1)
    (ours, our_ends, our_places), (theirs, their_ends, their_places) = (
        _distributed(side if spread else side * SPREAD, bits) for side in (left, right)
    )
    largest = int(np.diff(their_ends, prepend=0).max())
    firsts, slots = np.empty((2, 4 << largest.bit_length()), np.int64)
    pair(ours, theirs, our_ends, their_ends, firsts, slots, following, paired)
    found = np.empty(left.size, np.int64)
    found[our_places] = np.where(paired < 0, -1, their_places[paired])
    return found


def _distributed(numbers: np.ndarray[Any, Any], bits: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Return numbers in parts by their first bits, the end of each part, and the place of each number."""
    ends = np.zeros(1 << bits, np.int64)
    parts, places = np.empty((2, numbers.size), np.int64)
    partition(numbers, 64 - bits, ends, parts, places)
    return parts, ends, places
