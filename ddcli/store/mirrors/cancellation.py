"""The difference between a table's former files and the files that replace them, without the rows that both have.

A program that rewrites files to change some rows keeps all others, mostly in their order. So the files of both sides are read in one order: a rewrite of some rows changes few
least values, so a file and its new version come one after the other. Rows at one place are compared column by column; where few are equal, rows are paired by a column
that seems to identify them, and the rest by hashes, and compared then.
No row is taken for another one because their hashes are equal. Equal rows that none of this finds stay: the result adds up to the same, and is consolidated elsewhere.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.dataclass import frozen
from ddcli.engine.kernels.pairs import pair, pair_near, partition
from ddcli.store.files.access import fs
from ddcli.store.scratch import buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


DIFF = "_diff"
"""The column of a row's diff."""
GROWN, FEWEST = 2, 1 << 17
"""The factor, and the addition, that the left rows must have grown by before they are compared again."""


def remainder(gone: Sequence[FileRows], new: Sequence[FileRows]) -> Iterator[pl.DataFrame]:
    """Yield the rows of files that are gone with the diff -1, and the rows of new ones with 1, but for rows that both have.

    While rows are compared the next file of each side is read.
    """
    with ThreadPoolExecutor(2, "dd-table") as threads:
        sides = (_ComparedRows(-1), _ComparedRows(1))
        waiting = [_FileQueue(placed, threads) for placed in in_order(gone, new)]
        compared = 0
        at = _behind(waiting, sides)
        while at is not None:
            sides[at].take(waiting[at].read())
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
    """The files of one side that are still to be compared; the first one is being read."""

    def __init__(self, placed: Sequence[tuple[Place, FileRows]], threads: ThreadPoolExecutor) -> None:
        self._placed, self._threads = deque(placed), threads
        self._begin()

    @property
    def place(self) -> Place | None:
        """The place of the next file in the order; None: there is none."""
        return self._placed[0][0] if self._placed else None

    def read(self) -> list[pl.DataFrame]:
        """Return the rows of the next file, and begin to read the one after it."""
        found = self._reading.result()
        self._placed.popleft()
        self._begin()
        return found

    def _begin(self) -> None:
        if self._placed:
            self._reading = self._threads.submit(lambda file: [*file.read()], self._placed[0][1])


def _drop_equal(left: _ComparedRows, right: _ComparedRows) -> None:
    """Drop rows at the beginnings of both sides while most are equal to those at the same places, part by part as they are in memory.

    So files with some updated rows are compared in place, however many rows each file has: the longer side's rest waits for the other's next file.
    """
    known = False
    while left.rows and right.rows and not left.elsewhere:
        rows = min(left.ahead, right.ahead)
        ours, theirs = left.first(rows), right.first(rows)
        apart = apart_rows(ours, theirs) if known or mostly_equal(ours, theirs) else None
        if apart is None or int(apart.sum()) * FEW > rows:
            left.elsewhere = True
            return
        known = True
        for side, frame in ((left, ours), (right, theirs)):
            side.drop(rows)
            side.leave(frame.filter(apart))


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
            copy = io.BytesIO()
            frame.write_ipc(copy, compat_level=pl.CompatLevel.oldest())
            frame = pl.read_ipc(copy.getvalue())
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
        else:
            start = found[-1].start + found[-1].rows if found else 0
            found.append(RowGroupRange(start, group.num_rows, least, largest))
    return found


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
    key = _key(left)
    if key is not None and not right[key].null_count():
        left, right = _unpaired(left, right, pairs(_words(left[key]), _words(right[key]), spread=False))
    if left.height and right.height:
        left, right = _unpaired(
            left, right, pairs(*(side.hash_rows(1).to_numpy().view(np.int64) for side in (left, right)))
        )
    return left, right


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


def _key(frame: pl.DataFrame) -> str | None:
    """Return a column of integers or timestamps without nulls whose values seem to identify rows; None if there is none."""
    if frame.height <= SAMPLE:
        return None
    plain = [each for each in frame if (each.dtype.is_integer() or each.dtype.is_temporal()) and not each.null_count()]
    return next((each.name for each in _some(pl.DataFrame(plain)) if each.n_unique() == len(each)), None)


def _words(values: pl.Series) -> np.ndarray[Any, Any]:
    """Return integers for the values of such a column, others for others."""
    found = values.to_physical().to_numpy()
    return found.view(f"i{found.itemsize}").astype(np.int64, copy=False)


def _unpaired(
    left: pl.DataFrame, right: pl.DataFrame, found: np.ndarray[Any, Any]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames without the rows that are equal to their partners: `found` has the place of the partner, or -1."""
    places = np.flatnonzero(found >= 0)
    equal = ~apart_rows(left[places], right[found[places]]).to_numpy()
    sides = []
    for frame, gone in ((left, places[equal]), (right, found[places[equal]])):
        kept = np.ones(frame.height, np.bool_)
        kept[gone] = False
        sides.append(frame.filter(pl.Series(kept)))
    return sides[0], sides[1]


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
