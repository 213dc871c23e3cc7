"""A pipeline between frames of Spark: its inputs are brought to some frames, its outputs are read as others.

A frame becomes a log that the pipeline reads, by the difference between its rows now and before. Spark computes the difference, so no row passes the driver. It is against the contents of
the log as of a closed time, and the commit counts only if no other came in between. So a call that dies has done all or nothing, and the next one makes the log right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ddcli.driver.run import run as run_pipeline
from ddcli.errors import UsageError, suggestion
from ddcli.expressions.tree import in_backticks
from ddcli.job.request import read_request
from ddcli.plan.pipeline_file import parse_spec
from ddcli.sources.change_log import DIFF, TIME, ChangeLog
from ddcli.spark.commits import BEGINNING, WriterBatch, add, has_rows, refuse_partial
from ddcli.spark.source import located
from ddcli.spec.file import read_text
from ddcli.store.files.access import locate
from ddcli.store.mirrors.spark_table import our_type
from ddcli.store.state.outputs import read_owned
from ddcli.store.texts import format_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ddcli.job.summary import RunSummary
    from ddcli.spec.model import Spec


class OutputFrames(Mapping[str, "DataFrame"]):
    """The outputs of a pipeline as frames, each made when it is asked for: the records with their multiplicity `diff`, as they are when Spark reads them."""

    def __init__(self, session: SparkSession, paths: Mapping[str, Path]) -> None:
        self._session, self._paths = session, paths

    def __getitem__(self, name: str) -> DataFrame:
        return self._session.read.format("dd").load(str(self._paths[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class SparkRun(NamedTuple):
    """The result of a run: its summary, and the outputs as frames."""

    summary: RunSummary
    outputs: OutputFrames


def run(
    path: Path | str, session: SparkSession | Any, inputs: Mapping[str, DataFrame] | None = None, **options: Any
) -> SparkRun:
    """Bring inputs of a pipeline to the rows of frames, by difference, then its outputs up to date; `options` are the options of `ddcli.run`.

    Each of these inputs is a log of changes that only this writes, at its `path`. If the run fails, they keep the new rows for the next one. Raises
    a DdError for the pipeline, and Spark's errors for frames.
    """
    path = Path(path)
    spec = parse_spec(read_text(path), str(path))
    places = {name: _log_of(spec, name, path) for name in inputs or {}}
    for name, frame in (inputs or {}).items():
        write_difference(frame, str(places[name]))
    summary = run_pipeline(path, spark=session, **options)
    state = options.get("state")
    outputs = read_request(path, None if state is None else locate(Path.cwd(), str(state))).outputs
    return SparkRun(summary, OutputFrames(session, outputs))


def _log_of(spec: Spec, name: str, path: Path) -> Path:
    """Return the place of an input that may be brought to a frame."""
    given = spec.inputs.get(name)
    if given is None:
        hint = suggestion(name, spec.inputs, f"its inputs are: {', '.join(spec.inputs)}")
        raise UsageError(f"the pipeline has no input '{name}'", place=str(path), hint=hint)
    if given.table or given.arrangement is not None or given.format != "updates":
        raise UsageError(
            f"the input '{name}' is not a log of changes, so no frame can be written to it",
            span=given.name.span,
            hint=f"write it as `{name}: {{path: in/{name}/}}`, a directory that only this call writes",
        )
    return locate(path.absolute().parent, given.path.value)


def write_difference(frame: DataFrame, path: str) -> None:
    """Bring a log to the rows of a frame in one commit, at the present time: rows that it lacks are inserted, others retracted.

    If it has the same rows already, nothing is written. Raises UsageError for a frame with other columns than the log, or with some that a log
    can't have; StateError for a log that a pipeline writes. An error of a task or of the commit is Spark's; then nothing has changed.
    """
    from pyspark.sql import functions

    place = located(path)
    _check(frame, place)
    columns = [in_backticks(name) for name in frame.columns]
    rows = frame.select(*columns, functions.lit(1).cast("bigint").alias(DIFF))
    upper, kept = _contents(frame, place)
    if kept is not None:
        rows = rows.unionByName(kept.select(*columns, (-functions.col(DIFF)).alias(DIFF)))
    summed = rows.groupBy(*columns).agg(functions.sum(DIFF).alias(DIFF)).filter(f"{DIFF} <> 0")
    summed.write.format("dd").mode("append").option("after", upper).save(str(place))


def _check(frame: DataFrame, place: Path) -> None:
    """Refuse columns that a log can't have beside its own, or at all."""
    for field in frame.schema.fields:
        if field.name.lower() in (TIME, DIFF):
            raise UsageError(
                f"the frame has a column '{field.name}', and the log has one of its own",
                place=str(place),
                hint="rename it; changes that have their times are appended with `write.format('dd')`",
            )
        if our_type(field.dataType) is None:
            raise UsageError(
                f"column '{field.name}' is {field.dataType.simpleString()}, a type that records can't have",
                place=str(place),
                hint="leave it out, or cast it",
            )


def _contents(frame: DataFrame, place: Path) -> tuple[str, DataFrame | None]:
    """Return the upper of a log, and its updates before that; None where it has none yet."""
    if not has_rows(place):
        return BEGINNING, None
    log = ChangeLog.open(str(place), place)
    if {*log.columns} != {*frame.columns}:
        raise UsageError(
            f"the frame has the columns {', '.join(frame.columns)}, and the log has {', '.join(log.columns)}",
            place=str(place),
            hint="select the log's columns, or write to a log of its own",
        )
    add(place, [], WriterBatch(""), log.time, DIFF)  # a commit that died before its progress was written counts
    refuse_partial(place, log.time)
    upper, _ = read_owned(place)
    assert upper is not None, "a log with rows has a progress now"
    end = format_time(upper[0], list(log.time.values()))
    changes = frame.sparkSession.read.format("dd").option("readChangeFeed", "true").option("endingTime", end)
    return str(upper[0][0]), changes.load(str(place))  # they are summed up with the frame's rows
