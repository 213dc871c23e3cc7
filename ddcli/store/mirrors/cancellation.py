"""The difference between a table's former files and the files that replace them, without the rows that both have.

A program that rewrites files to change some rows keeps all others, mostly in their order, and changes few files' least values. So the files of both sides are read in the order of these, and rows
at one place are compared column by column; where few are equal, rows with one value in a column that identifies them are; without such a column equal rows are counted.
Equal rows of different files that none of this finds stay: the result adds up to the same, and is consolidated elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.dataclass import frozen
from ddcli.store.files.objects import ObjectPath
from ddcli.store.scratch import buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

DIFF = "_diff"
"""The column of a row's diff."""
GROWN, FEWEST = 2, 1 << 17
"""The factor, and the addition, that the left rows must have grown by before they are compared again."""
READ = 1 << 18
"""The most rows of one side that are read ahead from several files while others are compared; more if the other side's next file has more."""
FEW = 4
"""A comparison place by place may leave one row in this many."""
SAMPLE = 256
"""Rows of a column that are looked at before all are."""


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
    rows: int = 0
    """The number of its rows, as far as that is known before they are read."""


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
    """Some of a Parquet file's row groups: the first row, the number of rows, and the least and the largest values of their first columns."""

    start: int
    rows: int
    least: dict[str, Any]
    largest: dict[str, Any]


def pieces_of(path: Path) -> list[RowGroupRange]:
    """Return a Parquet file's pieces with the least values of the first columns, as far as its footer has them; none if it can't be read."""
    from pyarrow import ArrowException, parquet

    try:
        with path.open("rb") as file:
            footer = parquet.read_metadata(file)
    except (OSError, ArrowException):
        return []  # the reader of its rows reports the error
    found: list[RowGroupRange] = []
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
        else:
            start = found[-1].start + found[-1].rows if found else 0
            found.append(RowGroupRange(start, group.num_rows, least, largest))
    return found


def remainder(gone: Sequence[FileRows], new: Sequence[FileRows]) -> Iterator[pl.DataFrame]:
    """Yield the rows of files that are gone with the diff -1, and the rows of new ones with 1, but for rows that both have.

    While rows are compared the next files of each side are read.
    """
    with ThreadPoolExecutor(2, "dd-table") as threads:
        sides = (_ComparedRows(-1), _ComparedRows(1))
        waiting = [_FileQueue(placed, threads) for placed in in_order(gone, new)]
        _read_ahead(waiting)
        compared = 0
        at = _behind(waiting, sides)
        while at is not None:
            sides[at].take(waiting[at].read())
            _read_ahead(waiting)
            _drop_equal(*sides)
            last, at = at, _behind(waiting, sides)
            fewer, more = sorted(side.rows for side in sides)
            large = sum(side.size + side.kept for side in sides) > buckets.HELD
            near = fewer * FEW >= more * (FEW - 1) and at != last
            if fewer and (large or near or at is None):
                for side, frame in zip(sides, different_elsewhere(*(side.whole() for side in sides)), strict=True):
                    side.keep(frame)
            # Rows of the other side that a file lacks may be in the next ones, if rows were moved between files.
            if sum(side.left for side in sides) > GROWN * compared + (0 if large else FEWEST):
                if all(side.left for side in sides):
                    for side, frame in zip(sides, different(*(side.whole_left() for side in sides)), strict=True):
                        side.keep_left(frame)
                compared = sum(side.left for side in sides)
            if large and sum(side.size + side.kept for side in sides) > buckets.HELD // 2:
                for side in sides:
                    yield from side.release()
                compared = 0
        for side in sides:
            yield from side.release()


class _FileQueue:
    """The files of one side that are still to be compared; the first ones are being read."""

    def __init__(self, placed: Sequence[tuple[Place, FileRows]], threads: ThreadPoolExecutor) -> None:
        self._placed, self._threads = deque(placed), threads
        self._reading = deque[Future[list[pl.DataFrame]]]()

    @property
    def place(self) -> Place | None:
        """The place of the next file in the order; None: there is none."""
        return self._placed[0][0] if self._placed else None

    @property
    def rows(self) -> int:
        """Return the number of rows of the next file."""
        return self._placed[0][1].rows if self._placed else 0

    def read(self) -> list[pl.DataFrame]:
        """Return the rows of the next file, which are being read."""
        found = self._reading.popleft().result()
        self._placed.popleft()
        return found

    def read_ahead(self, most: int) -> None:
        """Start reads of the next files, together of at most `READ` or `most` rows, but of one at least."""
        rows = 0
        for at, (_, file) in enumerate(self._placed):
            rows += file.rows
            if at and rows > max(READ, most):
                return
            if at == len(self._reading):
                self._reading.append(self._threads.submit(_rows_of, file))


def _read_ahead(sides: Sequence[_FileQueue]) -> None:
    """Have the next files of each side read."""
    for side, other in (sides, sides[::-1]):
        side.read_ahead(other.rows)


def _drop_equal(left: _ComparedRows, right: _ComparedRows) -> None:
    """Drop rows at the beginnings of both sides while most are equal to those at the same places, part by part as they are in memory.

    So files with some updated rows are compared in place, however many rows each file has: the longer side's rest waits for the other's next file.
    """
    while left.rows and right.rows and not left.elsewhere:
        rows = min(left.ahead, right.ahead)
        ours, theirs = left.first(rows), right.first(rows)
        apart = apart_rows(ours, theirs)
        if int(apart.sum()) * FEW > rows:
            left.elsewhere = True
            return
        for side, frame in ((left, ours), (right, theirs)):
            side.drop(rows)
            side.leave(frame.filter(apart))


def _rows_of(file: FileRows) -> list[pl.DataFrame]:
    return list(file.read())


class _ComparedRows:
    """Rows of one side: those that were read, and those that were compared and are left."""

    def __init__(self, diff: int) -> None:
        self._diff, self._fresh, self._left = diff, deque[pl.DataFrame](), list[pl.DataFrame]()
        self.rows = self.size = self.left = self.kept = 0
        self.elsewhere = False
        """True: the first rows that were read are not those at the same places of the other side."""

    def take(self, frames: Sequence[pl.DataFrame]) -> None:
        for frame in frames:
            self.rows += frame.height
            self.size += int(frame.estimated_size())
            for part in _parts(frame):
                self._fresh.append(part)

    @property
    def ahead(self) -> int:
        """Return the number of rows in one piece at the beginning of those that were read."""
        return self._fresh[0].height

    def first(self, rows: int) -> pl.DataFrame:
        """Return the first rows that were read, of those that are in one piece."""
        return self._fresh[0].head(rows)

    def drop(self, rows: int) -> None:
        """Drop the first rows that were read."""
        whole = self._fresh.popleft()
        self.size -= self.size * rows // self.rows
        self.rows -= rows
        if rows < whole.height:
            self._fresh.appendleft(whole.slice(rows))

    def whole(self) -> pl.DataFrame:
        """Return the rows that were read."""
        return pl.concat(self._fresh)

    def keep(self, frame: pl.DataFrame) -> None:
        """Keep `frame` as the rest of all rows that were read."""
        self._drop_all()
        self.leave(frame)

    def _drop_all(self) -> None:
        self._fresh.clear()
        self.rows = self.size = 0
        self.elsewhere = False

    def leave(self, frame: pl.DataFrame) -> None:
        """Note rows that are left, with texts of their own: few rows would else hold all texts of their file."""
        if frame.height:
            frame = _with_own_texts(frame)
            self._left.append(frame)
            self.left += frame.height
            self.kept += int(frame.estimated_size())

    def whole_left(self) -> pl.DataFrame:
        """Return the rows that are left."""
        return pl.concat(self._left)

    def keep_left(self, frame: pl.DataFrame) -> None:
        """Keep `frame` as the rest of the rows that were left."""
        self._left, self.left, self.kept = [frame], frame.height, int(frame.estimated_size())

    def release(self) -> Iterator[pl.DataFrame]:
        """Yield all rows, and release them."""
        for frame in (*self._left, *self._fresh):
            yield frame.with_columns(pl.lit(self._diff, pl.Int64).alias(DIFF))
        self._left = []
        self.left = self.kept = 0
        self._drop_all()


def _parts(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of a frame in parts that are one piece of memory each."""
    start = 0
    for rows in frame.to_series(0).chunk_lengths() if frame.width else [frame.height]:
        if rows:
            yield frame.slice(start, rows)
        start += rows


def _with_own_texts(frame: pl.DataFrame) -> pl.DataFrame:
    kinds = (pl.String, pl.Binary)
    return frame.with_columns(
        pl.Series(_UntypedArray(each.to_arrow(compat_level=pl.CompatLevel.oldest()))).alias(each.name)
        for each in frame.get_columns()
        if each.dtype in kinds
    )


class _UntypedArray:
    """An array of pyarrow without its type: to take that, polars imports all of pyarrow's functions, a twentieth of such a run's time."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return the capsules of its schema and of its memory."""
        schema, memory = self._array.__arrow_c_array__(requested_schema)
        return schema, memory


def _behind(waiting: Sequence[_FileQueue], sides: Sequence[_ComparedRows]) -> int | None:
    """Return the side whose next file comes first in the order: so the sides advance together, even if one has fewer rows."""
    places = [(place, sides[side].rows, side) for side, each in enumerate(waiting) if (place := each.place) is not None]
    return min(places)[2] if places else None


def consolidated(frames: Sequence[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield updates consolidated, as one frame; nothing if there are none."""
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


def different(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames without the rows that both have, each as often as both have it.

    >>> left, right = pl.DataFrame({"a": [1, 2, 2, 3]}), pl.DataFrame({"a": [2, 4, 1]})
    >>> [sorted(frame["a"]) for frame in different(left, right)]
    [[2, 3], [4]]
    """
    if left.height == right.height:
        apart = apart_rows(left, right)
        left, right = left.filter(apart), right.filter(apart)
        if left.height * FEW <= len(apart):
            return left, right
    return different_elsewhere(left, right)


def different_elsewhere(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the same of frames with rows that are known to differ at the same places."""
    if left.is_empty() or right.is_empty():
        return left, right
    key = next((name for name in left.columns if _identifies(left[name]) and _identifies(right[name])), None)
    if key is not None:
        ours, theirs = (side.select(pl.col(key).alias("key")).with_row_index() for side in (left, right))
        pairs = ours.join(theirs, on="key", suffix="_right")
        pairs = pairs.filter(~apart_rows(left[pairs["index"]], right[pairs["index_right"]]))
        return _without(left, pairs["index"]), _without(right, pairs["index_right"])
    sides = (side.with_columns(pl.lit(diff, pl.Int64).alias(DIFF)) for side, diff in ((left, -1), (right, 1)))
    counted = pl.concat(sides).group_by(left.columns).agg(pl.col(DIFF).sum())
    times, rows = counted[DIFF].to_numpy(), counted.drop(DIFF)
    left, right = (rows[np.repeat(np.arange(len(times)), np.maximum(each, 0))] for each in (-times, times))
    return left, right


def _identifies(column: pl.Series) -> bool:
    """Return whether each row has a value of its own in a column of integers or moments; the first rows show most that haven't."""
    discrete = (column.dtype.is_integer() or column.dtype.is_temporal()) and not column.null_count()
    return discrete and all(each.n_unique() == len(each) for each in (column.head(SAMPLE), column))


def _without(rows: pl.DataFrame, places: pl.Series) -> pl.DataFrame:
    kept = np.ones(rows.height, np.bool_)
    kept[places.to_numpy()] = False
    return rows.filter(pl.Series(kept))


def apart_rows(left: pl.DataFrame, right: pl.DataFrame) -> pl.Series:
    """Return a mask of the places at which two frames of one height have different rows."""
    names = [f"{at}" for at in range(left.width)]
    sides = zip(left.get_columns(), right.get_columns(), names, strict=True)
    both = pl.DataFrame([each for ours, theirs, at in sides for each in (ours.alias(at), theirs.alias(f"-{at}"))])
    return both.select(pl.any_horizontal(pl.col(at).ne_missing(pl.col(f"-{at}")) for at in names)).to_series()
