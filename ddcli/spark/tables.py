"""Tables of Spark's catalogs, and other frames, as logs that pipelines read: by the difference between their rows now and before.

Spark computes the difference, so no row passes the driver. It is against the contents of the log as of a closed time, and the commit counts only
if no other came in between. So a call that dies has done all or nothing, and the next one makes the log right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddcli.errors import UsageError
from ddcli.sources.change_log import DIFF, TIME, ChangeLog
from ddcli.spark.commits import BEGINNING, WriterBatch, add, refuse_partial
from ddcli.spark.options import located
from ddcli.store.log.progress import read_owned
from ddcli.store.mirrors.spark_table import our_type
from ddcli.store.time_text import format_time

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame


def write_difference(frame: DataFrame, path: str) -> None:
    """Bring a log to the rows of a frame in one commit, at the present time: rows that it lacks are inserted, others retracted.

    If it has the same rows already, nothing is written. Raises UsageError for a frame with other columns than the log, or with some that a log
    can't have; StateError for a log that a pipeline writes. An error of a task or of the commit is Spark's; then nothing has changed.
    """
    from pyspark.sql import functions

    place = located(path)
    _check(frame, place)
    columns = [_quoted(name) for name in frame.columns]
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
    """Return the upper of a log, and its contents before that; None where it has none yet."""
    if not place.is_dir() or not any(each.name.endswith(".parquet") for each in place.iterdir()):
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
    last = format_time((upper[0][0] - 1,), list(log.time.values()))
    return str(upper[0][0]), frame.sparkSession.read.format("dd").option("asOf", last).load(str(place))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
