"""The difference between the rows of a table of Spark, or of a query, now and in the last run, as updates.

Spark computes the difference, and its tasks write the files of the mirror, so no row passes this process. The rows of the last run are the rows of the
mirror: tasks read them as all files of a state are read, whatever Spark knows of its place.

Spark has no unsigned integers and no nanoseconds: the former become wider integers, and of the latter a value that microseconds don't
hold is an error, never another value.
"""

from __future__ import annotations

import time as clock
import uuid
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyspark.sql import types

from ddcli.errors import EngineError, InputError, first_line
from ddcli.expressions.tree import in_backticks
from ddcli.expressions.types import Type
from ddcli.store.files.access import fs, locate
from ddcli.store.files.buckets import adopt_settings, settings_in_use
from ddcli.store.files.gate import Files, checksum, temporary
from ddcli.store.log.writer import in_columns
from ddcli.store.mirrors.cancellation import DIFF
from ddcli.store.mirrors.mirror import MirrorCursor, UnknownChange, write_frames
from ddcli.store.mirrors.source import MICRO, TableSource, frames_of, labelled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from ddcli.expressions.types import Schema
    from ddcli.store.mirrors.mirror import Additions


TYPES: dict[str, tuple[types.DataType, pa.DataType]] = {
    "int8": (types.ByteType(), pa.int8()),
    "int16": (types.ShortType(), pa.int16()),
    "int32": (types.IntegerType(), pa.int32()),
    "int64": (types.LongType(), pa.int64()),
    "uint8": (types.ShortType(), pa.int16()),
    "uint16": (types.IntegerType(), pa.int32()),
    "uint32": (types.LongType(), pa.int64()),
    "uint64": (types.DecimalType(20, 0), pa.decimal128(20, 0)),
    "float32": (types.FloatType(), pa.float32()),
    "float64": (types.DoubleType(), pa.float64()),
    "bool": (types.BooleanType(), pa.bool_()),
    "date": (types.DateType(), pa.date32()),
    "time": (types.StringType(), pa.string()),
    "string": (types.StringType(), pa.string()),
    "binary": (types.BinaryType(), pa.binary()),
    "duration": (types.DayTimeIntervalType(), pa.duration("us")),
    "null": (types.NullType(), pa.null()),
}
"""The types of Spark, and of Arrow, by the kind of ours. A time of day is a text, as in CSV: Spark has no type for it before 4.1."""


def spark_type(kind: Type) -> types.DataType:
    """Return the type of Spark that holds the values of one of ours."""
    if kind.kind == "decimal":
        return types.DecimalType(kind.precision, kind.scale)
    if kind.kind == "datetime":
        return types.TimestampType() if kind.zone else types.TimestampNTZType()
    if kind.kind == "list":
        assert kind.inner is not None
        return types.ArrayType(spark_type(kind.inner))
    if kind.kind == "struct":
        return types.StructType([types.StructField(name, spark_type(inner)) for name, inner in kind.fields])
    return TYPES[kind.kind][0]


OURS = {
    kind: name for name, (kind, _) in TYPES.items() if name[:4] != "uint" and name not in ("time", "duration", "null")
}


def our_type(kind: types.DataType) -> Type | None:
    """Return our type for a type of Spark; None if there is none, as for maps and variants.

    >>> str(our_type(types.ArrayType(types.TimestampType())))
    'list[datetime[us, UTC]?]?'
    """
    if isinstance(kind, types.DecimalType):
        return Type("decimal", nullable=True, precision=kind.precision, scale=kind.scale)
    if isinstance(kind, types.TimestampType | types.TimestampNTZType):
        return Type("datetime", nullable=True, unit="us", zone="UTC" if isinstance(kind, types.TimestampType) else None)
    if isinstance(kind, types.DayTimeIntervalType):
        return Type("duration", nullable=True, unit="us")
    if isinstance(kind, types.ArrayType):
        inner = our_type(kind.elementType)
        return None if inner is None else Type("list", nullable=True, inner=inner)
    if isinstance(kind, types.StructType):
        found = {field.name: our_type(field.dataType) for field in kind.fields}
        known = tuple((name, each) for name, each in found.items() if each is not None)
        return Type("struct", nullable=True, fields=known) if known and len(known) == len(kind.fields) else None
    name = OURS.get(kind)
    return None if name is None else Type(name, nullable=True)


def spark_schema(columns: Schema) -> types.StructType:
    """Return columns as Spark has them. All may be null: Spark checks no others."""
    return types.StructType([types.StructField(name, spark_type(kind)) for name, kind in columns.items()])


def arrow_type(kind: Type) -> pa.DataType:
    """Return the type of Arrow that Spark wants for a column of `spark_type`."""
    if kind.kind == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.kind == "datetime":
        return pa.timestamp("us", "UTC" if kind.zone else None)
    if kind.kind == "list":
        assert kind.inner is not None
        return pa.list_(pa.field("element", arrow_type(kind.inner)))
    if kind.kind == "struct":
        return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in kind.fields])
    return TYPES[kind.kind][1]


def to_arrow(frame: pl.DataFrame, columns: Schema, place: str) -> list[pa.RecordBatch]:
    """Return rows as Spark takes them. Raises InputError for a value that Spark has no room for."""
    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns.items()])
    table = frame.select(list(columns)).to_arrow(compat_level=pl.CompatLevel.oldest())
    arrays = []
    for name, column in zip(schema.names, table.columns, strict=True):
        try:
            arrays.append(column.cast(schema.field(name).type))
        except pa.ArrowInvalid as error:
            raise InputError(
                f"column '{name}' is {columns[name].required()}, and Spark has no room for one of its values: {error}",
                place=place,
                hint="Spark counts microseconds; read the other columns alone, with `.schema(...)`",
            ) from None
    return [*pa.Table.from_arrays(arrays, schema=schema).to_batches()]


VERSIONS = {
    "delta": "describe history {name} limit 1",
    "iceberg": "select snapshot_id as version from {name}.refs where name = 'main'",
}
"""The query for the version of a table, by the kind of table. Other kinds have none."""
COLUMNS_OF_TASKS = "name string"


class SparkSource(TableSource):
    """The present rows of a table that a session of Spark knows by its `name`, or of a `query`. Its versions count the reads that found it changed."""

    counts_from_rows = True

    def __init__(self, session: Any, name: str | None, query: str) -> None:
        self._session, self._asked = session, name or query
        place = f"Spark, table {name}" if name else "Spark, query"
        self._quoted = ".".join(map(in_backticks, name.split("."))) if name else ""
        with _errors_of_spark(place):
            # A query in brackets can't be a command.
            text = f"select * from {self._quoted}" if name else f"select * from ({query.strip().rstrip(';')}\n)"  # noqa: S608 - quoted
            if name:
                session.catalog.refreshTable(self._quoted)  # others may have changed its files
            self._frame: DataFrame = session.sql(text)
            fields = self._frame.schema.fields
        names = [field.name for field in fields]
        if twice := [each for each in names if names.count(each) > 1]:
            raise InputError(f"two columns are named '{twice[0]}'", place=place, hint="rename one of them: `as`")
        known = {field.name: our_type(field.dataType) for field in fields}
        kinds = {each: kind.to_polars() for each, kind in known.items() if kind is not None}
        super().__init__(place, kinds, {field.name: field.nullable for field in fields})
        self.version, self.identity = 0, f"spark {checksum(repr((name, query)).encode())}"
        self._stamp = self._version() if name else None

    def _version(self) -> str | None:
        """Return the version of the table; None for a kind without versions, and where Spark doesn't report one."""
        from pyspark.errors import PySparkException

        try:
            described = self._session.sql(f"describe table extended {self._quoted}")
            kinds = [row[1] for row in described.filter("col_name = 'Provider'").collect()]
            asked = VERSIONS.get(kinds[0].lower()) if kinds else None
            rows = self._session.sql(asked.format(name=self._quoted)).collect() if asked else []
        except PySparkException:
            return None
        return str(rows[0][0]) if rows and rows[0][0] is not None else None

    def changes(
        self, mark: MirrorCursor, mirrored: Sequence[Path], *, stepwise: bool
    ) -> tuple[MirrorCursor, Iterator[pl.DataFrame]] | None:
        self.version = mark.version + 1
        raise UnknownChange

    def whole(self) -> tuple[MirrorCursor, Additions]:
        end = self._mark(self.version, self._committed_now(0))
        return end, self._written_by_tasks(self._counted_rows(), end)

    def difference(self, mark: MirrorCursor, mirrored: Sequence[Path]) -> tuple[MirrorCursor, Additions]:
        self._check_columns(mark, [])
        end = self._mark(self.version, self._committed_now(mark.committed + 1))
        rows = self._counted_rows()
        if mirrored:
            kept = partial(_subtracted, self.columns, settings_in_use())
            paths = self._session.createDataFrame([(str(path.resolve()),) for path in mirrored], "path string")
            schema = spark_schema({**self.columns, DIFF: Type("int64")})
            rows = rows.unionAll(paths.repartition(len(mirrored), "path").mapInArrow(kept, schema))
        summed = rows.groupBy(*map(in_backticks, self.columns)).agg({DIFF: "sum"})
        changed = summed.withColumnRenamed(f"sum({DIFF})", DIFF).filter(f"{DIFF} <> 0")
        return end, self._written_by_tasks(changed, end)

    def _tip(self, version: int) -> str:
        return f"{self.identity} {self._stamp or uuid.uuid4().hex}"

    def _committed_now(self, least: int) -> int:
        return max(least, int(clock.time() * MICRO))

    def _rows(self) -> Iterator[pl.DataFrame]:
        raise UnknownChange  # tasks read them

    def _counted_rows(self) -> DataFrame:
        return self._frame.selectExpr(*map(in_backticks, self.columns), f"cast(1 as bigint) as {DIFF}")

    def _written_by_tasks(self, rows: DataFrame, end: MirrorCursor) -> Additions:
        """Return a function that has tasks write these rows, as updates at a version, to files of a mirror."""

        def write(directory: Path, number: int) -> list[str]:
            task = partial(_mirrored, str(directory), number, self.columns, end, settings_in_use())
            with _errors_of_spark(self.place):
                names = sorted(row[0] for row in rows.mapInArrow(task, COLUMNS_OF_TASKS).collect())
            for name in names:
                if not fs(temporary(directory / name, number)).exists():
                    raise EngineError(
                        "executors have written rows where this machine doesn't find them",
                        place=str(directory),
                        hint="put the state (for a dry run TMPDIR) on a file system that all machines share, or in an object store",
                    )
            return names

        return write


@contextmanager
def _errors_of_spark(place: str) -> Iterator[None]:
    """Turn a refusal of Spark into an error of the input. One of a task's Python process has no name of Spark's."""
    from pyspark.errors import PySparkException, PythonException

    try:
        yield
    except PySparkException as error:
        if error.getCondition() is None or isinstance(error, PythonException):
            raise
        raise InputError(f"Spark can't read it: {first_line(error)}", place=place) from None


def _subtracted(
    columns: Schema, settings: dict[str, str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files of a mirror, whose paths a task is given, to be subtracted."""
    adopt_settings(settings)
    paths = [locate(Path("/"), path) for batch in batches for path in batch.column(0).to_pylist()]
    for path, frame in zip(paths, frames_of(paths), strict=True):
        rows = in_columns(frame, columns).with_columns(-pl.col(DIFF))
        yield from to_arrow(rows, {**columns, DIFF: Type("int64")}, str(path))


def _mirrored(
    directory: str,
    number: int,
    columns: Schema,
    end: MirrorCursor,
    settings: dict[str, str],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task to files of a mirror, which no mark names yet, and yield their names."""
    adopt_settings(settings)
    kinds = pl.Schema({**{name: kind.to_polars() for name, kind in columns.items()}, DIFF: pl.Int64()})
    frames = (pl.DataFrame(batch).cast(kinds) for batch in batches)
    first = uuid.uuid4().int % 10**15  # another attempt at the task writes files of its own
    names = write_frames(locate(Path("/"), directory), Files(), labelled(frames, columns, end), number, first)
    yield pa.RecordBatch.from_pydict({"name": names}, schema=pa.schema([("name", pa.string())]))
