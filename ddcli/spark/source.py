"""The format `dd` of Spark, and the options with which a log is read and written, checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import datasource

from ddcli.engine.times import box
from ddcli.errors import UsageError, suggestion
from ddcli.expressions.types import Type
from ddcli.sources.change_log import DIFF, LATEST, TIME, ChangeLog
from ddcli.spark.commits import WriterBatch
from ddcli.spark.readers import FilteringLogBatchReader, LogBatchReader, LogStreamReader
from ddcli.spark.sinks import LogStreamWriter, LogTarget, LogWriter
from ddcli.store.files.objects import locate
from ddcli.store.mirrors.spark_table import spark_schema, spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema
    from ddcli.store.state.entries import Times

NAMES = {
    name.lower(): name
    for name in ("path", "asOf", "readChangeFeed", "startingTime", "endingTime", "partitions", "time", "diff")
}
"""The options of a reader, by their names in lower case: Spark doesn't distinguish them."""
WRITTEN = {name.lower(): name for name in ("path", "time", "diff", "writer", "batch", "after")}
"""The options of a writer."""
SPARKS = {"checkpointlocation", "queryname"}
"""Options of Spark's own that it passes on."""
TRUTHS = {"true": True, "false": False}
INT64 = Type("int64")


class LogOptions(NamedTuple):
    """The log that is read, and which rows of it."""

    path: Path
    changes: bool
    as_of: str | None
    since: str | None
    until: str | None
    partitions: int | None
    time: tuple[str, ...]
    diff: str

    @classmethod
    def parse(cls, given: Mapping[str, str], *, stream: bool) -> LogOptions:
        """Return the options of a reader. Raises UsageError for an unknown option, or one that doesn't fit the others."""
        check_options(given, NAMES, "read")
        changes = TRUTHS.get(given.get("readchangefeed", "false").lower())
        if changes is None:
            raise UsageError(f"readChangeFeed is '{given['readchangefeed']}'", hint="write `true` or `false`")
        since, until, as_of = given.get("startingtime"), given.get("endingtime"), given.get("asof")
        if stream and (until or as_of):
            raise UsageError("a stream has no endingTime and no asOf", hint="read the log with `spark.read`")
        if not stream and not changes and (since or until):
            raise UsageError(
                "startingTime and endingTime are a range of changes", hint="add `.option('readChangeFeed', 'true')`"
            )
        if changes and as_of:
            raise UsageError(
                "asOf is one time, readChangeFeed returns the changes of a range",
                hint="give startingTime and endingTime instead",
            )
        return cls(
            located(given["path"]),
            stream or changes,
            None if as_of == LATEST else as_of,
            since,
            until,
            _count(given.get("partitions")),
            tuple(filter(None, (name.strip() for name in given.get("time", "").split(",")))),
            given.get("diff", DIFF),
        )

    def open(self) -> ChangeLog:
        """Return the log. Raises DdError where there is none, or it can't be read."""
        return ChangeLog.open(str(self.path), Path("/"), time=self.time or None, diff=self.diff)

    def columns(self) -> Schema:
        """Return the columns of the rows: the records' columns, the time of changes, and the diff."""
        log = self.open()
        return {**log.columns, **(log.time if self.changes else {}), self.diff: INT64}

    def time_of(self, log: ChangeLog, name: str, text: str) -> Time:
        """Return the time that an option has."""
        return log.at(text, name)

    def box_of(self, log: ChangeLog, name: str, text: str) -> Times:
        """Return the frontier that closes the times before the one that an option has."""
        return box(log.at(text, name)).elements


def check_options(given: Mapping[str, str], known: Mapping[str, str], what: str) -> None:
    """Refuse an option that doesn't exist, and a missing path."""
    for name in given:
        if name not in known:
            hint = suggestion(name, [*known.values()], f"the options are: {', '.join(known.values())}")
            raise UsageError(f"the format dd has no option '{name}' to {what} with", hint=hint)
    if not given.get("path"):
        raise UsageError(
            "the format dd needs the path of a log", hint="write `.load('out/sales')` or `.save('in/sales')`"
        )


def located(path: str) -> Path:
    """Return the path of a log, as Spark's users write it; a relative one is below the driver's working directory.

    >>> located("s3a://lake/sales"), located("file:///srv/sales")
    (ObjectPath('s3://lake/sales'), PosixPath('/srv/sales'))
    """
    for scheme, ours in (("s3a://", "s3://"), ("s3n://", "s3://"), ("file://", ""), ("file:", "")):
        if path.startswith(scheme):
            return locate(Path("/"), ours + path.removeprefix(scheme))
    return locate(Path.cwd(), path)


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"partitions is '{text}'", hint="write the number of tasks that read the log, 1 or more")
    return int(text)


class LogSource(datasource.DataSource):
    """The format `dd`: a log as a table, or its changes. Spark makes one for each query."""

    @classmethod
    def name(cls) -> str:
        return "dd"

    def schema(self) -> StructType:
        # For a stream, too: Spark asks before it says which it will be, so a stream's options have to name the changes.
        return spark_schema(self._options().columns())

    def reader(self, schema: StructType) -> LogBatchReader:
        options = self._options()
        return LogBatchReader(options, self._chosen(options, schema))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name
        options = self._options(stream=True)
        return LogStreamReader(options, self._chosen(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        target = self._target(schema, overwrite=overwrite)
        writer, number = self.options.get("writer"), self.options.get("batch")
        if (writer is None) != (number is None) or (number is not None and not number.isdecimal()):
            raise UsageError(
                "a writer and the number of its batch belong together",
                place=str(target.path),
                hint="give both: `.option('writer', 'orders').option('batch', batch_id)`; a batch is written once",
            )
        return LogWriter(
            target, WriterBatch(writer, int(number)) if writer is not None and number is not None else None
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogStreamWriter:  # noqa: N802 - Spark's name
        return LogStreamWriter(self._target(schema, overwrite=overwrite))

    def _target(self, schema: StructType, *, overwrite: bool) -> LogTarget:
        """Return the log that is to be written."""
        options = {name: value for name, value in self.options.items() if name not in SPARKS}
        check_options(options, WRITTEN, "write")
        path = located(options["path"])
        if overwrite:
            raise UsageError(
                "a log is only appended to",
                place=str(path),
                hint="write with `.mode('append')`, or `.outputMode('append')`; rows with a negative `diff` retract others",
            )
        return LogTarget.open(path, options.get("time", TIME), options.get("diff", DIFF), schema, options.get("after"))

    def _options(self, *, stream: bool = False) -> LogOptions:
        return LogOptions.parse({**self.options}, stream=stream)

    def _chosen(self, options: LogOptions, schema: StructType) -> Schema:
        """Return the columns of the log that Spark wants. Raises UsageError for others."""
        columns = options.columns()
        for field in schema.fields:
            kind = columns.get(field.name)
            if kind is None:
                raise UsageError(
                    f"the log has no column '{field.name}'",
                    place=str(options.path),
                    hint=f"the columns are: {', '.join(columns)}",
                )
            if spark_type(kind) != field.dataType:
                raise UsageError(
                    f"column '{field.name}' is {spark_type(kind).simpleString()}, not {field.dataType.simpleString()}",
                    place=str(options.path),
                    hint="leave `.schema(...)` out, or name the log's own types in it",
                )
        names = {field.name: columns[field.name] for field in schema.fields}
        if options.diff not in names:
            raise UsageError(
                f"the schema lacks '{options.diff}', without which a record's multiplicity is unknown",
                place=str(options.path),
                hint=f"add `{options.diff} bigint` to it",
            )
        return names


class FilteringLogSource(LogSource):
    """The format `dd` of a session whose setting allows sources in Python to take filters."""

    def reader(self, schema: StructType) -> Any:
        options = self._options()
        return FilteringLogBatchReader(options, self._chosen(options, schema))
