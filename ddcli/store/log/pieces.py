"""Rows of a log that are to be read: pieces of its files, and slices of an interval's updates, which are some pieces each.

Where rows are whole tables, only the newest of the tables that arrive together counts. Without an order each file is a table, or all files of a directory below the input's are one; the
last by name is the newest. With an order, the rows of its greatest value are the newest table, and a table whose order is less than that of an earlier arrival is ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Literal

import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.lanes import Columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddcli.engine.columns import Matrix
    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.store.log.reader import LogReader
    from ddcli.store.log.rows import Rows
    from ddcli.store.log.unparsed_rows import UnparsedRows
    from ddcli.store.state.entries import InputFile, Times

    Interval = tuple[Times | None, Times]
    from collections.abc import Callable, Mapping, Sequence


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
        found = self.read().columns(layout, pool)
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
    """Return the newest of the tables that arrived at each time, by the greatest order of each file; `known` is that of before."""
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
