"""The format `dd` of Spark and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from ddcli.errors import UsageError
from ddcli.sources.change_log import DIFF, TIME
from ddcli.spark.commits import WriterBatch
from ddcli.spark.options import LogOptions, check_options, located
from ddcli.spark.readers import FilteringLogBatchReader, LogBatchReader, LogStreamReader
from ddcli.spark.sinks import LogStreamWriter, LogTarget, LogWriter
from ddcli.store.mirrors.spark_table import spark_schema, spark_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ddcli.expressions.types import Schema

WRITTEN = {name.lower(): name for name in ("path", "time", "diff", "writer", "batch", "after")}
"""The options of a writer."""
SPARKS = {"checkpointlocation", "queryname"}
"""Options of Spark's own that it passes on."""


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
