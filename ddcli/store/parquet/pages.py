"""Rows of Parquet files whose row groups are large, read page by page; and the writer of such files, chunk by chunk.

polars fetches whole columns of a row group to read some rows of it, and keeps the decoded values in memory for the least
and the largest one. pyarrow reads a row group a page at a time, but only from its beginning on. So a cursor stays
at its row, for the next read of the rows that follow: slices that are read in their order cost one pass over the file.
"""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from ddcli.engine.kernels.page_headers import DEPTH, largest_group
from ddcli.store.files.objects import ObjectPath
from ddcli.store.parquet.row_groups import tail_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    Place = tuple[Path, tuple[str, ...]]
    from collections.abc import Callable


LARGE = 8 << 20
"""Compressed bytes of a row group that are too many to fetch for some of its rows."""
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
        """Return whether `rows` rows of a file should be read page by page: they are fewer than a large row group has."""
        try:
            if path.stat().st_size <= LARGE:
                return False
        except OSError:  # its reader reports why
            return False
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
    try:
        footer = np.frombuffer(tail_of(path, LARGEST), np.uint8)
    except (OSError, ValueError):
        return GroupSizes(0, 0)
    found = np.zeros((DEPTH + 1, 3), np.int64)
    if largest_group(footer, found) < 0:
        return GroupSizes(0, 0)
    return GroupSizes(*found[0, :2].tolist())


class _Cursor:
    """A place in a file: `at` is the row that comes next."""

    def __init__(self, path: Path, columns: list[str], first: int) -> None:
        from pyarrow import parquet

        file = parquet.ParquetFile(
            path.open("rb") if isinstance(path, ObjectPath) else path, pre_buffer=False, buffer_size=BUFFER
        )
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


CHUNK = 1 << 17
"""Rows that are encoded together."""
LEVEL = 1
"""The level of zstd that files are written with: its default, 3, makes them a tenth smaller and takes a third longer."""


def parquet_bytes(
    rows: int, chunk: Callable[[int, int], pl.DataFrame], *, group: int, metadata: dict[str, str] | None = None
) -> memoryview:
    """Return the content of a Parquet file of `rows` rows; `chunk(start, end)` returns any range of them.

    Chunks are made and encoded one after the other: as one frame, 10 M rows would take 0.3 GB of fresh memory more, which
    takes as long as to encode them. `metadata` is put into the footer.
    """
    data = io.BytesIO()
    if rows <= CHUNK:
        chunk(0, rows).write_parquet(
            data, compression="zstd", compression_level=LEVEL, statistics=True, row_group_size=group, metadata=metadata
        )
        return memoryview(data.getvalue())

    def chunks(
        with_columns: list[str] | None, _predicate: pl.Expr | None, _rows: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        for start in range(0, rows, CHUNK):
            frame = chunk(start, min(start + CHUNK, rows))
            yield frame.select(with_columns) if with_columns else frame

    register_io_source(chunks, schema=chunk(0, 1).schema).sink_parquet(
        data, compression="zstd", compression_level=LEVEL, statistics=True, row_group_size=group, metadata=metadata
    )
    return memoryview(data.getvalue())
