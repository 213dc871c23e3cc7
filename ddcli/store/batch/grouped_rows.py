"""Rows of batch files of older versions (formats 3 and 4 of the manifest): row groups of 8192 rows, each checked and decoded as a whole.

They come to the layout of today as they are compacted. Their index: `group_index`.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.arrow import series_of
from ddcli.store.state.verify import damaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ddcli.engine.pool import Pool
    from ddcli.store.batch.file import BatchFile
    from ddcli.store.batch.group_index import GroupIndex
    from ddcli.store.batch.layout import BatchLayout

    Matrix = np.ndarray[Any, np.dtype[np.int64]]

TOGETHER = 1 << 19
"""Rows that are read together; of strings they take 100 MB."""


class GroupedRows:
    """The rows of a file of an older version."""

    def __init__(self, file: BatchFile, index: GroupIndex, layout: BatchLayout) -> None:
        self._file = file
        self._index = index
        self._layout = layout

    def parts(self, groups: Sequence[int], pool: Pool, room: Matrix | None = None) -> Iterator[Matrix]:
        """Yield all rows of some row groups, in order; they are in `room`, if it is given."""
        row = 0
        for frame in self._frames(groups):
            height = frame.height
            matrix = np.empty((height, self._layout.width), np.int64) if room is None else room[row : row + height]
            row += height
            self._layout.fill(matrix, frame, self._index.constants, pool)
            yield matrix

    def for_keys(self, groups: Sequence[int], keys: Matrix, wanted: Matrix, pool: Pool) -> Iterator[Matrix]:
        """Yield the rows in these row groups with one of the sorted, distinct keys; `wanted` are those numbers of the leading column."""
        leads = self._layout.leading_column
        assert leads is not None, "rows without a key have no order to look them up by"
        for frame in self._frames(groups, leads):
            leading = np.ascontiguousarray(frame[leads].cast(pl.Int64).to_numpy()).reshape(-1, 1)
            bounds, count = kernels.locate(_between(wanted, leading[0], leading[-1]).reshape(-1, 1), [leading])
            if count:
                rows = frame[series_of("", _rows(bounds))] if count < frame.height else frame
                matrix = np.empty((count, self._layout.width), np.int64)
                self._layout.fill(matrix, rows, self._index.constants, pool)
                yield kernels.gather(matrix, keys.shape[1], keys)

    def _frames(self, groups: Sequence[int], leading: str | None = None) -> Iterator[pl.DataFrame]:
        """Yield the columns that a matrix needs, and the leading one, of row groups, in order.

        The file is mapped, and what is mapped is checked, decoded and given back at once: it is no memory of ours.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = dict.fromkeys(self._layout.stored)
        for name in self._index.constants:
            columns.pop(name)
        if leading is not None:
            columns[leading] = None
        starts = np.concatenate([[0], self._index.ends[:-1]])
        together = max(1, TOGETHER // self._index.group)
        with self._file.mapped() as data:
            view = memoryview(data)
            file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(view)), metadata=self._file.metadata, pre_buffer=False)
            for at in range(0, len(groups), together):
                some = list(groups[at : at + together])
                self._file.fetch(data, starts[some], self._index.ends[some])
                for group in some:
                    if crc32(view[int(starts[group]) : int(self._index.ends[group])]) != self._index.checksums[group]:
                        raise damaged(self._file.path)
                try:
                    table = file.read_row_groups(some, list(columns), use_threads=False)
                except (pa.ArrowException, OSError):
                    raise damaged(self._file.path) from None
                self._file.groups_read += len(some)
                data.madvise(mmap.MADV_DONTNEED)
                frame = pl.from_arrow(table)
                assert isinstance(frame, pl.DataFrame)
                yield frame


def _between(wanted: Matrix, first: Matrix, last: Matrix) -> Matrix:
    """Return those of sorted numbers that are in a closed range."""
    return wanted[np.searchsorted(wanted, first[0]) : np.searchsorted(wanted, last[0], "right")]


def _rows(bounds: Matrix) -> Matrix:
    """Return the numbers of the rows in ranges [begin, end), which ascend.

    >>> _rows(np.array([[2, 4], [4, 4], [7, 8]])).tolist()
    [2, 3, 7]
    """
    counts = bounds[:, 1] - bounds[:, 0]
    before = np.cumsum(counts) - counts
    rows: Matrix = np.arange(counts.sum()) + np.repeat(bounds[:, 0] - before, counts)
    return rows
