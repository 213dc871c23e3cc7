"""Plans of DataFrames: the same for a Spark in this process (`classic`) and one behind an address (`connect`).

A plan is some rows, and steps over them. The rows go to the tasks of the first step with its code: a frame of them would be a stage and a shuffle more. Before each later step Spark's
shuffle brings the rows of a shard together, and sorts them. A step runs as `mapInArrow`, so rows pass as Arrow batches, whose chunks Spark neither reads nor changes. It compresses, serves and sorts them, and repeats what fails.
"""

from __future__ import annotations

import pickle
import secrets
from abc import ABC, abstractmethod
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ddcli.dataclass import frozen
from ddcli.runtime.chain import RESULT, TASK, Row
from ddcli.runtime.spark.session import LostError, explained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from ddcli.engine.counts import Progress
    from ddcli.errors import DdError
    from ddcli.runtime.chain import Step
    from ddcli.runtime.spark.session import Function

ROWS = "shard int, edge int, turn int, last int, chunk binary"
BATCH = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
"""The most that a Python process gets at once: a chunk may have some MB, and Spark's default is 10 000 rows. Code that Spark would write and compile for a plan has few rows to save time for.
Adaptive execution would plan anew, and begin a job, after each exchange; the numbers of partitions are given, so it has nothing to adapt."""
ROOM = 16 << 20
"""Bytes of chunks after which a Python process hands over a batch."""


@frozen
class Alone:
    """A step that calls a function for each row: tasks that send no rows."""

    function: Function
    common: bytes
    title: str

    def __call__(self, rows: Iterator[Row], attempt: str) -> Iterator[Row]:
        for row in rows:
            yield Row(row.shard, RESULT, 0, 0, self.function(self.common, row.chunk, f"{attempt}-{row.shard}"))


class Spark(ABC):
    """A Spark that runs tasks and plans. `close` stops one that this process started."""

    session: Any
    """The session: of pyspark, or of its Connect."""
    keeps = 0
    """The bytes that a Python process may have resident between two tasks."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Return the number of tasks that run at once."""

    @property
    @abstractmethod
    def master(self) -> str:
        """Return its address."""

    @abstractmethod
    def task_memory(self, here: int) -> int:
        """Return the bytes of memory of one task; `here` are those that all tasks on this machine may use."""

    @property
    @abstractmethod
    def page(self) -> str | None:
        """Return the address of its web pages, if it has any."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Return whether no executor has started, on a cluster that starts them before tasks ask for any: Spark then waits silently, without a bound."""

    @abstractmethod
    def close(self) -> None:
        """Stop Spark if this process started it."""

    @property
    def version(self) -> str:
        """Return the version of Spark."""
        with explained(self._error):
            return str(self.session.version)

    def run(
        self, function: Function, common: bytes, tasks: Sequence[bytes], about: str, progress: Progress
    ) -> list[bytes]:
        """Return `function(common, task, attempt)` of each task; no two attempts have the same name `attempt`.

        `progress` shows the tasks that have ended, if that is known before all have.
        """
        rows = [Row(at, TASK, 0, 0, task) for at, task in enumerate(tasks)]
        done = self.exchange([Alone(function, common, about)], rows, [len(tasks)], about, progress)
        found = {row.shard: row.chunk for row in done}
        return [found[at] for at in range(len(tasks))]

    def exchange(
        self, steps: Sequence[Step], rows: Sequence[Row], partitions: Sequence[int], about: str, progress: Progress
    ) -> list[Row]:
        """Return the rows of the last step. Each step gets the rows of the one before, the first one `rows`, in so many partitions.

        Spark repeats the work of executors that it loses, but ends a job if the last step has read a part of lost rows, or a process has waited for a lost one in vain.
        Then the whole plan is done once more. That is safe: its attempts at tasks have names of their own, so nobody opens what is left of the first ones.
        """
        try:
            return self._exchanged(steps, rows, partitions, about, progress)
        except LostError:
            return self._exchanged(steps, rows, partitions, about, progress)

    def _exchanged(
        self, steps: Sequence[Step], rows: Sequence[Row], partitions: Sequence[int], about: str, progress: Progress
    ) -> list[Row]:
        tag = f"dd-{secrets.token_hex(4)}"
        with (
            explained(self._error),
            self._set(BATCH),
            self._named(tag, about),
            self._followed(tag, partitions, progress),
        ):
            frame = self.session.range(0, partitions[0], 1, partitions[0])
            given: list[bytes] | None = _distributed(rows, partitions[0])
            for step, count in zip(steps, partitions, strict=True):
                if given is None:
                    frame = frame.repartitionById(count, "shard").sortWithinPartitions("shard", "edge", "turn")
                title = getattr(step, "title", "")
                frame = frame.mapInArrow(_over_batches(pickle.dumps(step), title, self.keeps, given), ROWS)
                given = None
            done = frame.toArrow()
        return [Row(*values) for values in zip(*(column.to_pylist() for column in done.columns), strict=True)]

    @abstractmethod
    def _error(self, error: Exception) -> DdError:
        """Return an error of Spark as one for people."""

    @abstractmethod
    def _named(self, tag: str, about: str) -> AbstractContextManager[None]:
        """Name the jobs that are started meanwhile, by a tag and for people; cancel them when the user interrupts."""

    @abstractmethod
    def _followed(self, tag: str, partitions: Sequence[int], progress: Progress) -> AbstractContextManager[None]:
        """Show the progress of the tagged jobs, of steps with so many tasks."""

    @contextmanager
    def _set(self, settings: dict[str, str]) -> Iterator[None]:
        """Change settings of the session for a while: it may be the caller's."""
        conf = self.session.conf
        before = {name: conf.get(name, None) for name in settings}
        for name, value in settings.items():
            conf.set(name, value)
        try:
            yield
        finally:
            self._reset(before)

    def _reset(self, settings: dict[str, str | None]) -> None:
        for name, value in settings.items():
            if value is None:
                self.session.conf.unset(name)
            else:
                self.session.conf.set(name, value)


def _distributed(rows: Sequence[Row], partitions: int) -> list[bytes]:
    """Return the pickled rows of each partition, in the order that a shuffle brings them in."""
    parts: list[list[Row]] = [[] for _ in range(partitions)]
    for row in sorted(rows, key=itemgetter(0, 1, 2)):
        parts[row.shard % partitions].append(row)
    return [pickle.dumps(part) for part in parts]


def types() -> list[pa.DataType]:
    """Return the types of the columns of rows."""
    import pyarrow as pa

    return [*[pa.int32()] * (len(Row._fields) - 1), pa.binary()]


def _over_batches(
    step: bytes, title: str, keeps: int, given: Sequence[bytes] | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a step as a function over Arrow batches. It is pickled with its code, and imports ddcli only where it runs.

    With `given`, the rows of each partition, the batches have none. The process that it runs in does further tasks, and keeps so many bytes of memory for them:
    fresh memory has to be cleared, which was a third of a loop's time.
    """

    def do(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import pickle

        # A task has one core; libraries would take all.
        for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        try:
            from pyspark import TaskContext

            from ddcli.engine.heap import heap_of_tasks

            heap = heap_of_tasks()
            from ddcli.runtime.spark.plans import in_batches, rows_of

            here = TaskContext.get()
            assert here is not None
            call = pickle.loads(step)  # noqa: S301
            rows = rows_of(batches)
            if given is not None:
                for _ in batches:  # a process that has not read all that Spark sends ends after its task
                    pass
                rows = iter(pickle.loads(given[here.partitionId()]))  # noqa: S301
            yield from in_batches(call(rows, str(here.taskAttemptId())))
            heap.give_back(keeps)
        except Exception as error:
            error.add_note(f"dd: on {os.uname().nodename}")  # pyspark drops Spark's line with the machine
            raise

    do.__name__ = do.__qualname__ = title or do.__name__  # Spark's pages show it
    return do


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    """Yield the rows of batches."""
    for batch in batches:
        *numbers, chunks = batch.columns
        for shard, edge, turn, last, chunk in zip(*(column.to_pylist() for column in numbers), chunks, strict=True):
            yield Row(shard, edge, turn, last, chunk.as_py())


def in_batches(rows: Iterator[Row]) -> Iterator[pa.RecordBatch]:
    """Yield batches of some rows each."""
    import pyarrow as pa

    def batch() -> pa.RecordBatch:
        arrays = [pa.array(column, kind) for column, kind in zip(zip(*held, strict=True), types(), strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=list(Row._fields))

    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.chunk)
        if size >= ROOM:
            yield batch()
            held.clear()
            size = 0
    if held:
        yield batch()
