"""Batch files: the sorted updates of an arrangement over an interval, as Parquet that any reader can open.

The record's columns have their real types and names (one more `_` in front of those that begin with one), so nothing
of a process's string pool is in the state. Hidden columns: `_time` (`_time0`, ... of a product), `_diff`, and `_key`, what the
rows are first ordered by where that isn't the first key column itself. Rows are in the order of their lanes, in pages of
512, and the file knows the first key of each page: looking up keys reads the pages that can have them. It
knows the numbers of hidden columns that have just one, too, which are then not read. How it is read and checked: `file`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.columns import POOLED
from ddcli.engine.kernels.pages import meeting
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.expressions.types import FLAGGED, INTEGERS, Type
from ddcli.store.batch.file import GROUP, BatchFile, BatchWriter, footer_checksum, in_byte_order
from ddcli.store.batch.grouped_rows import GroupedRows
from ddcli.store.batch.page_index import PageIndex
from ddcli.store.batch.paged_rows import PagedRows
from ddcli.store.state.manifest import RESTORE, FileEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ddcli.store.batch.file import Strings
    from ddcli.store.state.directory import Adding

    Matrix = np.ndarray[Any, np.dtype[np.int64]]

BLOCK = 4 * GROUP
"""Rows that are made into columns together."""
PART = 1 << 17
"""Rows of a part of a batch."""
COUNT = Type("int64")
KEY, DIFF = "_key", "_diff"
LARGEST = 2**63 - 1


class BatchLayout:
    """How the updates of an arrangement lie in a matrix `[key | value | time | diff]` and in a file."""

    def __init__(self, key: Layout, value: Layout, nt: int) -> None:
        assert not {*key.names} & {*value.names}, "a record has one column of a name"
        self.key = key
        self.record = Layout({**key.schema, **value.schema})
        self.times = ["_time"] if nt == 1 else [f"_time{at}" for at in range(nt)]
        self.first: Type | None = next(iter(key.schema.values()), None)
        self.hidden_key = self.first is not None and (
            self.first.nullable or self.first.kind not in INTEGERS or self.first.kind == "uint64"
        )
        """Whether the first key column can't be compared as the lane it is ordered by."""
        name = next(iter(key.schema), None)
        self.hashed = any(kind.kind in POOLED for kind in self.record.schema.values())
        """Whether some lanes are hashes of values, and the order of rows depends on the secret."""
        self.leading_column = KEY if self.hidden_key else stored_name(name) if name is not None else None
        record = self.record.schema.items()
        self.hidden = {name: self.record.width + at for at, name in enumerate((*self.times, DIFF))}
        """The hidden columns that a matrix has, and their lanes."""
        self.stored = {stored_name(name): (self.record.lanes(name).start, name, kind) for name, kind in record}
        """Of each column of a file that a matrix has its first lane, its own name and its type."""
        self.stored |= {name: (lane, name, COUNT) for name, lane in self.hidden.items()}
        self.columns = {name: kind for name, (_, _, kind) in self.stored.items()}
        """The types of a file's columns."""
        if self.hidden_key:
            self.columns[KEY] = COUNT

    @property
    def width(self) -> int:
        return self.record.width + len(self.times) + 1

    def dealing(self, *, waiting: bool) -> range:
        """Return the lanes that say to which shard a row belongs: the key's; of rows that are `waiting`, by time, those of the data."""
        return range(self.key.width, self.record.width) if waiting else range(self.key.width)

    def leading(self, keys: Matrix) -> Matrix:
        """Return of keys (n, nk) what they are first ordered by, in one lane: nulls of a flagged column last."""
        flagged = self.first is not None and self.first.nullable and self.first.kind in FLAGGED
        return np.where(keys[:, 0] == 1, LARGEST, keys[:, 1]) if flagged else keys[:, 0]

    def writer(self) -> BatchWriter:
        """Return a writer of files."""
        return BatchWriter(self.columns, self.leading_column, self.key.width)

    def to_frame(self, matrix: Matrix, pool: Pool) -> pl.DataFrame:
        """Return the columns of a file."""
        columns = [series.alias(stored_name(series.name)) for series in decode(matrix, self.record, pool)]
        if self.hidden_key:
            columns.append(pl.Series(KEY, np.ascontiguousarray(self.leading(matrix))))
        for at, name in enumerate((*self.times, DIFF), start=self.record.width):
            columns.append(pl.Series(name, np.ascontiguousarray(matrix[:, at])))
        return pl.DataFrame(columns)

    def constants(self, matrix: Matrix) -> dict[str, int]:
        """Return the hidden columns that hold one number: after compaction times and diffs mostly do, and need not be read."""
        tail = {name: matrix[:, at] for at, name in enumerate((*self.times, DIFF), start=self.record.width)}
        return {name: int(lane[0]) for name, lane in tail.items() if self.record.names and (lane == lane[0]).all()}

    def fill(self, matrix: Matrix, frame: pl.DataFrame, constants: dict[str, int], pool: Pool) -> None:
        """Write the rows whose columns a file had, bit for bit; `constants` are the columns that `frame` lacks."""
        if self.record.names:
            columns = [
                frame[stored_name(name)].alias(name).cast(kind.to_polars()) for name, kind in self.record.schema.items()
            ]
            encode(pl.DataFrame(columns), self.record, pool, matrix)
        for at, name in enumerate((*self.times, DIFF), start=self.record.width):
            matrix[:, at] = constants[name] if name in constants else frame[name].to_numpy()


def stored_name(name: str) -> str:
    """Return a column's name in a file: the hidden columns' names are not free."""
    return f"_{name}" if name.startswith("_") else name


def append(writer: BatchWriter, matrix: Matrix, layout: BatchLayout, pool: Pool) -> None:
    """Add rows to a file. Block by block: lanes are picked from rows that are in the cache by then, 2.5 times faster."""
    writer.mark = pool.mark if layout.hashed else ""
    for at in range(0, len(matrix), BLOCK):
        block = matrix[at : at + BLOCK]
        writer.append(layout.to_frame(block, pool), block[:, : layout.record.width], layout.constants(block))


def write_batch(
    transaction: Adding,
    arrangement: str,
    shard: int,
    data: memoryview,
    rows: int,
    lower: Frontier,
    upper: Frontier,
    since: Frontier,
    run: int = 0,
) -> FileEntry:
    """Add a batch file of `rows` updates, whose times have been advanced to `since`, to a transaction."""
    name, written = transaction.add_batch(arrangement, shard, data)
    return FileEntry(
        name,
        rows,
        written.size,
        written.checksum,
        lower.elements,
        upper.elements,
        since.elements,
        footer_checksum(data),
        run,
    )


class StoredBatch:
    """A batch in a file (the engine's protocol `Batch`). Its size is checked at once, its bytes as they are read.

    Raises StateError (exit code 4) naming the file when it isn't what was written.
    """

    def __init__(self, path: Path, entry: FileEntry, layout: BatchLayout, pool: Pool) -> None:
        self.path = path
        self.entry = entry
        self.rows = entry.rows
        self.lower = Frontier(entry.lower or ())
        self.upper = Frontier(entry.upper)
        self.since = Frontier(entry.since or ())
        self.layout = layout
        self.file = BatchFile(path, entry, layout.record.width)
        self.pool = pool
        self._matrix: Matrix | None = None
        self._starts: dict[int, Strings] = {}
        self._reader: PagedRows | GroupedRows | None = None

    def matrix(self) -> Matrix:
        """Return all updates, loaded once and kept until `release`."""
        if self._matrix is None:
            self._check_secret()
            self._matrix = self._whole()
        return self._matrix

    def rehashed(self) -> Matrix:
        """Return all updates, hashed and sorted under the pool's secret whatever the one that they were written under; keeps nothing."""
        return kernels.sort_by(self._whole(), range(self.layout.width))

    def release(self) -> None:
        """Forget what `matrix` keeps."""
        self._matrix = None

    def parts(self) -> Iterator[tuple[Matrix, Pool]]:
        """Yield all updates in order, some 100 000 at a time, with the pool of their values, one for each part; keeps nothing."""
        self._check_secret()
        groups = range(self.file.index.groups)
        together = max(1, PART // self.file.index.group)
        for at in groups[::together]:
            pool = Pool(self.pool.secret)
            yield kernels.concat(list(self._rows().parts(groups[at : at + together], pool))), pool

    def for_keys(self, keys: Matrix) -> Matrix:
        """Return the updates of the sorted, distinct `keys` (n, nk), sorted. What is in memory anyway is handed over whole.

        Reads the pages that can have one of the keys, and keeps what was looked for: the memory it takes is in proportion to what
        is found, however large the file.
        """
        if self._matrix is not None or self.layout.leading_column is None:
            return self.matrix()
        self._check_secret()
        keys = np.ascontiguousarray(self._near(keys))
        groups = self.groups(keys)
        found = [np.empty((0, self.layout.width), np.int64)]
        if groups:
            leading = np.ascontiguousarray(self.layout.leading(keys))
            wanted = kernels.distinct_keys(leading.reshape(-1, 1), 1).reshape(-1)
            found += self._rows().for_keys(groups, keys, wanted, self.pool)
        return kernels.concat(found)

    def groups(self, keys: Matrix) -> list[int]:
        """Return the row groups outside which no update of the sorted keys is."""
        # A key's rows may begin in the group before one that begins with it: a group has keys up to the next one's first.
        starts = np.ascontiguousarray(self.file.index.records[:, : keys.shape[1]])
        found = np.empty(len(starts) - 1, np.int64)
        count = meeting(starts[:-1], starts[1:], keys, found)
        groups: list[int] = found[:count].tolist()
        return groups

    def between(self, first: Matrix | None, end: Matrix | None, pool: Pool) -> Matrix:
        """Return the updates of the records from `first` on and before `end`, rows of data lanes (1, width); None has no bound.

        Reads no row group that has none of them, keeps nothing, and interns in `pool`.
        """
        self._check_secret()
        begin, stop, width = 0, self.file.index.groups, self.layout.record.width
        if first is not None:
            # The record itself may begin in the group before one that begins with it, at an earlier time.
            begin = max(int(np.searchsorted(self.starts(width)[:-1], in_byte_order(first), "left")[0]) - 1, 0)
        if end is not None:
            stop = int(np.searchsorted(self.starts(width)[:-1], in_byte_order(end), "left")[0])
        parts = [np.empty((0, self.layout.width), np.int64)]
        for part in self._rows().parts(range(begin, stop), pool):
            above = 0 if first is None else place(part, first)
            below = len(part) if end is None else place(part, end)
            parts.append(part[above:below])
        return kernels.concat(parts)

    def starts(self, lanes: int) -> Strings:
        """Return the first lanes of each row group's first record, then those of the last record, as strings in their order."""
        if lanes not in self._starts:
            self._starts[lanes] = in_byte_order(self.file.index.records[:, :lanes])
        return self._starts[lanes]

    def _near(self, keys: Matrix) -> Matrix:
        """Return those of the sorted keys that are not before the file's first record or after its last by their first lane."""
        first, last = self.file.index.records[0, 0], self.file.index.records[-1, 0]
        return keys[np.searchsorted(keys[:, 0], first) : np.searchsorted(keys[:, 0], last, "right")]

    def _rows(self) -> PagedRows | GroupedRows:
        if self._reader is None:
            index = self.file.index
            new = isinstance(index, PageIndex)
            self._reader = (PagedRows if new else GroupedRows)(self.file, index, self.layout)  # type: ignore[arg-type]
        return self._reader

    def _whole(self) -> Matrix:
        matrix = np.empty((self.rows, self.layout.width), np.int64)
        for _ in self._rows().parts(range(self.file.index.groups), self.pool, matrix):
            pass
        return matrix

    def _check_secret(self) -> None:
        """Refuse to look by the lanes of the pool into a batch whose order is not theirs."""
        if self.layout.hashed and self.file.index.mark != self.pool.mark:
            raise StateError("the batch was written under another secret", place=str(self.path), hint=RESTORE)


def place(matrix: Matrix, record: Matrix) -> int:
    """Return the number of rows of a sorted matrix that come before a record, (1, width).

    >>> place(np.array([[1, 5, 1], [2, 6, 1], [2, 7, 1]]), np.array([[2, 7]]))
    2
    """
    wanted, low, high = record[0].tolist(), 0, len(matrix)
    while low < high:
        middle = (low + high) // 2
        if matrix[middle, : len(wanted)].tolist() < wanted:
            low = middle + 1
        else:
            high = middle
    return low
