"""Batch files: the sorted updates of an arrangement over an interval, as Parquet that any reader can open.

The record's columns have their real types and names (one more `_` in front of those that begin with one), so nothing
of a process's string pool is in the state. Hidden columns: `_time` (`_time0`, ... of a product), `_diff`, and `_key`, the first
lane in the order of rows if that isn't the first key column itself. Rows are in the order of their lanes, in pages of
512, and the file has the first key of each page: a lookup of keys reads the pages that can have them. It also
has the values of hidden columns with a single one, which are then not read. `file` reads and checks it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ddcli.engine import kernels
from ddcli.engine.arrow import series_of
from ddcli.engine.lanes import Layout, decode
from ddcli.expressions.types import FLAGGED, INTEGERS, POOLED, Type, parse_schema
from ddcli.store.batch.file import footer_checksum
from ddcli.store.state.entries import FileEntry

if TYPE_CHECKING:
    from typing import Self

    from ddcli.engine.columns import Matrix
    from ddcli.engine.pool import Pool
    from ddcli.engine.times import Frontier
    from ddcli.store.state.entries import ArrangementEntry
    from ddcli.store.state.transaction import FileSink


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


def write_batch(
    transaction: FileSink,
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
