"""Random columns come back from every kind of table on this machine as what they were, or `dd check` refuses them."""

from functools import partial

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.draws import chance, many
from tests.tables.histories import properties_of
from tests.tables.random_types import Journey, has


def no_nan(value):
    """Return whether a value has no NaN in it, which SQLite can't hold."""
    return not has(value, lambda each: isinstance(each, float) and each != each)  # noqa: PLR0124 - only NaN is not itself


def read_iceberg(folder):
    """Return the rows as pyiceberg reads them; of a table with lists of structs, whose nulls it makes empty lists, those of its data files."""
    scan = load_catalog("default", **properties_of(folder)).load_table("shop.t").scan()
    if not has_lists_of_structs(scan.projection().as_arrow()):
        return pl.DataFrame(scan.to_arrow())
    tasks = [*scan.plan_files()]
    assert not any(task.delete_files for task in tasks)
    files = [pq.ParquetFile(task.file.file_path.removeprefix("file://")).read() for task in tasks]
    return pl.DataFrame(pa.concat_tables([file.cast(scan.projection().as_arrow()) for file in files]))


def has_lists_of_structs(kind):
    """Return whether there are lists of structs in a type, or in a schema."""
    if isinstance(kind, pa.Schema | pa.StructType):
        return any(has_lists_of_structs(field.type) for field in kind)
    if not isinstance(kind, pa.ListType | pa.LargeListType):
        return False
    return isinstance(kind.value_type, pa.StructType) or has_lists_of_structs(kind.value_type)


def journey_to(kind, folder, draw, server=None):
    """Return a journey to a kind of table, and what reads that otherwise, if anything does."""
    declares = draw.random() < 0.5
    if kind == "parquet":
        made = Journey(folder, draw, "parquet: t.parquet", "path: t.parquet, format: append", declares=declares)
        return made, lambda: pl.read_parquet(folder / "t.parquet")
    if kind == "delta":
        made = Journey(folder, draw, "delta: t/", "delta: t/", declares=declares)
        return made, lambda: pl.DataFrame(DeltaTable(str(folder / "t")).to_pyarrow_table())
    if kind == "iceberg":
        listed = ", ".join(f"{key}: '{value}'" for key, value in properties_of(folder).items())
        place = f"iceberg: {{catalog: {{{listed}}}, table: shop.t}}"
        return Journey(folder, draw, place, place, declares=declares), partial(read_iceberg, folder)
    if kind == "postgres":
        named = f"table: public.{folder.name}"
        given = f"database: '{server}', {named}"
        return Journey(folder, draw, f"to: '{server}', {named}", given, declares=declares), None
    given = f"database: '{kind}:///t.db', table: t"
    if kind == "sqlite":
        return Journey(folder, draw, f"to: '{kind}:///t.db'", given, usable=no_nan), None
    return Journey(folder, draw, f"to: '{kind}:///t.db'", given, declares=declares), None


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg", "sqlite", "duckdb", "postgres"])
def test_random_columns(shop, kind, request):
    server = request.getfixturevalue("postgres_database") if kind == "postgres" else None
    for at in range(many(15)):
        journey, read = journey_to(kind, shop.folder / f"{kind}{at}", chance("types", kind, at), server)
        journey.fit(shop)
        journey.travel(read=read)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_random_columns_of_logs(shop, kind):
    """The log of an output keeps the values and their types, as the package of the table reads them."""
    for at in range(many(15)):
        journey, read = journey_to(kind, shop.folder / f"{kind}{at}", chance("types of logs", kind, at))
        journey.form = "log"
        journey.fit(shop)
        journey.travel(steps=3, read=read)
