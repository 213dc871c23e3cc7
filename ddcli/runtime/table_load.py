"""The data files of large tables of Delta Lake and Iceberg, written by tasks on Spark: no row passes the driver, which commits them.

The files of a log's contents are those that the driver would write: sorted by lanes, so that a record is in one of them. Tasks read the log's files
and distribute the records to ranges of lanes; then a task for each range adds up its records and writes them. No reader finds the files before the commit.
Each task notes the updates that it has sent or that have arrived: rows that Spark's shuffle loses or doubles end the load.
"""

from __future__ import annotations

import pickle
import secrets
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from ddcli.dataclass import dataclass, frozen
from ddcli.engine import kernels
from ddcli.engine.jit.settings import cache_dir
from ddcli.errors import DdError, EngineError
from ddcli.job.sizes import LANE, WORKING
from ddcli.runtime.chain import FAILED, MARK, RESULT, TASK, Row
from ddcli.runtime.placement import HEAVY
from ddcli.runtime.scheduler import TURNS, on_executor
from ddcli.runtime.task import failure, packed_result, result_of
from ddcli.store.files.access import reading
from ddcli.store.files.buckets import adopt_settings, settings_in_use
from ddcli.store.log.writer import DIFF
from ddcli.store.scratch.spill import chunks, from_chunks
from ddcli.store.targets.change import Change
from ddcli.store.targets.file_table import SMALL, gathered, partitioned, start_of
from ddcli.store.targets.mark import TableFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ddcli.engine.lanes import Lanes
    from ddcli.job.request import Request
    from ddcli.store.targets.file_table import Write

SAMPLED = 16
"""The files of a log from whose rows the ranges are estimated."""
DRAWN = 4096
"""The rows of such a file, at most."""


@frozen
class LoadTask:
    """A task for a change of a table: `done` yields the rows for the next step, or the written files, whose names begin with `prefix`."""

    done: Callable[[LoadTask, Iterator[Row]], Iterator[Row]]
    change: Change
    number: int
    prefix: str
    write: Write
    settings: dict[str, str]
    title: str

    def __call__(self, rows: Iterator[Row], attempt: str) -> Iterator[Row]:
        """Do the task: its files have names of their own; after an error send that in place of its rows: Spark would repeat a task that raises."""
        adopt_settings(self.settings)
        try:
            yield from self.done(self, rows)
        except (DdError, OSError) as error:
            yield Row(0, FAILED, 0, 0, packed_result(failure(error)))
        for row in rows:  # after an error there are some
            if row.edge == FAILED:
                yield row

    def written(self, frame: pl.DataFrame, run: int, first: tuple[int, ...] = ()) -> Row:
        """Write a file; return the row for the driver. Another attempt at the task writes a file of another name."""
        piece = TableFile(f"{self.prefix}{secrets.token_hex(8)}.parquet", run, frame.height, first)
        return Row(0, RESULT, 0, 0, pickle.dumps((piece, self.write(piece.name, frame))))


def copy_updates(task: LoadTask, rows: Iterator[Row]) -> Iterator[Row]:
    """Write the updates of some files of a log."""
    for row in rows:
        file, known = pickle.loads(row.chunk)  # noqa: S301
        for frame in gathered(iter([task.change.rows(file, task.change.schema)[known:]])):
            yield task.written(frame, task.number)
        yield _mark(1, 0)


def distribute_records(task: LoadTask, rows: Iterator[Row], cuts: Sequence[tuple[int, ...]]) -> Iterator[Row]:
    """Read some files of a log and distribute their records to ranges of lanes, each from one of `cuts` on."""
    change = task.change
    for row in rows:
        file, _ = pickle.loads(row.chunk)  # noqa: S301
        frame = change.rows(file, change.schema)
        matrix = kernels.consolidate(change.encoded(frame, frame.get_column(DIFF).to_numpy()))
        parts = np.split(matrix, [start_of(matrix, cut) for cut in cuts])
        for at, part in enumerate(parts):
            for turn, chunk in enumerate(chunks(part, change.layout, change.pool)):
                yield Row(at, 0, turn, 0, chunk)
        yield _mark(1, len(matrix))


def write_records(task: LoadTask, rows: Iterator[Row], updates: int) -> Iterator[Row]:
    """Add up the records of some ranges and write them; `updates` is the number of rows of the whole log."""
    change = task.change
    for _, group in groupby(rows, attrgetter("shard")):
        found = []
        for row in group:
            if row.edge in (FAILED, MARK):
                yield row
            else:
                found.append(row.chunk)
        if found:
            arrived = from_chunks(found, change.layout, change.pool)
            yield _mark(0, -len(arrived))
            matrix = kernels.consolidate(arrived, owned=True)
            change.refuse_negative(matrix)
            for part in partitioned(matrix, task.number, updates - len(matrix)):
                yield task.written(change.decoded(part.rows), part.run, part.first)


@dataclass
class TableLoader:
    """The loads of a request's tables by tasks, where its rules for Spark have them there."""

    request: Request

    def wants(self, change: Change) -> bool:
        """Return whether tasks are to write a change: a heavy one of plain rows, in a run that may use Spark."""
        resources = self.request.asked.resources
        if resources.engine == "local" or not (resources.engine == "spark" or resources.spark.ready):
            return False
        size = sum(file.rows for file in change.files) * (change.layout.width + 1) * LANE
        return type(change) is Change and size >= min(HEAVY, resources.memory // WORKING)

    def load(self, change: Change, number: int, prefix: str, write: Write) -> list[tuple[TableFile, Any]]:
        """Have tasks write the files of a change; return each, with the result of `write`. Raises the first error of a task."""
        from ddcli.runtime.placement import start

        request, rows = self.request, sum(file.rows for file in change.files)
        given = (change, number, prefix, write, settings_in_use())
        tasks = [(file, 0 if at else change.known) for at, file in enumerate(change.files)]
        spark = start(request.asked.resources.spark, request.spec.name.value, cache_dir())
        try:
            if change.table:
                most = min(TURNS * spark.slots, max(1, rows // SMALL))
                cuts = cuts_of(change, most)
                steps = [
                    LoadTask(partial(distribute_records, cuts=cuts), *given, "reading the log"),
                    LoadTask(partial(write_records, updates=rows), *given, "writing files of the table"),
                ]
                counts = [min(len(tasks), TURNS * spark.slots), len(cuts) + 1]
            else:
                steps, counts = [LoadTask(copy_updates, *given, "writing files of the table")], [len(tasks)]
            about = f"writing the table of output {change.output}"
            request.asked.progress.begin(about, sum(counts))
            sent = [Row(at, TASK, 0, 0, pickle.dumps(task)) for at, task in enumerate(tasks)]
            done = spark.exchange(steps, sent, counts, about, request.asked.progress)
        finally:
            spark.close()
        for row in done:
            if row.edge == FAILED:
                result = result_of(row.chunk)
                assert result.error is not None, "it failed"
                raise on_executor(result.error, result.host) if result.host else result.error
        marks = [pickle.loads(row.chunk) for row in done if row.edge == MARK]  # noqa: S301
        if (sum(read for read, _ in marks), sum(more for _, more in marks)) != (len(tasks), 0):
            hint = "the run is committed, and the table stays as it was; run again"
            raise EngineError("Spark has lost rows of its shuffle, or has some twice", place=about, hint=hint)
        found = (pickle.loads(row.chunk) for row in done if row.edge == RESULT)  # noqa: S301
        return sorted(found, key=lambda each: (each[0].first, each[0].name))


def _mark(read: int, sent: int) -> Row:
    """Return a row with the number of files of the log that were read, and the number of updates sent on, less those that arrived: in all, each file and none."""
    return Row(0, MARK, 0, 0, pickle.dumps((read, sent)))


def cuts_of(change: Change, count: int) -> tuple[tuple[int, ...], ...]:
    """Return the lanes at which a log's records are cut into some `count` ranges of about equal size, by a sample of its rows."""
    import pyarrow.parquet as pq

    sampled: list[Lanes] = []
    for file in change.files[:: max(1, len(change.files) // SAMPLED)] if count > 1 else ():
        path = change.log / file.name
        with reading(path) as data:
            parquet = pq.ParquetFile(data)
            groups = parquet.num_row_groups
            frame = pl.DataFrame(parquet.read_row_group(secrets.randbelow(groups))) if groups else pl.DataFrame()
        if frame.height:
            frame = change.typed(frame.gather_every(-(-frame.height // DRAWN)).lazy(), change.schema).collect()
            sampled.append(change.encoded(frame, np.ones(frame.height, np.int64)))
    if not sampled:
        return ()
    rows = kernels.consolidate(kernels.concat(sampled))[:, :-1]
    return tuple(dict.fromkeys(tuple(rows[len(rows) * at // count].tolist()) for at in range(1, count)))
