"""What differs between files that a table had and files that it has instead, without the rows that both have.

Whoever rewrites files to change some rows keeps all others, mostly in their order. So the files of both sides are read in one order, and rows
at one place are compared column by column; where that finds few, rows are found by their hashes and compared then. No row is taken for another
one because their hashes are equal. What neither finds stays: the result adds up to the same, and is consolidated elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine.kernels.pairing import deal, pair
from ddcli.store.files.objects import ObjectPath
from ddcli.store.mirrors import partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

DIFF = "_diff"
"""The column of a row's diff."""
FEW = 4
"""Of how many rows one may be left for a comparison place by place to do."""
GROWN, FEWEST = 2, 1 << 17
"""Rows that are left are compared again when there are so many times as many as then, and some more."""
TOGETHER = 14
"""Hashes that are paired together are as many as this power of two, or fewer."""
PIECE = 1 << 18
"""Rows of a piece of a file, at least: of one that others were rewritten to, parts may have rows of one of these each."""
FIRST = 16
"""Columns whose least values are looked at."""


Place = list[tuple[bool, Any]]
"""Where a file lies in the order: whether the least value of each column is known, and that value."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """A file, or a part of one: its rows, and the least and the largest values of its columns, by which files are ordered, as rewriting some rows changes few of them."""

    read: Callable[[], Iterable[pl.DataFrame]]
    least: Mapping[Any, Any]
    largest: Mapping[Any, Any] = field(default_factory=dict)


def remainder(gone: Sequence[FileRows], new: Sequence[FileRows]) -> Iterator[pl.DataFrame]:
    """Yield the rows of files that are gone with the diff -1, and those of new ones with 1, but for rows that both have."""
    waiting = [placed[::-1] for placed in _ordered(gone, new)]
    sides = (_ComparedRows(-1), _ComparedRows(1))
    compared = 0
    at = _behind(waiting, sides)
    while at is not None:
        sides[at].take(waiting[at].pop()[1].read())
        last, at = at, _behind(waiting, sides)
        fewer, more = sorted(side.rows for side in sides)
        large = sum(side.size + side.kept for side in sides) > partition.HELD
        near = fewer * FEW >= more * (FEW - 1) and at != last
        if fewer and (large or near or at is None):
            for side, frame in zip(sides, different(*(side.whole() for side in sides)), strict=True):
                side.keep(frame)
        # What a file lacks of the other side's may be in the next ones, where rows were moved between files.
        if sum(side.left for side in sides) > GROWN * compared + (0 if large else FEWEST):
            if all(side.left for side in sides):
                for side, frame in zip(sides, different(*(side.whole_left() for side in sides)), strict=True):
                    side.keep_left(frame)
            compared = sum(side.left for side in sides)
        if large and sum(side.size + side.kept for side in sides) > partition.HELD // 2:
            for side in sides:
                yield from side.release()
            compared = 0
    for side in sides:
        yield from side.release()


class _ComparedRows:
    """Rows of one side: those that were read, and those that were compared and are left."""

    def __init__(self, diff: int) -> None:
        self._diff, self._fresh, self._left = diff, list[pl.DataFrame](), list[pl.DataFrame]()
        self.rows = self.size = self.left = self.kept = 0

    def take(self, frames: Iterable[pl.DataFrame]) -> None:
        for frame in frames:
            self._fresh.append(frame)
            self.rows += frame.height
            self.size += int(frame.estimated_size())

    def whole(self) -> pl.DataFrame:
        """Return the rows that were read."""
        return pl.concat(self._fresh)

    def keep(self, frame: pl.DataFrame) -> None:
        """Note what is left of the rows that were read."""
        self._fresh, self.rows, self.size = [], 0, 0
        if frame.height:
            self._left.append(frame)
            self.left += frame.height
            self.kept += int(frame.estimated_size())

    def whole_left(self) -> pl.DataFrame:
        """Return the rows that are left."""
        return pl.concat(self._left)

    def keep_left(self, frame: pl.DataFrame) -> None:
        """Note what is left still."""
        self._left, self.left, self.kept = [frame], frame.height, int(frame.estimated_size())

    def release(self) -> Iterator[pl.DataFrame]:
        """Yield all rows, and let go of them."""
        for frame in (*self._left, *self._fresh):
            yield frame.with_columns(pl.lit(self._diff, pl.Int64).alias(DIFF))
        self._left, self._fresh = [], []
        self.rows = self.size = self.left = self.kept = 0


def _behind(waiting: Sequence[Sequence[tuple[Place, FileRows]]], sides: Sequence[_ComparedRows]) -> int | None:
    """Return the side whose next file comes first in the order: the sides go on together, however many rows the other one has not."""
    left = [each for each in range(len(sides)) if waiting[each]]
    return min(left, key=lambda each: (waiting[each][-1][0], sides[each].rows), default=None)


def _ordered(*sides: Sequence[FileRows]) -> list[list[tuple[Place, FileRows]]]:
    """Return the files of each side in one order with their places in it: by their least values, first by those of the column that parts them best.

    That is one of which the ranges of few files overlap; where all do, one of which most least values are on both sides.
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
    """Return which part of all pairs of files have ranges of a column that overlap; those that say no range overlap all."""
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
    """Some of a Parquet file's row groups: where their rows begin, how many these are, and the least and the largest values of their first columns."""

    start: int
    rows: int
    least: dict[str, Any]
    largest: dict[str, Any]


def pieces_of(path: Path) -> list[RowGroupRange]:
    """Return a Parquet file's pieces with the least values of the first columns, as far as its footer says them; none where it can't be read."""
    from pyarrow import ArrowException, parquet

    try:
        with path.reader() if isinstance(path, ObjectPath) else path.open("rb") as file:
            footer = parquet.read_metadata(file)
    except (OSError, ArrowException):
        return []  # who reads its rows says what is wrong
    found: list[RowGroupRange] = []
    for group in map(footer.row_group, range(footer.num_row_groups)):
        least, largest = dict[str, Any](), dict[str, Any]()
        for column in map(group.column, range(min(group.num_columns, FIRST))):
            with suppress(
                ValueError, OverflowError, TypeError, ArrowException
            ):  # days that Python has no date for, for one
                known = column.statistics
                if known is not None and known.has_min_max:
                    least[column.path_in_schema], largest[column.path_in_schema] = known.min, known.max
        # An object is fetched whole, so that it is one piece.
        if found and (found[-1].rows < PIECE or isinstance(path, ObjectPath)):
            last = found.pop()
            with suppress(TypeError):
                least = {name: min(least.get(name, value), value) for name, value in {**least, **last.least}.items()}
                largest = {
                    name: max(largest.get(name, value), value) for name, value in {**largest, **last.largest}.items()
                }
            found.append(RowGroupRange(last.start, last.rows + group.num_rows, least, largest))
        else:
            start = found[-1].start + found[-1].rows if found else 0
            found.append(RowGroupRange(start, group.num_rows, least, largest))
    return found


def different(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames without rows that both have, each as often as both have it; some of these may stay.

    >>> left, right = pl.DataFrame({"a": [1, 2, 2, 3]}), pl.DataFrame({"a": [2, 4, 1]})
    >>> [frame["a"].to_list() for frame in different(left, right)]
    [[2, 3], [4]]
    """
    if left.height == right.height:
        apart = _apart(left, right)
        if int(apart.sum()) * FEW <= left.height:
            return left.filter(apart), right.filter(apart)
        left, right = left.filter(apart), right.filter(apart)
    if not left.height or not right.height:
        return left, right
    found = pairs(*(side.hash_rows(1).to_numpy().view(np.int64) for side in (left, right)))
    paired = pl.Series(found >= 0)
    theirs = found[found >= 0]
    equal = ~_apart(left.filter(paired), right[theirs]).to_numpy()
    return _without(left, np.flatnonzero(paired)[equal]), _without(right, theirs[equal])


def _apart(left: pl.DataFrame, right: pl.DataFrame) -> pl.Series:
    """Return where two frames of one height have different rows."""
    found = pl.repeat(False, left.height, dtype=pl.Boolean, eager=True)
    for name in left.columns:
        found |= left[name].ne_missing(right[name])
    return found


def _without(frame: pl.DataFrame, rows: np.ndarray[Any, Any]) -> pl.DataFrame:
    kept = np.ones(frame.height, np.bool_)
    kept[rows] = False
    return frame.filter(pl.Series(kept))


def pairs(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return for each number on the left the place of an equal one on the right, or -1; no place twice.

    >>> pairs(np.array([5, 7, 9]), np.array([9, 8, 5, 6])).tolist()
    [2, -1, 0]
    """
    bits = max((right.size >> TOGETHER).bit_length(), 1)
    ours, theirs = (_Dealt(side, bits) for side in (left, right))
    largest = int(np.diff(theirs.ends, prepend=0).max())
    firsts, slots = np.empty((2, 4 << largest.bit_length()), np.int64)
    paired, following = np.empty(left.size, np.int64), np.empty(right.size, np.int64)
    pair(ours.numbers, theirs.numbers, ours.ends, theirs.ends, firsts, slots, following, paired)
    found = np.full(left.size, -1)
    found[ours.places] = np.where(paired < 0, -1, theirs.places[paired]) if right.size else -1
    return found


class _Dealt:
    """Numbers in parts by their first bits, and the place of each."""

    def __init__(self, numbers: np.ndarray[Any, Any], bits: int) -> None:
        self.ends = np.zeros(1 << bits, np.int64)
        self.numbers, self.places = np.empty((2, numbers.size), np.int64)
        deal(numbers, 64 - bits, self.ends, self.numbers, self.places)


def consolidated(frames: Sequence[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield updates as one frame in which no two have the same row, and none the diff 0; none where there are none."""
    if not frames:
        return
    whole = pl.concat(frames)
    rows = [name for name in whole.columns if name != DIFF]
    gone, new = different(*(whole.filter(pl.col(DIFF) == diff).select(rows) for diff in (-1, 1)))
    others = whole.filter(~pl.col(DIFF).is_in([-1, 1]))
    left = pl.concat(
        [*(side.with_columns(pl.lit(diff, pl.Int64).alias(DIFF)) for side, diff in ((gone, -1), (new, 1))), others]
    )
    several = left.select(rows).hash_rows(1).is_duplicated()
    summed = left.filter(several).group_by(rows).agg(pl.col(DIFF).sum())
    yield pl.concat([left.filter(~several), summed]).filter(pl.col(DIFF) != 0)
