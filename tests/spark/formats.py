"""The format `dd` as Spark's Python processes use it, without Spark: what goes to tasks is pickled, as it is there."""

from __future__ import annotations

import pickle
from collections import Counter

import polars as pl
import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from ddcli.spark.source import FilteringLogSource, LogSource
from ddcli.store.mirrors.spark_table import our_type
from tests.reference.values import canonical


def moved(thing):
    """Return a thing as another process gets it."""
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own


def read(path, filters=(), names=None, **options):
    """Return the rows of a log as Spark gets them, and in how many parts."""
    source = FilteringLogSource(CaseInsensitiveDict({"path": str(path)} | options))
    schema = source.schema()
    if names is not None:
        schema = StructType([field for field in schema.fields if field.name in names])
    reader = source.reader(schema)
    assert [*reader.pushFilters([*filters])] == [*filters], "Spark applies all of them again"
    return collected(reader, reader.partitions(), schema)


def collected(reader, parts, schema):
    """Return the rows of parts, in the types that Spark asks for, and how many parts there were."""
    reader = moved(reader)
    batches = [batch for part in parts for batch in reader.read(moved(part))]
    types = {field.name: our_type(field.dataType) for field in schema.fields}
    empty = pl.DataFrame(schema={name: kind.to_polars() for name, kind in types.items()})
    return (pl.from_arrow(pa.Table.from_batches(batches)) if batches else empty), len(parts)


def stream(path, start=None, **options):
    """Return the rows of a stream's batch, and the offset after it."""
    source = LogSource(CaseInsensitiveDict({"path": str(path), "readChangeFeed": "true"} | options))
    schema = source.schema()
    reader = source.streamReader(schema)
    start = start or reader.initialOffset()
    end = reader.latestOffset(start, None)
    return collected(reader, reader.partitions(start, end), schema)[0], start, end


def again(path, start, end, **options):
    """Return the rows of a batch that Spark repeats."""
    source = LogSource(CaseInsensitiveDict({"path": str(path), "readChangeFeed": "true"} | options))
    reader = source.streamReader(source.schema())
    return collected(reader, reader.partitions(start, end), source.schema())[0]


def counted(frame):
    """Return rows as a multiset."""
    return Counter(map(canonical, frame.rows()))


def added(frame):
    """Return the collection that changes add up to."""
    found = Counter()
    for *record, diff in frame.drop("time", strict=False).rows():
        found[tuple(record)] += diff
    return Counter({record: diff for record, diff in found.items() if diff})
