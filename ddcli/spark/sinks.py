"""The writers of a log: the rows of a task, the commit of a job or of a stream's batch.

Tasks write hidden files beside the log's. The commit, on the driver, copies their row groups into one file, without decoding them, or names the files of a large commit.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
from pyspark import TaskContext
from pyspark.sql import datasource

from ddcli.errors import InputError, UsageError
from ddcli.expressions.types import Type
from ddcli.spark.commits import TaskFile, WriterBatch, add, discard, next_time, read_state
from ddcli.spark.parts import check_versions, versions
from ddcli.store.files.buckets import adopt_settings, settings_in_use
from ddcli.store.files.gate import Files
from ddcli.store.formats.base import Updates
from ddcli.store.log.joint_files import JointFile
from ddcli.store.log.reader import LogReader
from ddcli.store.log.writer import CHUNK, WHOLE, frame_bytes
from ddcli.store.mirrors.spark_table import our_type, spark_type
from ddcli.store.tables.inventory import list_input

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ddcli.expressions.types import Schema
    from ddcli.store.log.schema import LogSchema

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""The properties of a stream's tasks that name it, as long as its checkpoint exists, and the batch."""
INT64, MOMENT = Type("int64"), Type("datetime", unit="us")


class PartMessage(datasource.WriterCommitMessage):
    """The message of a task to the driver: the files that it has written, and the batch."""

    def __init__(self, parts: list[TaskFile], batch: WriterBatch) -> None:
        self.parts, self.batch = parts, batch


class LogTarget(NamedTuple):
    """The log that is written to: its columns, and the time of rows that have none of their own (None: they have)."""

    path: Path
    columns: Schema
    time: str
    kind: Type
    diff: str
    at: int | None
    settings: dict[str, str]
    after: str | None = None
    """The upper that the log must still have at the commit; None: any."""
    planned: tuple[str, str] = versions()
    """The driver's versions, which tasks must have, too."""

    @classmethod
    def open(cls, path: Path, time: str, diff: str, schema: StructType, after: str | None = None) -> LogTarget:
        """Return the log at a path for rows of a schema. Raises DdError where the log has other columns, or belongs to a pipeline."""
        given: Schema = {}
        for field in schema.fields:
            kind = our_type(field.dataType)
            if kind is None:
                raise UsageError(
                    f"column '{field.name}' is {field.dataType.simpleString()}, a type that records can't have",
                    place=str(path),
                    hint="leave it out, or cast it",
                )
            given[field.name] = kind
        known = _known(path, time, diff)
        kind = _time_kind(given.pop(time, None), known, path, time)
        timed = time in schema.fieldNames()
        if diff in given and not given.pop(diff).is_integer:
            raise UsageError(
                f"the column '{diff}' is not an integer",
                place=str(path),
                hint="a diff is how often the record is added",
            )
        columns = given if known is None else _agreed(given, known, path)
        at = None if timed else next_time(read_state(path, {time: kind}, diff), kind)
        return cls(path, columns, time, kind, diff, at, settings_in_use(), after)

    def write(self, batches: Iterable[pa.RecordBatch], batch: WriterBatch) -> list[TaskFile]:
        """Write rows to hidden files beside the log's, mostly one; return them. Raises InputError for rows that a log can't have."""
        check_versions(self.planned, str(self.path))
        adopt_settings(self.settings)
        files = Files()
        files.make_directory(self.path)
        done: list[TaskFile] = []
        joint: JointFile | None = None
        bounds: list[tuple[int, int]] = []

        def finish(joint: JointFile) -> None:
            least, greatest = (bound(each) for bound, each in zip((min, max), zip(*bounds, strict=True), strict=True))
            done.append(TaskFile(joint.path, joint.finish(), least, greatest))
            bounds.clear()

        try:
            for frame in _gathered(self._updates(each) for each in batches):
                joint = joint or JointFile(files, self.path / batch.hidden(uuid.uuid4().hex))
                times = frame[self.time].to_physical().cast(pl.Int64)
                bounds.append((times.min(), times.max()))  # type: ignore[arg-type]
                joint.add(frame_bytes(frame, {self.time: self.kind}))
                if joint.size > WHOLE:
                    finish(joint)
                    joint = None
            if joint is not None:
                finish(joint)
        except BaseException:
            if joint is not None:
                joint.close()
                files.remove(joint.path)
            files.remove_all([part.path for part in done])
            raise
        return done

    def commit(self, parts: Sequence[TaskFile], batch: WriterBatch) -> None:
        """Add the rows of these parts to the log at once, unless the batch is in it already."""
        adopt_settings(self.settings)
        add(self.path, parts, batch, {self.time: self.kind}, self.diff, self.after)

    def _updates(self, batch: pa.RecordBatch) -> pl.DataFrame:
        """Return rows as updates of the log, in its types. Those whose diff is zero are none."""
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        if self.at is not None:
            frame = frame.with_columns(pl.lit(self.at, pl.Int64).alias(self.time))
        if self.diff not in frame.columns:
            frame = frame.with_columns(pl.lit(1, pl.Int64).alias(self.diff))
        for name in (self.time, self.diff):
            if frame[name].null_count():
                raise InputError(f"the column '{name}' has a null", place=str(self.path), hint="each row must have one")
        types = {**self.columns, self.time: self.kind, self.diff: INT64}
        try:
            moment = pl.col(self.time).cast(pl.Int32 if self.kind.kind == "date" else pl.Int64)
            frame = frame if self.at is None else frame.with_columns(moment)
            return frame.select(pl.col(name).cast(kind.to_polars()) for name, kind in types.items()).filter(
                pl.col(self.diff) != 0
            )
        except pl.exceptions.PolarsError as error:
            raise InputError(
                f"a value doesn't fit its column of the log: {error}",
                place=str(self.path),
                hint="write values of the log's types",
            ) from None


def _gathered(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield frames in larger ones, of a row group each."""
    held: list[pl.DataFrame] = []
    for frame in frames:
        if frame.height:
            held.append(frame)
        if sum(each.height for each in held) >= CHUNK:
            yield pl.concat(held)
            held = []
    if held:
        yield pl.concat(held)


def _known(path: Path, time: str, diff: str) -> LogSchema | None:
    """Return the columns of a log; None where it has no file yet."""
    if not path.exists() and not path.is_dir():
        return None
    listing = list_input(str(path), path)
    return LogReader(listing, Updates((time,), diff=diff)).schema if listing.files else None


def _time_kind(given: Type | None, known: LogSchema | None, path: Path, name: str) -> Type:
    """Return the type of a log's time, which rows of this type have, or none."""
    if given is not None and not given.is_integer and given.kind not in ("date", "datetime"):
        raise UsageError(
            f"the time column '{name}' is {given}", place=str(path), hint="a time is an integer, a date or a timestamp"
        )
    found = None if given is None else INT64 if given.is_integer else given
    if known is None:
        return found or MOMENT
    (kind,) = known.time.values()
    if found is not None and spark_type(found) != spark_type(kind):
        raise UsageError(
            f"the time column '{name}' is {found}, and the log's is {kind}",
            place=str(path),
            hint="cast it to the log's type",
        )
    return kind


def _agreed(given: Schema, known: LogSchema, path: Path) -> Schema:
    """Return the columns of a log if rows have just these."""
    if known.diff is False:
        raise UsageError(
            "the log's files have no column for the diff",
            place=str(path),
            hint="write to a log of its own, in another directory",
        )
    theirs = {name: spark_type(kind) for name, kind in known.columns.items()}
    ours = {name: spark_type(kind) for name, kind in given.items()}
    if theirs != ours:
        shown = [", ".join(f"{name} {kind.simpleString()}" for name, kind in each.items()) for each in (ours, theirs)]
        raise UsageError(
            f"the rows have the columns {shown[0]}, and the log has {shown[1]}",
            place=str(path),
            hint="select and cast the log's columns",
        )
    return known.columns


class LogWriter(datasource.DataSourceArrowWriter):
    """The writer of a job."""

    def __init__(self, target: LogTarget, batch: WriterBatch | None) -> None:
        self.target, self.batch = target, batch or WriterBatch(uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartMessage:
        return PartMessage(self.target.write(iterator, self.batch), self.batch)

    def commit(self, messages: list[Any]) -> None:
        """Add the rows of all tasks."""
        self.target.commit(_parts(messages), self.batch)

    def abort(self, messages: list[Any]) -> None:
        """Remove the files of tasks."""
        discard(self.target.path, _parts(messages), self.batch)


class LogStreamWriter(datasource.DataSourceStreamArrowWriter):
    """The writer of a stream. Its tasks know the stream and its batch, which stay the same when Spark begins again."""

    def __init__(self, target: LogTarget) -> None:
        self.target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartMessage:
        task = TaskContext.get()
        assert task is not None, "only tasks write"
        batch = WriterBatch(str(task.getLocalProperty(QUERY)), int(task.getLocalProperty(BATCH)))
        return PartMessage(self.target.write(iterator, batch), batch)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Add the rows of a batch, unless an earlier attempt has done so. One without tasks has none."""
        for batch in {each.batch for each in messages if each}:
            self.target.commit(_parts(messages), batch)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Remove the files of tasks."""
        for batch in {each.batch for each in messages if each}:
            discard(self.target.path, _parts(messages), batch)


def _parts(messages: Iterable[PartMessage | None]) -> list[TaskFile]:
    return [part for each in messages if each is not None for part in each.parts]
