"""The change that a table has to take in: the updates of a log's files after those that it has, or of all files in place of its contents."""

from __future__ import annotations

import io
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass
from ddcli.engine import kernels
from ddcli.engine.lanes import Layout, decode, encode
from ddcli.engine.pool import Pool
from ddcli.errors import EngineError
from ddcli.expressions.moments import in_utc
from ddcli.expressions.types import Type, in_order
from ddcli.privacy import previewed
from ddcli.store.log.writer import in_columns
from ddcli.store.state.verify import read_checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ddcli.engine.columns import Lanes
    from ddcli.expressions.types import RowOrder, Schema
    from ddcli.store.state.entries import FileEntry

DIFF = "diff"
MOST = 1 << 32
"""The rows of a table, at most: a record is written as often as its multiplicity."""


@dataclass
class Change:
    """Some files of an output's log, oldest first, without the first `known` rows of the first one, which the table has.

    `whole`: these are all files, and replace the table's contents.

    `table`: it has the contents of the log, without times. `schema` are the columns of the contents, `time` the columns of times. `order` is
    that in which contents are written. `former` are the columns that the table has by its last commit, if these are others: it gets the new ones first.
    `footer` is metadata for files of the table.
    """

    output: str
    log: Path
    files: Sequence[FileEntry]
    schema: Schema
    time: Schema
    secret: bytes
    whole: bool
    table: bool
    known: int = 0
    order: RowOrder = ()
    former: Schema | None = None
    footer: Mapping[str, str] = field(default_factory=dict)
    layout: Layout = field(init=False)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.layout, self.pool = Layout(self.schema), Pool(self.secret)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task on another machine gets: a pool of its own, without values."""
        return {**self.__dict__, "pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.pool = Pool(self.secret)

    @property
    def columns(self) -> Schema:
        """The columns that the table has."""
        return self.schema if self.table else self.schema | self.time | {DIFF: Type("int64")}

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the updates of each file: data, times, diff."""
        for at, file in enumerate(self.files):
            yield self.rows(file, self.schema)[0 if at else self.known :]

    def rows(self, file: FileEntry, schema: Schema, where: pl.Expr | bool = True) -> pl.DataFrame:
        """Return the updates of a file, whose records have these columns. Of rows that don't fulfil a condition only its columns are decoded."""
        frame = self.typed(pl.scan_parquet(io.BytesIO(read_checked(self.log / file.name, file))), schema)
        return (frame if where is True else frame.filter(where)).collect()

    def typed(self, frame: pl.LazyFrame, schema: Schema) -> pl.LazyFrame:
        """Return updates of a log, whose records have these columns, with the types of a table."""
        # The log has the zone of the pipeline, tables have instants of UTC.
        there = frame.collect_schema().names()
        kinds = {name: kind for name, kind in schema.items() if in_utc(kind) == kind or name not in there}
        return in_columns(frame, kinds).select(*schema, *self.time, DIFF)

    def updates(self) -> Lanes:
        """Return the updates of all files without their times, as a consolidated matrix `[data | diff]`.

        For a whole log these are the contents, and a record with a negative multiplicity is refused (EngineError).
        """
        summed = np.empty((0, self.layout.width + 1), np.int64)
        for frame in self.frames():
            part = self.encoded(frame, frame.get_column(DIFF).to_numpy())
            summed = kernels.consolidate(kernels.concat([summed, part]))
        if self.whole:
            self.refuse_negative(summed)
        return summed

    def difference(self, frames: Iterable[pl.DataFrame]) -> Lanes:
        """Return the difference of a table with these rows to the contents of a whole log, as `Target.difference` does."""
        matrix = self.updates()
        for frame in frames:
            matrix = self.added(matrix, frame, -1)
        return matrix

    def added(self, matrix: Lanes, frame: pl.DataFrame, times: int) -> Lanes:
        """Return a matrix, consolidated, with some rows of the table added to it this many times each."""
        rows = self.encoded(frame, np.full(frame.height, times, np.int64))
        return kernels.consolidate(kernels.concat([matrix, rows]))

    def encoded(self, frame: pl.DataFrame, diffs: np.ndarray) -> Lanes:
        """Return rows with their diffs as a matrix. A file of the table may lack columns that came later."""
        frame = in_columns(frame, self.schema)
        matrix = np.empty((frame.height, self.layout.width + 1), np.int64)
        matrix[:, -1] = diffs
        encode(frame, self.layout, self.pool, matrix)
        return matrix

    def refuse_negative(self, matrix: Lanes) -> None:
        """Refuse records with a negative multiplicity (EngineError), and more rows than a table may have."""
        negative = matrix[matrix[:, -1] < 0]
        if len(negative):
            raise self.negative_error(self.shown(negative))
        if matrix[:, -1].sum(dtype=object) > MOST:
            raise EngineError(f"output '{self.output}' has more than {MOST} rows, and a table can't hold them")

    def negative_error(self, shown: str) -> EngineError:
        """Return the error for a record with a negative multiplicity."""
        return EngineError(
            f"output '{self.output}' has a record with a negative multiplicity, and a table can't hold it: {shown}",
            hint="the run is committed, and the table stays as it was; retract no more than there is, then run again",
        )

    def check_keys(self, added: Lanes, unique: Sequence[str], place: str) -> None:
        """Refuse new rows for which a key is not enough: two of one key, or one of a key with a null."""
        if not unique or not len(added):
            return
        keys = decode(added, self.layout, self.pool).select(unique)
        twice = keys.is_duplicated() | pl.Series(added[:, -1] > 1)
        empty = keys.select(pl.any_horizontal(pl.all().is_null())).to_series()
        for wrong, problem in ((empty, "a record has a null in its key"), (twice, "several records have one key")):
            if wrong.any():
                row = added[[np.flatnonzero(wrong.to_numpy())[0]]]
                raise self.key_error(problem, self.shown(row, unique), place)

    def key_error(self, problem: str, shown: str, place: str) -> EngineError:
        """Return the error for a record whose key is not enough."""
        hint = "the run is committed, and the table stays as it was; name other columns under `key`, or leave it out"
        return EngineError(f"{problem}: {shown}", place=place, hint=hint)

    def shown(self, matrix: Lanes, columns: Sequence[str] = ()) -> str:
        """Return the first record of a matrix, or these of its columns, as a message shows it."""
        record = decode(matrix[:1], self.layout, self.pool).select(columns or pl.all()).row(0, named=True)
        return ", ".join(f"{name} = {value}" for name, value in previewed(record).items())

    def decoded(self, matrix: Lanes) -> pl.DataFrame:
        """Return the records of a matrix as rows, each as often as its multiplicity, in the order of the contents if they have one."""
        if len(matrix) and (matrix[:, -1] != 1).any():
            matrix = np.repeat(matrix, matrix[:, -1], axis=0)
        return in_order(decode(matrix, self.layout, self.pool), self.order)
