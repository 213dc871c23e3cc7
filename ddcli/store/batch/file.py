"""Batch files: the sorted updates of an arrangement over an interval, as Parquet that any reader can open, with an index.

The record's columns have their real types and names (one more `_` in front of those that begin with one), so nothing
of a process's string pool is in the state. Hidden columns: `_time` (`_time0`, ... of a product), `_diff`, and `_key`, the first
lane in the order of rows if that isn't the first key column itself. Rows are in the order of their lanes. The index also
has the values of hidden columns with a single one, which are then not read.

Every byte is checked before it is read, wherever a read begins.

A column's values are in pages of 512 rows. An index behind them has the first key, the place and the checksum of each page (see `page_index`).
A lookup reads the pages that have its keys, and integers in place. Any reader of Parquet reads the file, and ignores the index.

Integers are packed as differences of neighbours, which are small for sorted keys, and not compressed further: 10 M pairs of
integers take 3.6 bytes a row. A column of few different numbers or texts has numbers for them. All other values are compressed page by page.
"""

from __future__ import annotations

import mmap
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.arrow import series_of
from ddcli.engine.lanes import Layout, decode
from ddcli.expressions.types import FLAGGED, INTEGERS, POOLED, Type, parse_schema
from ddcli.store.batch.checked_files import OpenBundles, check_size, damaged, fetch
from ddcli.store.batch.page_index import MAGIC, TRAILER, PageIndex, leaf_length, leaf_of, row_checksums
from ddcli.store.files.access import fs, reading
from ddcli.store.files.gate import checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from ddcli.engine.lanes import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.store.batch.checked_files import PartialCopy
    from ddcli.store.batch.page_index import Data, PageColumn
    from ddcli.store.files.access import Bytes
    from ddcli.store.files.gate import Written
    from ddcli.store.state.entries import ArrangementEntry, FileEntry

    Strings = np.ndarray[Any, np.dtype[np.bytes_]]
    Mapped = mmap.mmap | memoryview | bytes


GROUP = 1 << 15
"""The rows of a row group. With 100 M rows the indices, which each lookup reads, have 200 kB."""
PAGE = 512
"""Rows of a page. Half as many make files 9 % larger, and writing them 30 % slower; with twice as many, each key that is looked up takes twice as long."""
FOOTER = 64 << 10
"""Bytes that are fetched from the end of an object at least: leaves, index and footer of most files, and of the others their length."""
LEAVES, MOST_LEAVES = 1 << 4, 1 << 20
"""The part of a large file that leaves and index take at most, mostly; and the bytes at most that are fetched for them before they are asked for."""
END = 8
"""Bytes after Parquet's footer: its length and `PAR1`."""
NEAR = 64 << 10
"""Bytes between two ranges up to which both are read together, with the bytes between them."""
WHOLE = 64 << 10
"""The bytes of the largest file in a bundle that is read whole, all at once."""
WARM = 16 << 20
"""The bytes of a file that the system is to read as a whole if it stays mapped: one request instead of one for each lookup."""
SIGN = np.int64(-(2**63))


def in_byte_order(rows: Matrix) -> Strings:
    """Return rows of lanes, (n, width > 0), as byte strings that compare as they do: big-endian, sign bit flipped."""
    flipped = np.ascontiguousarray((rows ^ SIGN).astype(">i8"))
    ordered: Strings = flipped.view(f"S{8 * rows.shape[1]}").reshape(-1)
    return ordered


def footer_checksum(data: Bytes) -> str:
    """Return the checksum of index and footer, as `FileEntry.footer` keeps it."""
    view = memoryview(data).cast("B")
    return checksum(view[-tail_size(view) :])


def footer_size(data: Bytes) -> int:
    """Return the number of bytes of a Parquet file's footer, with its length and magic."""
    return int.from_bytes(data[-END : END // -2], "little") + END


def tail_size(data: Bytes) -> int:
    """Return the number of bytes of index and footer, or of the footer alone if there is no index before it."""
    footer = footer_size(data)
    trailer = bytes(data[-footer - TRAILER : -footer])
    return footer + TRAILER + int.from_bytes(trailer[:4], "little") if trailer[4:] == MAGIC else footer


class BatchFile:
    """An open batch file. Raises StateError (exit code 4) with the file's name if its bytes are not those that were written.

    Its size is checked when it is opened, index and footer when the index is first asked for, and all else whenever it is read.
    """

    def __init__(
        self, path: Path, entry: FileEntry, width: int, *, there: bool = True, bundles: OpenBundles | None = None
    ) -> None:
        self.bundles = bundles or OpenBundles()
        self.is_far = not fs(path).is_local
        """True: it is in an object store, where each look at it is a request."""
        if there and not self.is_far:
            (self.bundles.check_size if entry.bundle else check_size)(path, entry)
        self.path = path
        self.groups_read = self.pages_read = self.rows_scanned = 0
        self.stays_open = False
        """True: it stays mapped from its next use on."""
        self.entry = entry
        self._width = width
        self._index: PageIndex | None = None
        self._metadata: Any = None
        self._warm = False
        self._mapped: mmap.mmap | None = None
        self._bundled: bytes | None = None
        self._copy: PartialCopy | None = None

    @property
    def is_checked(self) -> bool:
        """Return whether every byte of it is checked when it is read: then it is a small one in a bundle."""
        return bool(self.entry.bundle) and self.entry.size <= WHOLE

    @property
    def is_fetched(self) -> bool:
        """Return whether its parts are fetched from an object store before they are read."""
        return self.is_far and self.entry.size > 0 and not self.is_checked

    def ahead(self) -> tuple[PartialCopy, tuple[int, int]] | None:
        """Return what each lookup begins with: the copy of the object, and the range there that is not needed as soon as it is open; None for an open one."""
        if self._index is not None or self._bundled is not None:
            return None
        end = self.entry.at + self.entry.size
        return self._copied(), (end - (self.entry.size if self.is_checked else self._end), end)

    @property
    def _end(self) -> int:
        """The bytes that are fetched from its end: the leaves are before the index, and a lookup needs the pages alone then."""
        size = self.entry.size
        return size if size <= 2 * FOOTER else max(FOOTER, min(size // LEAVES, MOST_LEAVES))

    def _copied(self) -> PartialCopy:
        self._copy = self._copy or self.bundles.copy(self.path, self.entry)
        return self._copy

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        at = self.entry.at
        fetch(self._copied(), self.entry, [(at + start, at + end) for start, end in ranges])

    @property
    def content(self) -> bytes:
        """Return the bytes of a small file in a bundle, checked."""
        self._bundled = self._bundled or self.bundles.read_checked(self.path, self.entry)
        return self._bundled

    @property
    def index(self) -> PageIndex:
        """Return the index of the file's rows, which its end holds."""
        if self._index is None:
            with self.mapped() as data:
                self._open(memoryview(data))
        assert self._index is not None
        return self._index

    @property
    def metadata(self) -> Any:
        """Return Parquet's footer as pyarrow has it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._metadata is None:
            assert self.index is not None, "the footer is checked first"
            try:
                with self.mapped() as data:
                    self._metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(data)))
            except (pa.ArrowException, OSError):
                raise damaged(self.path) from None
        return self._metadata

    @property
    def columns(self) -> list[str]:
        """Return the names of the file's columns, hidden ones too."""
        return [column.name for column in self.index.columns]

    def fetch(self, data: Mapped, starts: Matrix, ends: Matrix) -> None:
        """Have the system read ranges of bytes, which ascend, all at once: page by page, as it is looked at, takes twice as long."""
        if not len(starts) or self._warm or not (self.is_fetched or isinstance(data, mmap.mmap)):
            return
        if self.stays_open and isinstance(data, mmap.mmap) and len(data) <= WARM:
            self._warm = True
            data.madvise(mmap.MADV_WILLNEED)
            return
        near = starts[1:] - np.maximum.accumulate(ends)[:-1] < NEAR
        first = np.flatnonzero(np.concatenate([[True], ~near]))
        starts, ends = starts[first], np.maximum.reduceat(ends, first)
        if not isinstance(data, mmap.mmap):
            self._fetch(list(zip(starts.tolist(), ends.tolist(), strict=True)))
            return
        for start, end in zip((starts // mmap.PAGESIZE * mmap.PAGESIZE).tolist(), ends.tolist(), strict=True):
            data.madvise(mmap.MADV_WILLNEED, start, end - start)

    def _open(self, data: memoryview) -> None:
        """Check the end of the file, and keep its index and footer."""
        if self.is_fetched:
            self._fetch_end(self._end)
            self._fetch_end(footer_size(data) + TRAILER)
            self._fetch_end(tail_size(data))
        size = tail_size(data)
        footer = footer_size(data)
        if not END < footer <= size <= len(data):
            raise damaged(self.path)
        tail = data[-size:]
        if size == footer or checksum(tail) != self.entry.footer:
            raise damaged(self.path)
        try:
            index = PageIndex.from_bytes(bytes(tail[: size - footer - TRAILER]), self._width)
        except (OSError, ValueError, KeyError, TypeError):
            raise damaged(self.path) from None
        if index.start + 8 * index.length * index.groups != len(data) - size or index.rows != self.entry.rows:
            raise damaged(self.path)
        self._index = index

    def _fetch_end(self, size: int) -> None:
        """Fetch the last bytes, so many if the file has them."""
        whole = self.entry.size
        self._fetch([(max(0, whole - size), whole)] if size < whole + FOOTER else [])

    @contextmanager
    def mapped(self) -> Iterator[Mapped]:
        """Map the file: a copy in fresh memory would take longer than to check it. It is unmapped when the last reference to it is gone.

        A small file in a bundle is read whole.
        """
        if self.is_checked:
            yield self.content
            return
        if self.is_fetched:
            yield memoryview(self._copied().data)[self.entry.at : self.entry.at + self.entry.size]
            return
        if self.entry.bundle:
            yield self.bundles.view(self.path, self.entry)
            return
        if self._mapped is not None and self._mapped.size() == self.entry.size:
            yield self._mapped
            return
        check_size(self.path, self.entry)  # of a file cut short since, mapped pages can't be read
        try:
            with reading(self.path) as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            raise damaged(self.path) from None
        if self.stays_open:
            self._mapped = data
        yield data

    def release_pages(self, data: Mapped) -> None:
        """Have pages that were read count no longer as memory of this process, unless they are read again and again (see `held`)."""
        mapped = self._copied().data if self.is_fetched else data
        if isinstance(mapped, mmap.mmap) and not self._warm:
            mapped.madvise(mmap.MADV_DONTNEED)

    def stay_mapped(self) -> None:
        """Keep the file mapped from the next use on."""
        self.stays_open = True

    @property
    def held(self) -> int:
        """Return the number of bytes of the file that may count as memory of this process."""
        return self.entry.size if self._warm and self._mapped is not None else 0

    @property
    def is_mapped(self) -> bool:
        """Return whether the file stays mapped: that takes a descriptor."""
        return self._mapped is not None

    def close(self) -> None:
        """Release the file until it is used again. It is unmapped when the last reference to it is gone."""
        self._mapped = self._bundled = None
        self._warm = False


def fetch_ends(files: Iterable[BatchFile]) -> None:
    """Fetch what lookups in some files begin with from an object store: with one request for those that are near each other in a bundle."""
    ranges: dict[PartialCopy, list[tuple[int, int]]] = {}
    for file in files:
        if found := file.ahead():
            ranges.setdefault(found[0], []).append(found[1])
            some = file
    for copy, each in ranges.items():
        fetch(copy, some.entry, each)


REPEATED = 256
"""Different values of a column in its first rows up to which they are numbered, not packed."""


def most_numbered(rows: int) -> int:
    """Return the number of different values in the first `rows` rows up to which a column's are numbered, not packed."""
    return min(REPEATED, max(1, rows // 2))


class IndexWriter:
    """The index of a batch file: `add` each row group when its pages are written, then `finish`."""

    def __init__(self, key: int) -> None:
        """Make the index of no rows yet; a key has so many lanes."""
        self._rows = 0
        self._key = key
        self._records: list[Matrix] = []
        self._last: Matrix | None = None
        self._leaves: list[Matrix] = []
        self._constants: dict[str, int] | None = None

    def note_constants(self, found: Mapping[str, int]) -> None:
        """Take in which columns hold just one number, in some rows of the file."""
        before = self._constants
        self._constants = {name: at for name, at in found.items() if before is None or before.get(name) == at}

    def add(
        self, data: Data, start: int, columns: Sequence[PageColumn], firsts: Matrix, last: Matrix, rows: int
    ) -> int:
        """Add a row group; return the size of its leaf in bytes.

        Its bytes are `data`, and in the file begin at `start`, with the magic if it is the first. `firsts` are the data lanes of the first row of each page,
        `last` the lanes of the last row, or of a later one.
        """
        pages = len(firsts)
        heights = np.minimum(rows - np.arange(pages) * PAGE, PAGE)
        keys = np.concatenate([firsts, last])[:, : self._key]
        length = len(self._leaves[0]) if self._leaves else leaf_length(pages, self._key, len(columns))
        leaf = leaf_of(data, start, [column.form for column in columns], keys, heights, length)
        self._leaves.append(leaf)
        self._records.append(firsts[:1].copy())
        self._last = last.copy()
        self._rows += rows
        return leaf.nbytes

    def finish(self, columns: tuple[PageColumn, ...], start: int, mark: str = "") -> tuple[bytes, bytes]:
        """Return the leaves, which are to begin at `start` in the file, and the index proper. `mark` identifies the secret of hashed lanes."""
        assert self._last is not None, "an empty batch has no index"
        leaves, records = np.stack(self._leaves), np.concatenate([*self._records, self._last])
        sizes = self._rows, GROUP, PAGE, self._key, start
        index = PageIndex(*sizes, records, row_checksums(leaves), columns, self._constants or {}, mark)
        return leaves.tobytes(), index.to_bytes()


COUNT = Type("int64")
KEY, DIFF = "_key", "_diff"
LARGEST = 2**63 - 1


class BatchLayout:
    """The layout of an arrangement's updates in a matrix `[key | value | time | diff]` and in a file."""

    @classmethod
    def of(cls, entry: ArrangementEntry, nt: int) -> Self:
        """Return the layout of an arrangement in a state."""
        schema = parse_schema(entry.schema)
        value = {name: kind for name, kind in schema.items() if name not in entry.key}
        return cls(Layout({name: schema[name] for name in entry.key}), Layout(value), nt)

    def __init__(self, key: Layout, value: Layout, nt: int) -> None:
        assert not {*key.names} & {*value.names}, "a record has one column of a name"
        self.key = key
        self.record = Layout({**key.schema, **value.schema})
        self.times = ["_time"] if nt == 1 else [f"_time{at}" for at in range(nt)]
        self.first: Type | None = next(iter(key.schema.values()), None)
        self.hidden_key = self.first is not None and (
            self.first.nullable or self.first.kind not in INTEGERS or self.first.kind == "uint64"
        )
        """True: the first key column can't be compared as the lane it is ordered by."""
        name = next(iter(key.schema), None)
        self.hashed = any(kind.kind in POOLED for kind in self.record.schema.values())
        """True: some lanes are hashes of values, and the order of rows depends on the secret."""
        self.leading_column = KEY if self.hidden_key else stored_name(name) if name is not None else None
        record = self.record.schema.items()
        self.hidden = {name: self.record.width + at for at, name in enumerate((*self.times, DIFF))}
        """The hidden columns that a matrix has, and their lanes."""
        self.stored = {stored_name(name): (self.record.lanes(name).start, name, kind) for name, kind in record}
        """The first lane in a matrix of each column of a file, its own name and its type."""
        self.stored |= {name: (lane, name, COUNT) for name, lane in self.hidden.items()}
        self.columns = {name: kind for name, (_, _, kind) in self.stored.items()}
        """The types of a file's columns."""
        flags = {name: lane for name, (lane, _, kind) in self.stored.items() if kind.kind == "bool"}
        self.may_be_constant = self.hidden | flags
        """The columns that mostly hold one number, by lane: after compaction times and diffs do, and so does the key of all records as one group, which no kernel reads."""
        if self.hidden_key:
            self.columns[KEY] = COUNT

    def same(self, other: BatchLayout) -> bool:
        """Return whether matrices and files of another layout have the same form as this one's."""
        mine, others = ([*layout.columns.items(), *layout.key.names] for layout in (self, other))
        return self is other or (mine == others and self.width == other.width)

    @property
    def width(self) -> int:
        return self.record.width + len(self.times) + 1

    def shard_lanes(self, *, waiting: bool) -> range:
        """Return the lanes that decide a row's shard: the key's; of `waiting` rows, whose key is a time, the data's."""
        return range(self.key.width, self.record.width) if waiting else range(self.key.width)

    def leading(self, keys: Matrix) -> Matrix:
        """Return the first sort key of keys (n, nk), in one lane: nulls of a flagged column last."""
        flagged = self.first is not None and self.first.nullable and self.first.kind in FLAGGED
        return np.where(keys[:, 0] == 1, LARGEST, keys[:, 1]) if flagged else keys[:, 0]

    def to_frame(self, matrix: Matrix, pool: Pool) -> pl.DataFrame:
        """Return the columns of a file, which share no memory with the matrix."""
        columns = [series.alias(stored_name(series.name)) for series in decode(matrix, self.record, pool)]
        if self.hidden_key:
            columns.append(series_of(KEY, self.leading(matrix).copy()))
        for at, name in enumerate((*self.times, DIFF), start=self.record.width):
            columns.append(series_of(name, matrix[:, at].copy()))
        return pl.DataFrame(columns)

    def constants(self, matrix: Matrix) -> dict[str, int]:
        """Return the columns of `may_be_constant` that hold one number, and need not be read."""
        if not self.record.names:
            return {}
        first = matrix[0].tolist()
        found = self.may_be_constant.items()
        return {name: first[at] for name, at in found if kernels.rounds_equal(matrix, at, (first[at],))}


@lru_cache(maxsize=1024)
def batch_layout(key: Layout, value: Layout, nt: int) -> BatchLayout:
    """Return the layout of an arrangement's updates: the same object for a watch that asks each round."""
    return BatchLayout(key, value, nt)


def stored_name(name: str) -> str:
    """Return a column's name in a file: the hidden columns' names are not free."""
    return f"_{name}" if name.startswith("_") else name


class FileSink(Protocol):
    """Takes the batch files of the next manifest."""

    def add_batch(self, arrangement: str, shard: int, data: bytes | memoryview) -> tuple[str, Written]:
        """Write a batch file of an arrangement's shard; return its name, and its size and checksum."""
