"""A stored batch, as traces read it: whole, part by part, or the rows of some keys, from the pages of its file that can have them.

A trace reads the batches of its shard. Where passes and the state's shards differ in number, it reads its share of each batch: `BatchShare` is the rows of one pass of several
on a shard, `ShardBatch` one shard's batch in a trace of all shards. `KeyLookup` has the updates of some keys in a whole arrangement, for readers beside a run.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.kernels.gather import ranges_with_keys
from ddcli.engine.kernels.page_headers import END, HEADER, SIZE, VALUES, walk_pages
from ddcli.engine.kernels.page_values import OTHER
from ddcli.engine.kernels.pages import pick_values
from ddcli.engine.lanes import Layout, encode
from ddcli.engine.pool import Pool
from ddcli.engine.times import Frontier
from ddcli.errors import StateError
from ddcli.store.batch import file
from ddcli.store.batch.checked_files import RESTORE
from ddcli.store.batch.file import BatchFile, BatchLayout, fetch_ends, in_byte_order
from ddcli.store.batch.page_index import JSON, WORD, leaf_length
from ddcli.store.batch.paged_rows import NOTHING, PagedRows
from ddcli.store.batch.row_group_file import column_of, stored_order
from ddcli.store.files.gate import side_by_side
from ddcli.store.parquet.row_groups import MAGIC
from ddcli.store.state.contents import batch_path

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from ddcli.engine.lanes import Matrix
    from ddcli.store.batch.checked_files import OpenBundles
    from ddcli.store.batch.file import Strings
    from ddcli.store.state.entries import ArrangementEntry, FileEntry


def read_lanes(data: bytes, layout: BatchLayout, rows: int) -> Matrix | None:
    """Return the rows of a file of one row group, all of whose bytes have been checked; None if it has other pages than `row_group_file` writes.

    Its index has to have the text that lists the columns of the pages, in order, with their forms.
    """
    names = stored_order(layout)
    made = [column_of(name, layout.columns[name]) for name in names]
    columns = [column for column, numbered in made if not numbered and column.form != OTHER]
    if len(columns) < len(names) or data.find(b'"columns": %s' % JSON.encode(columns).encode()) < 0:
        return None
    pages = len(columns) * -(-rows // file.PAGE)
    leaf = WORD * leaf_length(pages // len(columns), layout.key.width, len(columns))
    found, content = np.empty((pages, SIZE + 1), np.int64), np.frombuffer(data, np.uint8)
    if walk_pages(content, len(MAGIC), len(data) - file.tail_size(data) - leaf, found) != pages:
        return None
    table = np.zeros((pages, 5), np.int64)
    table[0, 0] = len(MAGIC)
    table[1:, 0] = found[:-1, END]
    table[:, 0] += found[:, HEADER]
    table[:, 1], table[:, 2] = found[:, END], found[:, VALUES]
    scratch, matrix = np.empty((2, min(rows, file.PAGE)), np.uint64), np.empty((rows, layout.width), np.int64)
    for column, part in zip(columns, np.split(table, len(columns)), strict=True):
        if column.name in layout.stored:
            lane, *_ = layout.stored[column.name]
            if pick_values(content, part, NOTHING, NOTHING, *scratch, matrix, lane, column.form) != rows:
                return None
    return matrix


PART = 1 << 17
"""Rows of a part of a batch."""
FEW = 1 << 11
"""The rows of a batch that is read whole, once, for any lookup: to find pages takes longer than to read so few."""


class StoredBatch:
    """A batch in a file (the engine's protocol `Batch`). Its size is checked at once, its bytes as they are read.

    Raises StateError (exit code 4) with the file's name if its bytes are not those that were written.
    """

    def __init__(
        self,
        path: Path,
        entry: FileEntry,
        layout: BatchLayout,
        pool: Pool,
        matrix: Matrix | None = None,
        bundles: OpenBundles | None = None,
    ) -> None:
        """Open a batch whose `matrix` may be known: then its file need not exist yet. It may be in one of the open `bundles`."""
        self.path = path
        self.entry = entry
        self.rows = entry.rows
        self.lower = Frontier(entry.lower or ())
        self.upper = Frontier(entry.upper)
        self.since = Frontier(entry.since or ())
        self.layout = layout
        self.file = BatchFile(path, entry, layout.record.width, there=matrix is None, bundles=bundles)
        self.pool = pool
        self._matrix = matrix
        self._in_memory = entry.rows <= FEW
        self._starts: dict[int, Strings] = {}
        self._reader: PagedRows | None = None

    def matrix(self) -> Matrix:
        """Return all updates, loaded once and kept until `release`."""
        if self._matrix is None:
            self._check_secret()
            self._matrix = self._whole()
        return self._matrix

    def under(self, pool: Pool) -> StoredBatch:
        """Return the batch with the values of its lanes in another pool."""
        return StoredBatch(self.path, self.entry, self.layout, pool, bundles=self.file.bundles)

    def rehashed(self) -> Matrix:
        """Return all updates, hashed and sorted under the pool's secret instead of the one under which they were written; keeps nothing."""
        return kernels.sort_by(self._whole(), range(self.layout.width))

    def release(self) -> None:
        """Forget the rows that `matrix` keeps."""
        self._matrix = None

    def unload(self) -> None:
        """Keep nothing in memory until the batch is used again, and from then on only the rows of lookups."""
        self.stay_open(in_memory=False)
        self._matrix = self._reader = None
        self.file.close()

    def stay_open(self, *, in_memory: bool) -> None:
        """Keep the file mapped from its first use on, or, `in_memory`, all updates."""
        self.file.stay_mapped()
        self._in_memory = in_memory or self.rows <= FEW

    def move(self, path: Path, entry: FileEntry, bundles: OpenBundles | None = None) -> None:
        """Take the file's new path and entry; its bytes are the same."""
        self.path, self.entry, self._reader = path, entry, None
        self.file = BatchFile(path, entry, self.layout.record.width, there=self._matrix is None, bundles=bundles)
        self.file.stay_mapped()

    @property
    def held(self) -> int:
        """Return the number of bytes of memory that its updates take, or the kept part of its file."""
        if self._matrix is not None:
            return self._matrix.nbytes
        return self.file.held + (0 if self._reader is None else self._reader.held)

    def parts(self) -> Iterator[tuple[Matrix, Pool]]:
        """Yield all updates in order, some 100 000 at a time, with the pool of their values, one for each part; keeps nothing."""
        self._check_secret()
        groups = range(self.file.index.groups)
        together = max(1, PART // self.file.index.group)
        for at in groups[::together]:
            pool = Pool(self.pool.secret)
            yield kernels.concat(list(self._rows().parts(groups[at : at + together], pool))), pool

    def for_keys(self, keys: Matrix, spared: Collection[int] = ()) -> Matrix:
        """Return the updates of the sorted, distinct `keys` (n, nk), sorted. A batch in memory may be returned whole.

        Reads the pages that can have one of the keys, and keeps the found rows: the memory is in proportion to them,
        however large the file is. Columns whose lanes are all `spared` are not read: the number of the row stands for their values.
        """
        if self._in_memory and keys.shape[1]:
            return kernels.gather(self.matrix(), keys.shape[1], keys)
        if self._matrix is not None or self.layout.leading_column is None:
            return self.matrix()
        keys = np.ascontiguousarray(self._near(keys))
        return self._of_keys(keys, self.groups(keys), spared)

    def fetch(self, keys: Matrix, spared: Collection[int] = ()) -> None:
        """Bring what `for_keys` reads here from an object store, but for very many pages, and the parts of batches that are read whole."""
        if self._matrix is not None or not self.file.is_far:
            return
        fetch_ends([self.file])
        if self._in_memory or self.layout.leading_column is None:
            return
        keys = np.ascontiguousarray(self._near(keys))
        if groups := self.groups(keys):
            self._rows().fetch(groups, keys, spared)

    def _of_keys(self, keys: Matrix, groups: list[int], spared: Collection[int] = ()) -> Matrix:
        """Return the updates of the sorted, distinct keys in some row groups."""
        self._check_secret()
        found = [np.empty((0, self.layout.width), np.int64)]
        if groups:
            leading = np.ascontiguousarray(self.layout.leading(keys))
            wanted = kernels.distinct_keys(leading.reshape(-1, 1), 1).reshape(-1)
            found += self._rows().for_keys(groups, keys, wanted, self.pool, spared)
        return kernels.concat(found)

    def limits(self, first: Matrix, last: Matrix, nk: int) -> tuple[Matrix, Matrix] | None:
        """Return wider ranges of places: from where a row group of their key begins to before the next one does. None where all is in memory.

        The last row group, which may have few rows, is taken together with the one before it.
        """
        if not nk or self._in_memory or self._matrix is not None or self.layout.leading_column is None:
            return None
        records, (low, high) = self.file.index.records, (first.copy(), last.copy())
        starts, groups = self.starts(first.shape[1])[:-1], self.file.index.groups
        before = np.searchsorted(starts, in_byte_order(first), "left") - 1
        before -= before == groups - 1
        after = np.searchsorted(starts, in_byte_order(last), "right")
        for out, at, step, end in ((low, before, 1, -(2**63)), (high, after, -1, 2**63 - 1)):
            out[:, nk:] = end
            there = records[np.clip(at, 0, groups - 1), : first.shape[1]]
            inside = (at >= 0) & (at < groups) & (there[:, :nk] == out[:, :nk]).all(axis=1)
            inside &= there[:, -1] != -1 - end  # the next place has one more in its last lane
            out[inside] = there[inside]
            out[inside, -1] += step
        return low, high

    def in_ranges(self, first: Matrix, last: Matrix, nk: int) -> Matrix:
        """Return the updates in ranges of places, one for each key, and more of these keys: all of those in the row groups that are read."""
        if self._in_memory or self._matrix is not None or self.layout.leading_column is None:
            return self.matrix()
        starts = self.starts(first.shape[1])
        found = np.searchsorted(in_byte_order(last), starts[:-1], "left")
        some = np.flatnonzero(found < len(first))
        meets = in_byte_order(first)[found[some]] <= starts[some + 1]
        return self._of_keys(np.ascontiguousarray(first[:, :nk]), some[meets].tolist())

    def groups(self, keys: Matrix) -> list[int]:
        """Return the row groups outside which no update of the sorted keys is."""
        # A key's rows may begin in the group before one that begins with it: a group has keys up to the next one's first.
        starts = np.ascontiguousarray(self.file.index.records[:, : keys.shape[1]])
        found = np.empty(len(starts) - 1, np.int64)
        count = ranges_with_keys(starts[:-1], starts[1:], keys, found)
        groups: list[int] = found[:count].tolist()
        return groups

    def between(self, first: Matrix | None, end: Matrix | None, pool: Pool) -> Matrix:
        """Return the updates of the records from `first` on and before `end`, rows of data lanes (1, width); None is no bound.

        Reads no row group that has none of them, keeps nothing, and interns in `pool`.
        """
        if self._in_memory and (pool is self.pool or not self.layout.hashed):
            matrix = self.matrix()
            above = 0 if first is None else place(matrix, first)
            return matrix[above : len(matrix) if end is None else place(matrix, end)]
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

    def near(self, least: int) -> Iterator[Matrix]:
        """Yield rows that include the first one whose first lane is not below `least`, if there is one: the rows of a row group, or two first records."""
        if self._matrix is not None:
            yield self._matrix
            return
        records = self.file.index.records
        after = int(np.searchsorted(records[:, 0], least))
        yield records[after:][:1]
        if after:
            yield from self._rows().parts(range(after - 1, min(after, self.file.index.groups)), self.pool)

    def starts(self, lanes: int) -> Strings:
        """Return the first lanes of each row group's first record, then the last record's, as strings in their order."""
        if lanes not in self._starts:
            self._starts[lanes] = in_byte_order(self.file.index.records[:, :lanes])
        return self._starts[lanes]

    def _near(self, keys: Matrix) -> Matrix:
        """Return the sorted keys that are not before the file's first record or after its last by their first lane."""
        first, last = self.file.index.records[0, 0], self.file.index.records[-1, 0]
        return keys[np.searchsorted(keys[:, 0], first) : np.searchsorted(keys[:, 0], last, "right")]

    def _rows(self) -> PagedRows:
        if self._reader is None:
            self._reader = PagedRows(self.file, self.file.index, self.layout)
        return self._reader

    def _whole(self) -> Matrix:
        if self.file.is_checked and (found := read_lanes(self.file.content, self.layout, self.rows)) is not None:
            return found
        matrix = np.empty((self.rows, self.layout.width), np.int64)
        for _ in self._rows().parts(range(self.file.index.groups), self.pool, matrix):
            pass
        return matrix

    def _check_secret(self) -> None:
        """Refuse a batch that is not in the order of the pool's lanes: lookups in it would fail."""
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


StoredBatches = dict[tuple["Path", int], StoredBatch]
"""Opened batches by their path and their place in it."""


@dataclass
class KeyLookup:
    """An arrangement of the state in a directory, whose times have `nt` coordinates. `batches` are those that are open: a file never changes."""

    state: Path
    identity: str
    entry: ArrangementEntry
    nt: int
    pool: Pool
    batches: StoredBatches = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layout = BatchLayout.of(self.entry, self.nt)

    def updates(self, prefix: Sequence[str], keys: pl.DataFrame) -> Matrix:
        """Return the updates of the records whose first columns, `prefix`, are one of the rows of `keys`; without a prefix all."""
        found = [np.empty((0, self.layout.width), np.int64)]
        for shard, wanted in self._by_shard(prefix, keys):
            for each in self.entry.shards[shard]:
                place = batch_path(self.state, self.identity, shard, each), each.at
                if place not in self.batches:
                    self.batches[place] = StoredBatch(place[0], each, self.layout, self.pool)
                batch = self.batches[place]
                found.append(batch.for_keys(wanted) if prefix else batch.matrix())
        return kernels.concat(found)

    def _by_shard(self, prefix: Sequence[str], keys: pl.DataFrame) -> list[tuple[int, Matrix]]:
        """Return the keys to look up in each shard: without a whole key, all keys in all shards."""
        schema = {name: self.layout.record.schema[name] for name in prefix}
        columns = [keys[name].cast(kind.to_polars()) for name, kind in schema.items()]
        frame = pl.DataFrame(columns).filter(
            *(pl.col(name).is_not_null() for name, kind in schema.items() if not kind.nullable)
        )
        every = range(len(self.entry.shards))
        if not prefix:
            return [(shard, np.empty((0, 0), np.int64)) for shard in every]
        lanes = Layout(schema)
        wanted = kernels.distinct_keys(
            kernels.sort_by(encode(frame, lanes, self.pool), range(lanes.width)), lanes.width
        )
        if len(prefix) < len(self.layout.key.names):
            return [(shard, wanted) for shard in every]
        shards = kernels.shard_of(wanted, self.layout.key.width, len(self.entry.shards))
        return [(shard, np.ascontiguousarray(wanted[shards == shard])) for shard in every if (shards == shard).any()]


class BatchShare:
    """The rows of a batch whose keys belong to one of several passes that share the batch's shard."""

    def __init__(self, batch: StoredBatch, lanes: tuple[int, ...], shard: int, shards: int) -> None:
        self.batch = batch
        self.rows, self.lower, self.upper = batch.rows, batch.lower, batch.upper
        self._of = lanes, shard, shards

    def matrix(self) -> np.ndarray:
        lanes, shard, shards = self._of
        matrix: np.ndarray = self.batch.matrix()
        mine: np.ndarray = matrix[kernels.shard_of(kernels.take(matrix, list(lanes)), len(lanes), shards) == shard]
        return mine

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        return self.batch.for_keys(keys, spared)

    def release(self) -> None:
        self.batch.release()


def fetch_together(batches: Iterable[object], keys: Matrix, spared: Collection[int] = ()) -> None:
    """Bring what a lookup of some keys reads in several batches here from an object store, side by side."""
    found: dict[Path, list[tuple[StoredBatch, Matrix]]] = {}
    for each in batches:
        if isinstance(each, ShardBatch):
            found.setdefault(each.batch.path, []).append((each.batch, each.mine(keys)))
        elif isinstance(each, StoredBatch | BatchShare):
            stored = each if isinstance(each, StoredBatch) else each.batch
            found.setdefault(stored.path, []).append((stored, keys))

    def fetch(path: Path) -> None:
        for batch, wanted in found[path]:
            if len(wanted):
                batch.fetch(wanted, spared)

    side_by_side(fetch, [*found])


class KeyShards:
    """The shards of keys. Keeps the last result, as all batches of a trace look up the same keys."""

    def __init__(self, width: int, count: int) -> None:
        self.width = width
        self.count = count
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def shards(self, keys: np.ndarray) -> np.ndarray:
        """Return the shard of each key; further lanes don't count."""
        known = self._last
        if known is None or known[0] is not keys:
            own = np.ascontiguousarray(keys[:, : self.width])
            known = self._last = keys, kernels.shard_of(own, self.width, self.count)
        return known[1]


class ShardBatch:
    """A batch of one shard in a trace of several: looks up only the keys of its shard."""

    def __init__(self, batch: StoredBatch, key_shards: KeyShards, shard: int) -> None:
        self.batch = batch
        self.rows, self.lower, self.upper = batch.rows, batch.lower, batch.upper
        self._key_shards = key_shards
        self._shard = shard

    def matrix(self) -> np.ndarray:
        return self.batch.matrix()

    def mine(self, keys: np.ndarray) -> np.ndarray:
        """Return the keys of its shard."""
        found: np.ndarray = keys[self._key_shards.shards(keys) == self._shard]
        return found

    def for_keys(self, keys: np.ndarray, spared: Collection[int] = ()) -> np.ndarray:
        mine = self.mine(keys)
        return self.batch.for_keys(mine, spared) if len(mine) else np.empty((0, self.batch.layout.width), np.int64)

    def limits(self, first: np.ndarray, last: np.ndarray, nk: int) -> tuple[np.ndarray, np.ndarray] | None:
        mine = self._key_shards.shards(first) == self._shard
        found = self.batch.limits(first[mine], last[mine], nk) if mine.any() else None
        if found is None:
            return None
        low, high = first.copy(), last.copy()
        # Of the narrowest ranges of all batches others must not be made narrower here.
        low[:, nk:], high[:, nk:] = -(2**63), 2**63 - 1
        low[mine], high[mine] = found
        return low, high

    def in_ranges(self, first: np.ndarray, last: np.ndarray, nk: int) -> np.ndarray:
        mine = self._key_shards.shards(first) == self._shard
        if not mine.any():
            return np.empty((0, self.batch.layout.width), np.int64)
        return self.batch.in_ranges(first[mine], last[mine], nk)

    def release(self) -> None:
        self.batch.release()


def stored_batches(
    directory: Path, identity: str, entry: ArrangementEntry, shard: int, secret: bytes
) -> tuple[BatchLayout | None, list[StoredBatch]]:
    """Return the batches of an arrangement's shard, and their layout: a file tells how many times a row has, more in a loop. None where there is no file."""
    files = entry.shards[shard]
    if not files:
        return None, []
    paths = [batch_path(directory, identity, shard, each) for each in files]
    first = BatchFile(paths[0], files[0], BatchLayout.of(entry, 1).record.width)
    layout = BatchLayout.of(entry, sum(column.rstrip("0123456789") == "_time" for column in first.columns))
    return layout, [StoredBatch(path, each, layout, Pool(secret)) for path, each in zip(paths, files, strict=True)]
