"""The difference between a table's former files and the files that replace them, without the rows that both have.

A program that rewrites files to change some rows keeps all others, mostly in their order. So the files of both sides are read in one order, and rows
at one place are compared column by column; where few are equal, rows are paired by a column that seems to identify them, and the rest by hashes, and compared then.
No row is taken for another one because their hashes are equal. Equal rows that none of this finds stay: the result adds up to the same, and is consolidated elsewhere.
"""

from __future__ import annotations

import io
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import polars as pl

from ddcli.store.mirrors.equal_parts import (
    FEW,
    apart_rows,
    different,
    different_elsewhere,
    equal_columns,
    in_order,
    mostly_equal,
    partners,
)
from ddcli.store.scratch import buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ddcli.store.mirrors.equal_parts import FileRows, Place

T = TypeVar("T")
R = TypeVar("R")
DIFF = "_diff"
"""The column of a row's diff."""
GROWN, FEWEST = 2, 1 << 17
"""The factor, and the addition, that the left rows must have grown by before they are compared again."""
READ = 1 << 18
"""The most rows of one side that are read ahead from several files while others are compared; more if the other side's next file has more."""
AHEAD = 2
"""Pairs of pieces that are compared while the rows of one are taken."""


def remainder(gone: Sequence[FileRows], new: Sequence[FileRows]) -> Iterator[pl.DataFrame]:
    """Yield the rows of files that are gone with the diff -1, and the rows of new ones with 1, but for rows that both have.

    While rows are compared the next files of each side are read. Pieces some of whose columns are equal by their bytes come first: only their
    different columns are read whole.
    """
    with ThreadPoolExecutor(2, "dd-table") as threads:
        sides = (_ComparedRows(-1), _ComparedRows(1))
        pairs = _rewritten(gone, new, threads)
        for found in _ahead(_changed, pairs, threads):
            for side, rows in zip(sides, found, strict=True):
                side.keep(rows)
            if sum(side.kept for side in sides) > buckets.HELD // 2:
                for side in sides:
                    yield from side.release()
        paired = {id(piece) for pair in pairs for piece in pair[:2]}
        gone, new = ([piece for piece in side if id(piece) not in paired] for side in (gone, new))
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


def _rewritten(
    gone: Sequence[FileRows], new: Sequence[FileRows], threads: ThreadPoolExecutor
) -> list[tuple[FileRows, FileRows, list[str]]]:
    """Return the pairs of pieces in which a file that is gone was rewritten, and the columns that are equal in both by their bytes; pairs without such columns are left out."""
    pairs = [
        (gone[at], new[other]) for at, other in partners(*([[*each.marks()] for each in side] for side in (gone, new)))
    ]
    found = threads.map(lambda pair: equal_columns(*(each.columns.chunks for each in pair if each.columns)), pairs)
    return [(*pair, same) for pair, same in zip(pairs, found, strict=True) if same]


def _changed(pair: tuple[FileRows, FileRows, list[str]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of two pieces that differ from those at their places in the other one; columns that are the same are read once."""
    left, right = (each.columns for each in pair[:2])
    assert left is not None, "it has columns"
    assert right is not None, "it has columns"
    others, same = ([name for name in left.names if (name in pair[2]) == each] for each in (False, True))
    if not others:
        return pl.DataFrame(), pl.DataFrame()
    ours, theirs = left.read(others), right.read(others)
    apart = apart_rows(ours, theirs)
    ours, theirs = ours.filter(apart), theirs.filter(apart)
    if ours.is_empty():
        return ours, theirs
    shared = left.read(same).filter(apart).get_columns() if same else []
    ours, theirs = ours.hstack(shared).select(left.names), theirs.hstack(shared).select(left.names)
    return (ours, theirs) if ours.height * FEW <= len(apart) else different(ours, theirs)  # in another order


def _ahead(do: Callable[[T], R], given: Iterable[T], threads: ThreadPoolExecutor) -> Iterator[R]:
    """Yield the result of `do` for each, in order; some are computed ahead."""
    waiting = deque[Future[R]]()
    for each in given:
        waiting.append(threads.submit(do, each))
        if len(waiting) > AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


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
                self._reading.append(self._threads.submit(lambda each: [*each.read()], file))


def _read_ahead(sides: Sequence[_FileQueue]) -> None:
    """Have the next files of each side read."""
    for side, other in (sides, sides[::-1]):
        side.read_ahead(other.rows)


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
