"""The types of a log's columns in Spark, and in the Arrow that Spark reads.

Spark has no unsigned integers and no nanoseconds: the former become wider integers, and of the latter a value that microseconds don't
hold is an error, never another value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types

from ddcli.errors import InputError
from ddcli.expressions.types import Type

if TYPE_CHECKING:
    import polars as pl

    from ddcli.expressions.types import Schema

SPARK = {
    "int8": types.ByteType(),
    "int16": types.ShortType(),
    "int32": types.IntegerType(),
    "int64": types.LongType(),
    "uint8": types.ShortType(),
    "uint16": types.IntegerType(),
    "uint32": types.LongType(),
    "uint64": types.DecimalType(20, 0),
    "float32": types.FloatType(),
    "float64": types.DoubleType(),
    "bool": types.BooleanType(),
    "date": types.DateType(),
    "time": types.StringType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "duration": types.DayTimeIntervalType(),
    "null": types.NullType(),
}
"""The types of Spark by the kind of ours. A time of day is a text, as in CSV: Spark has no type for it before 4.1."""
ARROW = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "time": pa.string(),
    "string": pa.string(),
    "binary": pa.binary(),
    "duration": pa.duration("us"),
    "null": pa.null(),
}


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
    return SPARK[kind.kind]


OURS = {kind: name for name, kind in SPARK.items() if name[:4] != "uint" and name not in ("time", "duration", "null")}


def our_type(kind: types.DataType) -> Type | None:
    """Return the type of ours for one of Spark; None where there is none, as for maps and variants.

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
    return ARROW[kind.kind]


def to_arrow(frame: pl.DataFrame, columns: Schema, place: str) -> list[pa.RecordBatch]:
    """Return rows as Spark takes them. Raises InputError for a value that Spark has no room for."""
    import polars as pl

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
