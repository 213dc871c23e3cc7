"""Batch files: the sorted updates of an arrangement over an interval, as Parquet that any reader can open.

The record's columns have their real types and names (one more `_` in front of those that begin with one), so nothing
of a process's string pool is in the state. Hidden columns: `_time` (`_time0`, ... of a product), `_diff`, and `_key`, what the
rows are first ordered by where that isn't the first key column itself. Rows are in the order of their lanes, in row groups of
16 384, and the file carries the key of each group's first row: looking up keys reads the groups that can have them. It
carries the numbers of hidden columns that have just one, too, which are then not read.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.times import Frontier
from ddcli.expressions.types import FLAGGED, INTEGERS
from ddcli.store.manifest import FileEntry
from ddcli.store.parquet import parquet_bytes
from ddcli.store.verify import check_bytes, check_size, damaged

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.engine.pool import Pool
    from ddcli.expressions.types import Type
    from ddcli.store.state import Transaction

    Matrix = np.ndarray[Any, np.dtype[np.int64]]
    Bytes = np.ndarray[Any, np.dtype[np.bytes_]]

GROUP = 16_384
BLOCK = 8 * GROUP
KEY, DIFF, INDEX = "_key", "_diff", "ddcli"
SIGN = np.int64(-(2**63))
LARGEST = 2**63 - 1
FEW = 1024
"""Rows a chunk below which handling a chunk costs more than copying it."""
READ_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
SLICES = 32
"""Slices up to which they are read one by one: each costs about 1 ms, a scan of 10 M rows for keys about 100."""


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

    @property
    def width(self) -> int:
        return self.record.width + len(self.times) + 1

    def leading(self, keys: Matrix) -> Matrix:
        """Return of keys (n, nk) what they are first ordered by, in one lane: nulls of a flagged column last."""
        flagged = self.first is not None and self.first.nullable and self.first.kind in FLAGGED
        return np.where(keys[:, 0] == 1, LARGEST, keys[:, 1]) if flagged else keys[:, 0]

    def to_frame(self, matrix: Matrix, pool: Pool) -> pl.DataFrame:
        """Return the columns of a file. Block by block: lanes are picked from rows that are in the cache by then, 2.5 times faster."""
        return pl.concat([self._block(matrix[at : at + BLOCK], pool) for at in range(0, len(matrix), BLOCK)])

    def _block(self, matrix: Matrix, pool: Pool) -> pl.DataFrame:
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

    def to_matrix(self, frame: pl.DataFrame, constants: dict[str, int], pool: Pool) -> Matrix:
        """Return the matrix whose columns a file had, bit for bit; `constants` are those that `frame` lacks."""
        if frame.height < FEW * frame.n_chunks():
            frame = frame.rechunk()  # what a lookup found: a few rows of each row group
        matrix = np.empty((frame.height, self.width), np.int64)
        columns = [frame[stored_name(name)].alias(name) for name in self.record.names]
        columns = [
            series.cast(kind.to_polars()) for series, kind in zip(columns, self.record.schema.values(), strict=True)
        ]
        lanes = {}
        for at, name in enumerate((*self.times, DIFF), start=self.record.width):
            if name in constants:
                matrix[:, at] = constants[name]
            else:
                lanes[at] = frame[name]
        # Chunk by chunk, as it was read: one piece of each column would be one more copy, in fresh memory.
        row = 0
        for length in frame.to_series(0).chunk_lengths():
            part = matrix[row : row + length]
            if columns:
                encode(pl.DataFrame([series.slice(row, length) for series in columns]), self.record, pool, part)
            for at, series in lanes.items():
                part[:, at] = series.slice(row, length).to_numpy()
            row += length
        return matrix


def stored_name(name: str) -> str:
    """Return a column's name in a file: the hidden columns' names are not free."""
    return f"_{name}" if name.startswith("_") else name


def batch_bytes(matrix: Matrix, layout: BatchLayout, pool: Pool) -> memoryview:
    """Return the content of a batch file. The matrix is sorted and consolidated. Touches nothing else: threads may do it."""
    assert len(matrix), "an empty batch needs no file"
    nk = layout.key.width
    starts = _in_byte_order(matrix[::GROUP, :nk]).tobytes() if nk else b""
    constants = layout.constants(matrix)
    index = {"group": GROUP, "keys": base64.b64encode(starts).decode(), "constants": constants}
    return parquet_bytes(
        len(matrix),
        lambda start, end: layout.to_frame(matrix[start:end], pool),
        group=GROUP,
        metadata={INDEX: json.dumps(index)},
    )


def write_batch(
    transaction: Transaction,
    arrangement: str,
    shard: int,
    data: memoryview,
    rows: int,
    lower: Frontier,
    upper: Frontier,
    since: Frontier,
) -> FileEntry:
    """Add a batch file of `rows` updates, whose times have been advanced to `since`, to a transaction."""
    name, written = transaction.add_batch(arrangement, shard, data)
    return FileEntry(name, rows, written.size, written.checksum, lower.elements, upper.elements, since.elements)


class StoredBatch:
    """A batch in a file (the engine's protocol `Batch`). Its size is checked at once, its bytes when it is read whole.

    Raises StateError (exit code 4) naming the file when it isn't what was written.
    """

    def __init__(self, path: Path, entry: FileEntry, layout: BatchLayout, pool: Pool) -> None:
        check_size(path, entry)
        self.path = path
        self.entry = entry
        self.rows = entry.rows
        self.lower = Frontier(entry.lower or ())
        self.upper = Frontier(entry.upper)
        self.since = Frontier(entry.since or ())
        self._layout = layout
        self._pool = pool
        self._matrix: Matrix | None = None
        self._starts: Bytes | None = None
        self._group = GROUP
        self._constants: dict[str, int] = {}

    def matrix(self) -> Matrix:
        """Return all updates, loaded once and kept."""
        if self._matrix is None:
            self._index()
            self._matrix = self._load(self._verified())
        return self._matrix

    def for_keys(self, keys: Matrix) -> Matrix:
        """Return a sorted matrix with every update of the sorted, distinct `keys` (n, nk), and perhaps others.

        Few keys, or keys close together, read the row groups that can have them; many all over the file scan it for their
        leading lane. What is in memory anyway is handed over whole.
        """
        if self._matrix is not None or not self._layout.key.width:
            return self.matrix()
        runs = self.runs(keys)
        if len(runs) <= SLICES and sum(end - first for first, end in runs) <= SLICES * self._group:
            scans = [pl.scan_parquet(self.path, glob=False).slice(first, end - first) for first, end in runs]
            return self._load(pl.concat(scans)) if scans else np.empty((0, self._layout.width), np.int64)
        column = KEY if self._layout.hidden_key else stored_name(self._layout.key.names[0])
        wanted = pl.Series(np.unique(self._layout.leading(keys)))
        scan = self._verified()
        return self._load(scan.filter(pl.col(column).is_in(wanted.cast(scan.collect_schema()[column]).implode())))

    def runs(self, keys: Matrix) -> list[tuple[int, int]]:
        """Return the ranges of rows [first, end), whole row groups, outside which no update of these keys is."""
        starts = self._index()
        wanted = _in_byte_order(keys)
        # Rows of a key may begin in the last group that starts before it, and end in the last that starts with it.
        begin = np.maximum(np.searchsorted(starts, wanted, "left") - 1, 0)
        end = np.searchsorted(starts, wanted, "right")
        edges = np.zeros(len(starts) + 1, np.int64)
        np.add.at(edges, begin, 1)
        np.add.at(edges, np.maximum(begin, end), -1)
        covered = np.concatenate([[0], np.cumsum(edges[:-1]) > 0, [0]])
        changes = np.flatnonzero(np.diff(covered)).reshape(-1, 2) * self._group
        return [(first, min(end, self.rows)) for first, end in changes.tolist()]

    def _index(self) -> Bytes:
        """Return the key of each row group's first row, as bytes in the order of keys."""
        if self._starts is None:
            try:
                index = json.loads(pl.read_parquet_metadata(self.path)[INDEX])
                keys = base64.b64decode(index["keys"], validate=True)
                width = self._layout.key.width  # without keys there is nothing to look up
                self._starts = np.frombuffer(keys, dtype=f"S{8 * width}") if width else np.empty(0, "S1")
                self._group = int(index["group"])
                self._constants = {name: int(value) for name, value in index["constants"].items()}
            except (*READ_ERRORS, OSError, ValueError, KeyError, TypeError, AttributeError):
                raise damaged(self.path) from None
            if width and len(self._starts) != -(-self.rows // self._group):
                raise damaged(self.path)
        return self._starts

    def _verified(self) -> pl.LazyFrame:
        check_bytes(self.path, self.entry)
        return pl.scan_parquet(self.path, glob=False, hive_partitioning=False)

    def _load(self, scan: pl.LazyFrame) -> Matrix:
        hidden = [name for name in (*self._layout.times, DIFF) if name not in self._constants]
        columns = [*map(stored_name, self._layout.record.names), *hidden]
        try:
            frame = scan.select(columns).collect()
        except (*READ_ERRORS, OSError):
            raise damaged(self.path) from None
        return self._layout.to_matrix(frame, self._constants, self._pool)


def _in_byte_order(keys: Matrix) -> Bytes:
    """Return keys (n, nk) as byte strings that compare as the rows of lanes do: big-endian, sign bit flipped."""
    flipped = np.ascontiguousarray((keys ^ SIGN).astype(">i8"))
    ordered: Bytes = flipped.view(f"S{8 * keys.shape[1]}").reshape(-1)
    return ordered
