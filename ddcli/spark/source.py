"""The format `dd` of Spark, the options with which a log is read and written, checked, and the readers: as of a time, of changes, and of a stream of them.

The offsets of a stream are frontiers: a batch has the updates between two of them, of closed times only, so that it has the same rows
whenever it is read again. The offset also has the log's identity: if its writer begins it anew, or opens times again, the stream
can't continue.

A log is read with Spark's filters as conditions. Spark applies each filter again to the rows that it gets. So a condition may keep too many rows, never too few: what isn't surely the
same in both (a NaN, a type that Spark lacks) is kept.
"""

from __future__ import annotations

import os
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
from pyspark.sql import datasource

from ddcli.engine.times import Frontier, box
from ddcli.errors import InputError, StateError, UsageError, suggestion
from ddcli.expressions.types import Type
from ddcli.sources.change_log import DIFF, LATEST, TIME, ChangeLog
from ddcli.spark.commits import WriterBatch
from ddcli.spark.parts import ChangeInterval, LogPart, literal, parts_of_changes, parts_of_contents, rows_of
from ddcli.spark.sinks import LogStreamWriter, LogTarget, LogWriter
from ddcli.store.files.access import fs, locate
from ddcli.store.mirrors.spark_table import spark_schema, spark_type, to_arrow
from ddcli.store.state.outputs import read_owned
from ddcli.store.texts import format_time, json_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ddcli.engine.times import Time
    from ddcli.expressions.types import Schema


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, where such a stream is one batch
    SupportsTriggerAvailableNow = object
START = "start"
"""The offset before all times."""
ANEW = "start again with another checkpoint; without `startingTime` its first batch has the contents so far"


class LogBatchReader(datasource.DataSourceReader):
    """A reader of a log as of a time, or of its changes between two times."""

    def __init__(self, options: LogOptions, columns: Schema) -> None:
        self.options, self.columns = options, columns
        self.filters: list[Any] = []

    def partitions(self) -> list[LogPart]:
        options, log = self.options, self.options.open()
        if not options.changes:
            time = None if options.as_of is None else log.at(options.as_of, "asOf")
            closed = log.progress is not None and time is not None and not log.progress.less_equal(time)
            if time is not None:
                log.refuse_before_horizon(time)
            return parts_of_contents(log, time, closed=closed, count=options.partitions)
        lower = options.since and (log.at(options.since, "startingTime"),)
        upper = options.until and box(log.at(options.until, "endingTime")).elements
        closed = log.progress is not None and bool(upper) and Frontier(upper or ()).dominates(log.progress)
        return parts_of_changes(
            log, ChangeInterval(lower or None, upper or ()), closed=closed, count=options.partitions
        )

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        # As of a time, records are summed up before their multiplicity can be compared.
        dropped = None if self.options.changes else partition.diff
        compared = {name: kind for name, kind in self.columns.items() if name != dropped}
        condition = keeping(self.filters, compared)
        for frame in rows_of(partition, self.columns, condition):
            yield from to_arrow(frame, self.columns, partition.path)


class FilteringLogBatchReader(LogBatchReader):
    """A reader that takes Spark's filters. Spark refuses one unless its setting allows it."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:  # noqa: N802 - Spark's name
        """Keep the filters to read fewer rows, and have Spark apply all of them again."""
        self.filters = filters
        return filters


class LogStreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of the changes of a log, as its times are closed."""

    def __init__(self, options: LogOptions, columns: Schema) -> None:
        self.options, self.columns = options, columns
        self._target: dict[str, str] | None = None
        self._time: Schema | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the offset of `startingTime`, or that before all times."""
        since = self.options.since
        time = START if since is None else self._text(self._physical(since, "startingTime"))
        return {"time": time, "log": self._progress()[1]}

    def latestOffset(self, start: dict[str, str] | None = None, limit: Any = None) -> dict[str, str]:  # noqa: N802
        """Return the log's upper; Spark before 4.2 doesn't pass the offset of the last batch."""
        if self._target is not None:
            return self._target
        upper, log = self._progress()
        if start is not None and start["time"] != START and upper < self._physical(start["time"]):
            return start
        return {"time": self._text(upper), "log": log}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Let the stream end with the times that are closed now."""
        self._target = self.latestOffset()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[LogPart]:
        place = str(self.options.path)
        if {start["log"], end["log"]} != {self._progress()[1]}:
            problem = "the log was started again, or opened at earlier times, since the stream has read it"
            raise StateError(problem, place=place, hint=ANEW)
        log = self.options.open()
        lower = None if start["time"] == START else self._physical(start["time"])
        upper = self._physical(end["time"])
        if lower is not None and lower >= upper:
            return []
        horizon = log.reader.listing.horizon
        if horizon is not None and (upper if lower is None else lower) <= horizon:
            problem = f"updates up to {self._text(horizon)} were summed up before the stream had read them"
            raise StateError(problem, place=place, hint=ANEW)
        wanted = ChangeInterval(None if lower is None else (lower,), (upper,))
        return parts_of_changes(log, wanted, closed=True, count=self.options.partitions)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for frame in rows_of(partition, self.columns, None):
            yield from to_arrow(frame, self.columns, partition.path)

    def _progress(self) -> tuple[Time, str]:
        """Return the upper of the log and its identity."""
        place = self.options.path
        upper, owner = read_owned(place)
        if upper is None:
            raise InputError(
                "the log has no progress (`_progress.json`), so a stream can't know which of its times are closed",
                place=str(place),
                hint="stream the output of a pipeline, or a log that Spark writes with `format('dd')`",
            )
        if len(upper) != 1 or len(upper[0]) != 1:
            raise UsageError(
                "a stream needs times of one coordinate", place=str(place), hint="read it with `readChangeFeed`"
            )
        return upper[0], "" if owner is None else f"{owner.state}/{owner.reopenings}/{owner.log}"

    def _kinds(self) -> Schema:
        """Return the time of the log, which is looked up once: Spark asks for the latest offset many times a second."""
        if self._time is None:
            self._time = self.options.open().time
        return self._time

    def _physical(self, text: str, option: str = "offset") -> Time:
        return parse_time(text, self._kinds(), option, "log's")

    def _text(self, time: Time) -> str:
        return json_time(format_time(time, list(self._kinds().values()))) or ""


COMPARED: dict[Any, Callable[[Any, Any], Any]] = {
    datasource.EqualTo: eq,
    datasource.GreaterThan: gt,
    datasource.GreaterThanOrEqual: ge,
    datasource.LessThan: lt,
    datasource.LessThanOrEqual: le,
}
TEXTS: dict[Any, Callable[[pl.Expr, str], pl.Expr]] = {
    datasource.StringStartsWith: lambda column, text: column.str.starts_with(text),
    datasource.StringEndsWith: lambda column, text: column.str.ends_with(text),
    datasource.StringContains: lambda column, text: column.str.contains(text, literal=True),
}
EXACT = {"int8", "int16", "int32", "int64", "float32", "float64", "bool", "date", "string", "decimal", "datetime"}
"""The kinds of values that both compare in the same way, NaN aside."""


def keeping(filters: Iterable[Any], columns: Schema) -> pl.Expr | None:
    """Return the condition of all rows that these filters of Spark may keep; None: all rows may be kept."""
    found = [each for each in (_kept(one, columns) for one in filters) if each is not None]
    return reduce(and_, found) if found else None


def _kept(one: Any, columns: Schema) -> pl.Expr | None:
    """Return the condition of the rows that one filter may keep; None where it has none here."""
    inner = one
    while isinstance(inner, datasource.Not):
        inner = inner.child
    found = _column(inner.attribute, columns)
    if found is None:
        return None
    column, kind = found
    condition = _condition(one, column, kind)
    if condition is None:
        return None
    return condition | column.is_nan() if kind.is_float else condition


def _condition(one: Any, column: pl.Expr, kind: Type) -> pl.Expr | None:
    """Return a filter over a column: null where Spark's is, for values that aren't NaN."""
    if isinstance(one, datasource.Not):
        inner = _condition(one.child, column, kind)
        return None if inner is None else ~inner
    if isinstance(one, datasource.IsNull):
        return column.is_null()
    if isinstance(one, datasource.IsNotNull):
        return column.is_not_null()
    if kind.kind not in EXACT or kind.unit == "ns":
        return None
    if isinstance(one, datasource.In):
        if any(value is None for value in one.value):
            return None  # never false, but null: `not` of it keeps nothing
        return reduce(or_, [column == literal(value, kind) for value in one.value]) if one.value else None
    if isinstance(one, datasource.EqualNullSafe):
        return column.is_null() if one.value is None else column.eq_missing(literal(one.value, kind))
    if one.value is None:
        return None
    if (compare := COMPARED.get(type(one))) is not None:
        return compare(column, literal(one.value, kind))  # type: ignore[no-any-return]
    if kind.kind == "string" and (test := TEXTS.get(type(one))) is not None:
        return test(column, one.value)
    return None


def _column(path: tuple[str, ...], columns: Schema) -> tuple[pl.Expr, Type] | None:
    """Return the column of a path, `a` or a field of a struct `a.b`, with its type; None for one that the log lacks under this name."""
    name, *fields = path
    if name not in columns:
        return None
    column, kind = pl.col(name), columns[name]
    for field in fields:
        inner = dict(kind.fields)
        if field not in inner:
            return None
        column, kind = column.struct.field(field), inner[field]
    return column, kind


NAMES = {
    name.lower(): name
    for name in ("path", "asOf", "readChangeFeed", "startingTime", "endingTime", "partitions", "time", "diff")
}
"""The options of a reader, by their names in lower case: Spark doesn't distinguish them."""
WRITTEN = {name.lower(): name for name in ("path", "time", "diff", "writer", "batch", "after")}
"""The options of a writer."""
SPARKS = {"checkpointlocation", "queryname"}
"""Options of Spark's own that it passes on."""
ARTIFACTS = "SPARK_JOB_ARTIFACT_UUID", "default"
"""The variable with a Connect session's directory, in which Spark starts Python processes, and its value in other sessions."""
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

    Raises UsageError for a relative one in Spark Connect: there Python works in a temporary directory of the session, where a log would be lost.

    >>> located("s3a://lake/sales"), located("file:///srv/sales")
    (ObjectPath('s3://lake/sales'), PosixPath('/srv/sales'))
    """
    for scheme, ours in (("s3a://", "s3://"), ("s3n://", "s3://"), ("file://", ""), ("file:", "")):
        if path.startswith(scheme):
            return locate(Path("/"), ours + path.removeprefix(scheme))
    found = locate(Path.cwd(), path)
    if os.environ.get(*ARTIFACTS) != ARTIFACTS[1] and fs(found).is_local and not path.startswith("/"):
        raise UsageError(
            "a relative path means nothing in Spark Connect",
            place=path,
            hint="write the whole path, as the server and its executors have it",
        )
    return found


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
