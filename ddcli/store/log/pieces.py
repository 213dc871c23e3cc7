"""Rows of a log that are to be read: pieces of its files, by their times, and slices of an interval's updates, which are some pieces each.

The times of a file show which of its rows are before a frontier, and which are at or after it.

Where rows are whole tables, only the newest of the tables that arrive together counts. Without an order each file is a table, or all files of a directory below the input's are one; the
last by name is the newest. With an order, the rows of its greatest value are the newest table, and a table whose order is less than an earlier arrival's is ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Literal

import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.lanes import Columns
from ddcli.engine.times import less_equal
from ddcli.store.tables.input_path import PARQUET

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Layout, Matrix
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.store.log.reader import LogReader
    from ddcli.store.log.rows import Rows
    from ddcli.store.log.unparsed_rows import UnparsedRows
    from ddcli.store.state.entries import InputFile, Times
    from ddcli.store.tables.files import Tables

    Interval = tuple[Times | None, Times]


CHUNK = 1 << 20
"""Rows that are looked through together where a file's times are not kept."""


def at_or_after(names: Iterable[str], frontier: Times) -> pl.Expr:
    """Return which rows of times, physical integers in these columns, are at or after a frontier."""
    bounds = [reduce(and_, map(_reaches, names, bound)) for bound in frontier]
    return reduce(or_, bounds, pl.lit(value=False))


def within(names: Collection[str], lower: Times | None, upper: Times) -> pl.Expr:
    """Return which rows of times are at or after `lower` (None: the beginning) and not at or after `upper`."""
    before = ~at_or_after(names, upper)
    return before if lower is None else before & at_or_after(names, lower)


def advanced(times: pl.DataFrame, frontier: Times) -> pl.DataFrame:
    """Return times, moved up to a frontier where they are before it: to the lattice join with its first element."""
    late = ~at_or_after(times.columns, frontier)
    return times.with_columns(
        pl.when(late).then(pl.max_horizontal(pl.col(name), value)).otherwise(pl.col(name)).alias(name)
        for name, value in zip(times.columns, frontier[0], strict=True)
    )


def _reaches(name: str, value: int) -> pl.Expr:
    return pl.col(name) >= value


def physical(tables: Tables, paths: Sequence[Path], raw: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Return the time columns of some files as physical integers."""
    columns = [tables.fit(paths, raw[name], wanted) for name, wanted in schema.items()]
    # Integers are left alone: even a cast to the same type is a query.
    return pl.DataFrame([each if each.dtype == pl.Int64 else each.to_physical().cast(pl.Int64) for each in columns])


class FileTimes:
    """The times of one file: its `rows`, the bounds of each coordinate (None without rows), and the times themselves if `kept`.

    `frame` has a column of physical integers a coordinate; None: to be read again, a piece at a time. Of a file with a `limit` only so
    many rows count, the first; its times are kept.
    """

    def __init__(
        self, tables: Tables, path: Path, schema: Schema, kept: pl.DataFrame | None, limit: int | None = None
    ) -> None:
        self.tables, self.path, self.schema = tables, path, schema
        assert limit is None or kept is not None, "files that grow are small"
        self._counts: dict[tuple[Times | None, Times], tuple[int, int]] = {}
        self.frame = None if kept is None else self._checked(kept.head(limit) if limit is not None else kept)
        if self.frame is None:
            self.rows, bounds = self._bounds()
            least, largest = bounds.row(0), bounds.row(1)
        else:  # column by column: a query of a frame takes longer than to look through a few thousand rows
            self.rows = self.frame.height
            least, largest = (tuple(getattr(each, end)() for each in self.frame) for end in ("min", "max"))
        self.least: Time | None = least if self.rows else self._path_time()
        self.largest: Time | None = largest if self.rows else self.least

    def any_at_or_after(self, frontier: Times) -> bool:
        """Return whether a row is at or after a frontier: usually seen from the largest coordinates."""
        if self.largest is None or not any(less_equal(bound, self.largest) for bound in frontier):
            return False
        return len(self.schema) == 1 or self._any(at_or_after(self.schema, frontier))

    def any_before(self, frontier: Times) -> bool:
        """Return whether a row is not at or after a frontier: usually seen from the least coordinates."""
        if self.least is None or any(less_equal(bound, self.least) for bound in frontier):
            return False
        return len(self.schema) == 1 or self._any(~at_or_after(self.schema, frontier))

    def first_before(self, frontier: Times) -> tuple[int, Time]:
        """Return the first row that is not at or after a frontier, and its time; there must be one, or none at all."""
        return self._sure(self.before_from(0, frontier))

    def before_from(self, start: int, frontier: Times) -> tuple[int, Time] | None:
        """Return the first row, from the row `start` on, that is not at or after a frontier, and its time; None where there is none."""
        return self._first(~at_or_after(self.schema, frontier), start)

    def first_after(self, limits: Sequence[int | None]) -> tuple[int, Time]:
        """Return the first row with a coordinate after its limit, and its time; there must be one, or none at all."""
        bounded = [pl.col(name) > limit for name, limit in zip(self.schema, limits, strict=True) if limit is not None]
        return self._sure(self._first(reduce(or_, bounded)))

    def _sure(self, found: tuple[int, Time] | None) -> tuple[int, Time]:
        """Return the found row, which must exist; for a file without rows, whose path states a time, that time."""
        if not self.rows and self.least is not None:
            return 0, self.least
        assert found is not None, "no row is outside"
        return found

    def _first(self, condition: pl.Expr, start: int = 0) -> tuple[int, Time] | None:
        """Return the first row, from the row `start` on, that meets a condition, and its time."""
        for first, frame in self._frames():
            rest = frame.slice(max(0, start - first))
            mask = rest.select(condition).to_series()
            if mask.any():
                row = mask.arg_max() or 0
                return max(first, start) + row, rest.row(row)
        return None

    def bounds(self, condition: pl.Expr) -> tuple[int, int]:
        """Return first row and number of rows around all that meet a condition: just these if the times are kept, else the whole file."""
        if self.frame is None:
            return 0, self.rows
        rows = self.frame.select(condition).to_series().arg_true()
        return (0, 0) if rows.is_empty() else (rows[0], rows[-1] + 1 - rows[0])

    def count(self, condition: pl.Expr) -> int:
        """Return the number of rows that meet a condition."""
        return sum(frame.select(condition.sum()).item() for _, frame in self._frames())

    def counts(self, since: Times | None, upper: Times) -> tuple[int, int]:
        """Return the number of rows at or after `since` (None: from the beginning) and not at or after `upper`, and of those before `since`."""
        if (since, upper) not in self._counts:
            late = 0 if since is None or not self.any_before(since) else self.count(~at_or_after(self.schema, since))
            part = late or self.any_at_or_after(upper)
            self._counts[since, upper] = self.count(within(self.schema, since, upper)) if part else self.rows, late
        return self._counts[since, upper]

    def distinct(self, lower: Times | None, upper: Times) -> set[Time]:
        """Return the different times within an interval; for a file without rows whose path states a time, this one."""
        condition = within(self.schema, lower, upper)
        found = {time for _, frame in self._frames() for time in frame.filter(condition).unique().iter_rows()}
        if not self.rows and self.least is not None:
            named = pl.DataFrame([self.least], schema=dict.fromkeys(self.schema, pl.Int64), orient="row")
            found.update(named.filter(condition).iter_rows())
        return found

    def span(self) -> tuple[Time, Time] | None:
        """Return the first and the last time of rows that are in order of time; None where they are not, or there are none."""
        first: Time | None = None
        last: Time | None = None
        for _, frame in self._frames():
            if frame.is_empty():
                continue
            sorted_ = frame.to_series().is_sorted() if frame.width == 1 else frame.equals(frame.sort(frame.columns))
            if not sorted_ or (last is not None and frame.row(0) < last):
                return None
            first, last = first or frame.row(0), frame.row(-1)
        return None if first is None or last is None else (first, last)

    def forget(self) -> None:
        """Keep the bounds alone."""
        self.frame = None

    def _checked(self, raw: pl.DataFrame) -> pl.DataFrame:
        self.tables.refuse_nulls(self.path, raw, self.schema, "time column")
        return physical(self.tables, [self.path], raw, self.schema)

    def _path_time(self) -> Time | None:
        """Return the time in the file's path."""
        named = self.tables.from_path(self.path, self.schema)
        return None if named is None else physical(self.tables, [self.path], named, self.schema).row(0)

    def _bounds(self) -> tuple[int, pl.DataFrame]:
        """Return the number of rows, and the least and the largest value of each coordinate, or refuse a null."""
        names = list(self.schema)
        rows, found, nulls = self.tables.ends(self.path, names)
        if nulls:
            self.tables.refuse_nulls(self.path, self.tables.collect([self.path], names), names, "time column")
        return rows, physical(self.tables, [self.path], found, self.schema)

    def _any(self, condition: pl.Expr) -> bool:
        return any(frame.select(condition.any()).item() for _, frame in self._frames())

    def _frames(self) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield the times in pieces, each with its first row."""
        if self.frame is not None:
            yield 0, self.frame
            return
        for first in range(0, self.rows, CHUNK):
            raw = self.tables.collect([self.path], list(self.schema), (first, CHUNK))
            yield first, physical(self.tables, [self.path], raw, self.schema)


def survey(
    tables: Tables, paths: Sequence[Path], schema: Schema, most: int | None, limits: Mapping[Path, int]
) -> list[FileTimes]:
    """Return the times of each file; they are kept if there are at most `most` rows (None: any number).

    Only the first rows of a file in `limits` count, as many as it states.
    """
    frames: Sequence[pl.DataFrame | None] | None = _few(tables, paths, list(schema), most)
    if frames is None:
        frames = [tables.collect([path], list(schema)) if path in limits else None for path in paths]
    return [FileTimes(tables, path, schema, frame, limits.get(path)) for path, frame in zip(paths, frames, strict=True)]


def _few(
    tables: Tables, paths: Sequence[Path], names: Sequence[str], most: int | None
) -> Sequence[pl.DataFrame] | None:
    """Return the time columns of each file; None if they have more than `most` rows in all.

    Parquet states its number of rows, and rows of text are counted where damage was looked for. Others are not counted first, as that is to read them: they are
    read until there are too many.
    """
    counted = [
        path
        for path in paths
        if most is None or tables.kind(path).name == PARQUET or tables.known_rows(path) is not None
    ]
    if most is not None and (most := most - sum(map(tables.count_rows, counted))) < 0:
        return None
    frames = dict(zip(counted, tables.collect_each(counted, names), strict=True))
    for path in paths:
        if most is not None and path not in frames:
            frames[path] = tables.collect([path], names, (0, most + 1))
            most -= frames[path].height
            if most < 0:
                return None
    return [frames[path] for path in paths]


SAMPLE = 1 << 10
"""Updates that are looked at to judge whether many are equal."""
Only = Literal["inside", "late", "advanced"]


@frozen
class FilePiece:
    """Some rows of files whose footers agree: all of them, or `count` of one file from the row `first`.

    `only` selects these rows: the rows of the interval, the late rows, or both
    moved up to it.
    """

    files: tuple[int, ...]
    count: int
    first: int | None = None
    only: Only | None = None


@dataclass(frozen=True)
class LogSlice:
    """Some of an interval's updates, not read yet: `rows` of them, or fewer. Threads may read different slices at once."""

    reader: LogReader
    columns: tuple[str, ...]
    pieces: tuple[FilePiece, ...]
    interval: Interval
    aside: bool = False
    """True: they go to a side log, as they are."""
    sums: bool = False
    """True: equal updates are made one where there are many: in a run out of core, so that they don't come together elsewhere."""

    @property
    def rows(self) -> int:
        """Return an upper bound of the number of its updates."""
        return sum(piece.count for piece in self.pieces)

    def read(self) -> Rows:
        """Return the updates, their data in the wanted columns."""
        return self.reader.read(self)

    def matrix(self, layout: Layout, pool: Pool) -> Matrix:
        """Return the updates as `[data lanes | time lanes | diff]`."""
        found = self.updates(layout, pool)
        return found.matrix() if isinstance(found, Columns) else found

    def updates(self, layout: Layout, pool: Pool) -> Matrix | Columns:
        """Return the updates in the columns that were read, or in lanes where equal ones were made one."""
        found = self.read().updates(layout, pool)
        return kernels.consolidate(found.matrix()) if self.sums and _repeat(found) else found


@frozen
class ConsumedRange:
    """The updates of an interval, `rows` of them or fewer, and all files with the marks that the next manifest is to have.

    So many rows were `late`: they were moved up to the interval, or are in the slices that are `put_aside`.
    """

    slices: list[LogSlice]
    files: tuple[InputFile, ...]
    late: int = 0
    put_aside: tuple[LogSlice, ...] = ()
    unparsed: tuple[tuple[str, UnparsedRows], ...] = ()
    """The rows of new files that can't be read, with the files."""

    @property
    def rows(self) -> int:
        """Return an upper bound of the number of its updates."""
        return sum(each.rows for each in self.slices)


def _repeat(updates: Columns) -> bool:
    """Return whether most updates are repeated, judged by a sample."""
    if len(updates.tail) <= SAMPLE:
        return False
    rows = pl.int_range(0, len(updates.tail), len(updates.tail) // SAMPLE, dtype=pl.UInt32, eager=True)
    for column in updates.frame:  # one column mostly shows that they differ, and takes a twentieth of the time
        values = column[rows]
        if not values.dtype.is_nested() and 2 * values.n_unique() >= len(values):
            return False
    some = updates._replace(frame=updates.frame[rows], tail=updates.tail[rows.to_numpy()]).matrix()
    lanes = some.shape[1]
    # That is `np.unique`, which imports masked arrays.
    return 2 * len(kernels.distinct_keys(kernels.sort_by(some, range(lanes)), lanes)) < len(some)


def cut(first: int, count: int, most: int | None) -> Iterator[tuple[int, int]]:
    """Yield first row and number of rows of the parts of a range."""
    size = count if most is None else most
    for start in range(first, first + count, size or 1):
        yield start, min(size, first + count - start)


def packed(pieces: Iterable[FilePiece], most: int | None) -> list[tuple[FilePiece, ...]]:
    """Put pieces together as long as they have at most `most` rows."""
    found: list[tuple[FilePiece, ...]] = []
    room = 0
    for piece in pieces:
        if found and (most is None or piece.count <= room):
            found[-1] += (piece,)
        else:
            found.append((piece,))
            room = most or 0
        room -= piece.count
    return found


@frozen
class Newest:
    """The newest table so far: its order, and when it arrived."""

    order: int
    at: int


@dataclass(frozen=True)
class NewestTables:
    """The tables that count, of some files: the files' numbers, each with its order, None: any."""

    files: Mapping[int, int | None]
    times: frozenset[int]
    """The times at which a table came."""
    newest: Newest | None = field(default=None)


def by_name(files: Sequence[InputFile]) -> NewestTables:
    """Return the newest of the tables that arrived at each time, the last by name."""
    kept: dict[int, int | None] = {}
    arrived = _arrived(files)
    for together in arrived.values():
        last = max(natural(_table(files[at].path)) for at in together)
        kept |= dict.fromkeys((at for at in together if natural(_table(files[at].path)) == last), None)
    return NewestTables(kept, frozenset(arrived))


def by_order(files: Sequence[InputFile], greatest: Callable[[int], int | None], known: Newest | None) -> NewestTables:
    """Return the newest of the tables that arrived at each time, by the greatest order of each file; `known` are the ones from before."""
    kept: dict[int, int | None] = {}
    times = []
    arrived = sorted(_arrived(files).items())
    if known is not None and arrived and arrived[0][0] <= known.at:
        known = None  # these files are read from the beginning
    for time, together in arrived:
        orders = {at: order for at in together if (order := greatest(at)) is not None}
        if not orders or (known is not None and max(orders.values()) < known.order):
            continue
        known = Newest(max(orders.values()), time)
        times.append(time)
        kept |= dict.fromkeys(orders, known.order)
    return NewestTables(kept, frozenset(times), known)


def _arrived(files: Sequence[InputFile]) -> dict[int, list[int]]:
    """Return the numbers of files by the time at which they arrived."""
    found: dict[int, list[int]] = defaultdict(list)
    for at, file in enumerate(files):
        found[file.at or 0].append(at)
    return found


def _table(path: str) -> str:
    """Return the name of the table that a file belongs to: its directory's, or its own beside others."""
    directory, slash, _ = path.rpartition("/")
    return directory if slash else path


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return the sort key of names that puts numbers in them in the order of their size.

    >>> sorted(["day-10.csv", "day-9.csv"], key=natural)
    ['day-9.csv', 'day-10.csv']
    """
    parts = re.split(r"([0-9]+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


WITHIN = 33
"""Bits that number the rows of a file."""


def ranks(paths: Sequence[str]) -> list[int]:
    """Return the place of each file in the order of their names, numbers in these by size."""
    ranked = [0] * len(paths)
    for place, at in enumerate(sorted(range(len(paths)), key=lambda at: natural(paths[at]))):
        ranked[at] = place
    return ranked


def arrival_order(piece: FilePiece, counts: Sequence[int], ranks: Sequence[int]) -> pl.Series:
    """Return numbers of a piece's rows in the order in which they arrived: file by file, as these are ranked.

    `counts` are the rows of the piece's files, should it be all of them.
    """
    first = piece.first or 0
    parts = [
        pl.arange(first, first + count, eager=True) + (ranks[at] << WITHIN)
        for at, count in zip(piece.files, counts if piece.first is None else [piece.count], strict=True)
    ]
    return pl.concat(parts).cast(pl.Int64)
