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
AHEAD, READ = 2, 1 << 18
"""The files that are read ahead while others are compared, and the rows of more than these, at most."""
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

    While rows are compared the next files are read.
    """
    sides = (_ComparedRows(-1), _ComparedRows(1))
    # Of files without a place, one side's first is beside the other's first: so the sides advance together.
    placed = [
        (place, number, side, file)
        for side, files in enumerate(in_order(gone, new))
        for number, (place, file) in enumerate(files)
    ]
    files = [(side, file) for *_, side, file in sorted(placed, key=lambda each: each[:3])]
    compared = 0
    for number, (at, frames) in enumerate(_read_ahead(files), 1):
        sides[at].fresh += frames
        _drop_equal(*sides)
        fewer, more = sorted(side.rows for side in sides)
        large = sum(side.size for side in sides) > buckets.HELD
        last = number == len(files)
        if fewer and (large or last or fewer * FEW >= more * (FEW - 1)):
            rest = different_elsewhere(*(pl.concat(side.fresh) for side in sides))
            for side, frame in zip(sides, rest, strict=True):
                side.fresh = []
                side.leave(frame)
        if last:
            for side in sides:
                side.left += side.rows
                side.compared, side.fresh = [*side.compared, *side.fresh], []
        # Rows of the other side that a file lacks may be in the next ones, if rows were moved between files.
        if last or sum(side.left for side in sides) > GROWN * compared + (0 if large else FEWEST):
            if all(side.left for side in sides):
                rest = different(*(pl.concat(side.compared) for side in sides))
                for side, frame in zip(sides, rest, strict=True):
                    side.compared, side.left, side.kept = [], 0, 0
                    side.leave(frame)
            compared = sum(side.left for side in sides)
        if large and sum(side.size for side in sides) > buckets.HELD // 2:
            for side in sides:
                yield from side.release()
            compared = 0
    for side in sides:
        yield from side.release()


def _read_ahead(files: Sequence[tuple[int, FileRows]]) -> Iterator[tuple[int, list[pl.DataFrame]]]:
    """Yield the side and the rows of each file; the next two are read meanwhile, and more if they have few rows."""
    with ThreadPoolExecutor(2, "dd-table") as threads:
        reading = deque[tuple[int, int, Future[list[pl.DataFrame]]]]()
        for side, file in files:
            reading.append((side, file.rows, threads.submit(_rows_of, file)))
            while len(reading) > AHEAD and sum(rows for _, rows, _ in reading) > READ:
                at, _, found = reading.popleft()
                yield at, found.result()
        for at, _, found in reading:
            yield at, found.result()


def _rows_of(file: FileRows) -> list[pl.DataFrame]:
    return list(file.read())


def _drop_equal(*sides: _ComparedRows) -> None:
    """Drop the first rows of both sides where most are equal to those at the same places: the longer side's rest waits for the other's next file."""
    rows = min(side.rows for side in sides)
    if not rows:
        return
    whole = [pl.concat(side.fresh) for side in sides]
    apart = apart_rows(*(frame.head(rows) for frame in whole))
    if int(apart.sum()) * FEW <= rows:
        for side, frame in zip(sides, whole, strict=True):
            side.fresh = [frame.slice(rows)] if rows < frame.height else []
            side.leave(frame.head(rows).filter(apart))


class _ComparedRows:
    """Rows of one side: `fresh` ones, and the rows that comparisons have left, `compared`: their number is `left`, their bytes are `kept`."""

    def __init__(self, diff: int) -> None:
        self._diff = diff
        self.fresh, self.compared = list[pl.DataFrame](), list[pl.DataFrame]()
        self.left = self.kept = 0

    @property
    def rows(self) -> int:
        """Return the number of fresh rows."""
        return sum(frame.height for frame in self.fresh)

    @property
    def size(self) -> int:
        """Return the bytes of all rows."""
        return self.kept + sum(int(frame.estimated_size()) for frame in self.fresh)

    def leave(self, frame: pl.DataFrame) -> None:
        """Note rows that are left, with texts of their own: few rows would else hold all texts of their file."""
        if frame.height:
            frame = _with_own_texts(frame)
            self.compared.append(frame)
            self.left += frame.height
            self.kept += int(frame.estimated_size())

    def release(self) -> Iterator[pl.DataFrame]:
        """Yield all rows, and release them."""
        for frame in (*self.compared, *self.fresh):
            yield frame.with_columns(pl.lit(self._diff, pl.Int64).alias(DIFF))
        self.fresh, self.compared, self.left, self.kept = [], [], 0, 0


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
