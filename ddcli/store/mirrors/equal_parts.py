"""Parts of a table's files that are equal in their rewritten versions: their place in one order, and equal rows in pairs.

A rewrite of some rows changes few least values, so that a file and its new version come one after the other.

Equal rows of two frames are those at the same places, those with one value in a column that seems to identify rows, and those with one hash.
Rows are compared column by column before they count as equal.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from ddcli.dataclass import frozen
from ddcli.engine.kernels.pairs import pair, pair_near, partition
from ddcli.store.files.access import fs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


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
