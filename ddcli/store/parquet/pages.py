"""Rows of Parquet files whose row groups are large, read page by page.

polars fetches whole columns of a row group to read some rows of it, and keeps the decoded values in memory for the least
and the largest one. pyarrow reads a row group a page at a time, but only from its beginning on. So a cursor stays
at its row, for the next read of the rows that follow: slices that are read in their order cost one pass over the file.

Of an object in a store, a file here has the columns of the row groups that are asked for.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from ddcli.store.files.access import fs
from ddcli.store.parquet.row_groups import GROUPS, LARGE, MAGIC, changed, footer_of, tail_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from ddcli.store.files.objects import ObjectPath

    Place = tuple[Path, tuple[str, ...]]


BATCH = 1 << 16
"""Rows that are decoded together."""
BUFFER = 1 << 20
"""Bytes of a column that are fetched together."""
LARGEST = 1 << 28
"""The bytes of a footer, at most: a longer one is no footer."""


class GroupSizes(NamedTuple):
    """The most rows, and the most compressed bytes, that a row group of a file has."""

    rows: int
    size: int


class PageReader:
    """Reads rows of files from where it has stopped reading. Threads may ask for rows at once: each has a place of its own.

    A copy for another process begins anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Place, list[_Cursor]] = {}
        self._known: dict[Path, GroupSizes] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, _state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]

    def groups(self, path: Path) -> GroupSizes:
        """Return the sizes of a file's row groups; for one that can't be read, that they have no rows."""
        if path not in self._known:
            self._known[path] = _sizes(path)
        return self._known[path]

    def suits(self, path: Path, rows: int) -> bool:
        """Return whether `rows` rows of a file that `is_large` should be read page by page: they are fewer than a large row group has."""
        groups = self.groups(path)
        return groups.size > LARGE and rows < groups.rows

    def read(self, path: Path, columns: Sequence[str], rows: tuple[int, int]) -> pl.DataFrame | None:
        """Return `rows`, the first one and their number, of some columns; None if pyarrow can't read them: polars may, or reports the error."""
        import pyarrow as pa

        place, (first, count) = (path, tuple(columns)), rows
        try:
            cursor = self._nearest(place, first) or _Cursor(path, list(columns), first)
            frame = cursor.read(first, count)
        except (OSError, pa.ArrowException):
            return None
        if not cursor.ended:
            with self._lock:
                self._places.setdefault(place, []).append(cursor)
        return frame

    def _nearest(self, place: Place, first: int) -> _Cursor | None:
        """Take out the cursor that is nearest before a row."""
        with self._lock:
            waiting = self._places.get(place, [])
            before = [cursor for cursor in waiting if cursor.at <= first]
            if not before:
                return None
            nearest = max(before, key=lambda cursor: cursor.at)
            waiting.remove(nearest)
        return nearest


def _sizes(path: Path) -> GroupSizes:
    """Return the sizes of a file's row groups; that they have no rows where its footer can't be read: others report why."""
    rows, sizes, size = [0], [0], 0

    def add_column(compressed: int) -> int:
        nonlocal size
        size += compressed
        return compressed

    def end_group(count: int) -> int:
        nonlocal size
        rows.append(count)
        sizes.append(size)
        size = 0
        return count

    try:
        changed(tail_of(path, LARGEST), {GROUPS: {1: {3: {7: add_column}}, 3: end_group}})
    except (OSError, ValueError, IndexError, RecursionError):
        return GroupSizes(0, 0)
    return GroupSizes(max(rows), max(sizes)) if min(rows) == min(sizes) == 0 else GroupSizes(0, 0)


class _Cursor:
    """A place in a file: `at` is the row that comes next."""

    def __init__(self, path: Path, columns: list[str], first: int) -> None:
        from pyarrow import parquet

        file = parquet.ParquetFile(path if fs(path).is_local else path.open("rb"), pre_buffer=False, buffer_size=BUFFER)
        self.at = 0
        groups = list(range(file.num_row_groups))
        while groups and self.at + file.metadata.row_group(groups[0]).num_rows <= first:
            self.at += file.metadata.row_group(groups.pop(0)).num_rows
        self.ended = False
        self._columns = columns
        self._schema = file.schema_arrow
        self._batches: Iterator[pa.RecordBatch] = file.iter_batches(
            BATCH, row_groups=groups, columns=columns, use_threads=False
        )
        self._rest: pa.RecordBatch | None = None

    def read(self, first: int, count: int) -> pl.DataFrame:
        """Return rows from `first` on, which is no row before the next; fewer than `count` where the file ends."""
        import pyarrow as pa

        end, found = first + count, []
        while self.at < end:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            self._rest = None
            if batch is None:
                self.ended = True
                break
            skipped = min(max(first - self.at, 0), batch.num_rows)
            taken = batch.slice(skipped, end - self.at - skipped)
            used = skipped + taken.num_rows
            if taken.num_rows:
                found.append(taken)
            if used < batch.num_rows:
                self._rest = batch.slice(used)
            self.at += used
        schema = pa.schema([self._schema.field(name) for name in self._columns])
        table = pa.Table.from_batches(found, found[0].schema if found else schema)
        frame = pl.from_arrow(table.select(self._columns))
        assert isinstance(frame, pl.DataFrame), "a table is a frame"
        return frame


class PartialParquet:
    """A Parquet file of an object store, as a file here without a name: its footer, the columns of row groups that were fetched, and zeros in place of the rest.

    Raises OSError for an object that is no such file.
    """

    def __init__(self, path: ObjectPath) -> None:
        from pyarrow import ArrowException, parquet

        self._path, head = path, path.head()
        self._tag, size = head["e_tag"], int(head["size"])
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with this object
        weakref.finalize(self, self._file.close)
        self._fetched: set[tuple[int, int]] = set()
        try:
            tail = footer_of(size, lambda start, end: bytes(path.read_ranges([(start, end)])[0]))
            self._file.truncate(size)
            for at, data in ((0, MAGIC), (size - len(tail), tail)):
                self._write(at, data)
            self._footer = parquet.read_metadata(self._file)
        except (ValueError, ArrowException) as error:
            raise OSError(str(error)) from None
        self.groups = range(self._footer.num_row_groups)

    def scan(self, columns: Collection[str] = (), group: int | None = None) -> pl.LazyFrame:
        """Return the rows of a row group, or all, after these columns of them are here; the others have no values. Raises OSError if the object is another one now."""
        chunks = [
            (each.dictionary_page_offset or each.data_page_offset, each.total_compressed_size)
            for at in (self.groups if group is None else [group])
            for each in map(self._footer.row_group(at).column, range(self._footer.num_columns))
            if any(each.path_in_schema == name or each.path_in_schema.startswith(f"{name}.") for name in columns)
        ]
        missing = [(start, start + size) for start, size in chunks if (start, start + size) not in self._fetched]
        for (start, _), data in zip(missing, self._path.read_ranges(missing), strict=True):
            self._write(start, data)
        if missing and self._path.head()["e_tag"] != self._tag:
            raise OSError("the object has changed while it was read")
        self._fetched.update(missing)
        self._file.seek(0)
        found = pl.scan_parquet(self._file, glob=False, hive_partitioning=False)
        if group is None:
            return found
        rows = [self._footer.row_group(at).num_rows for at in range(group + 1)]
        return found.slice(sum(rows[:-1]), rows[-1])

    def may_have(self, group: int, values: pl.Series) -> bool:
        """Return whether a row group may have one of some values in the column of their name, by its bounds there."""
        found = self._footer.row_group(group)
        for each in map(found.column, range(found.num_columns)):
            bounds = each.statistics if each.path_in_schema == values.name else None
            if bounds is not None and bounds.has_min_max and not values.has_nulls():
                kinds = {type(each) for each in (bounds.min, bounds.max, values.item(0))}
                return len(kinds) > 1 or values.is_between(bounds.min, bounds.max).any()
        return True

    def _write(self, at: int, data: Any) -> None:
        self._file.seek(at)
        self._file.write(data)
        self._file.flush()
