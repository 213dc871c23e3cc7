"""Rows of a log that are to be read: pieces of its files, and slices of an interval's updates, which are some pieces each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.lanes import Columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ddcli.engine.columns import Matrix
    from ddcli.engine.lanes import Layout
    from ddcli.engine.pool import Pool
    from ddcli.store.log.rows import Rows
    from ddcli.store.log.schema import LogSchema
    from ddcli.store.log.unparsed_rows import UnparsedRows
    from ddcli.store.state.entries import InputFile, Times

    Interval = tuple[Times | None, Times]

SAMPLE = 1 << 10
"""Updates that are looked at to judge whether many are equal."""
Only = Literal["inside", "late", "advanced"]


class SliceReader(Protocol):
    """The reader of a slice: `reader.LogReader`, which imports this module."""

    @property
    def schema(self) -> LogSchema:
        """The columns and the time of the log."""

    def read(self, part: LogSlice) -> Rows:
        """Return the updates of a slice."""


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

    reader: SliceReader
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
