"""Every pair of types: where one is said to widen to another, each value survives the way there and back.

Directories whose files count only as far as a table's own log says: refused wherever a directory is listed.
"""

from datetime import date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from ddcli.errors import InputError
from ddcli.expressions.types import INTEGERS, parse_type
from ddcli.store.tables.inventory import list_input
from ddcli.store.tables.wider_types import widen, widens

# ruff: noqa: DTZ001 - datetimes without zone are a type of their own


EXTREMES = {
    "float32": [1.5, -(2.0**24), float("inf")],
    "float64": [0.1, 2.0**53],
    "bool": [True, False],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "time": [time(23, 59, 59, 999999)],
    "string": ["", "ä"],
    "binary": [b"", b"\xff"],
    "decimal(5, 2)": [Decimal("999.99"), Decimal("-999.99")],
    "decimal(12, 4)": [Decimal("99999999.9999")],
    "decimal(38, 0)": [Decimal(10**38 - 1)],
    "datetime[ms]": [datetime(1, 1, 1), datetime(9999, 12, 31)],
    "datetime[us]": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    "datetime[us, UTC]": [datetime(2013, 1, 1)],
    "datetime[ns]": [datetime(1970, 1, 1)],
    "duration[ms]": [timedelta(days=-1)],
    "duration[us]": [timedelta(microseconds=1)],
    "list[int32]": [[1, None], []],
    "list[int64]": [[2**62]],
    "null": [None],
}
for kind in INTEGERS:
    bits = int(kind.lstrip("uint"))
    EXTREMES[kind] = [0, 2**bits - 1] if kind.startswith("u") else [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]


@pytest.mark.parametrize("found", EXTREMES)
def test_what_widens_loses_nothing(found):
    source = parse_type(found + "?")
    values = pl.Series(
        "x", EXTREMES[found], dtype=pl.Datetime("us") if found == "datetime[us, UTC]" else source.to_polars()
    )
    values = values.dt.replace_time_zone("UTC") if found == "datetime[us, UTC]" else values
    for wanted in EXTREMES:
        target = parse_type(wanted + "?")
        if not widens(source, target):
            assert found != wanted
            continue
        try:
            wide = widen(values, target)
        except OverflowError:
            assert "ns" in wanted
            continue
        assert wide.dtype == target.to_polars()
        assert wide.cast(values.dtype).to_list() == values.to_list(), wanted


@pytest.mark.parametrize(
    ("found", "wanted"),
    [("int64", "float64"), ("int32", "float32"), ("uint64", "int64"), ("int8", "uint64"), ("date", "datetime[us, UTC]"),
     ("datetime[us]", "datetime[us, UTC]"), ("datetime[us]", "datetime[ms]"), ("decimal(12, 4)", "decimal(12, 5)"), ("int64", "decimal(18, 0)"),
     ("string", "int64"), ("bool", "int64"), ("list[int64]", "list[int32]"), ("float64", "float32")],
)  # fmt: skip
def test_what_would_lose_something_is_refused(found, wanted):
    assert not widens(parse_type(found), parse_type(wanted))


def test_nothing_but_nulls_is_of_any_nullable_type():
    assert widens(parse_type("null?"), parse_type("int64?"))
    assert not widens(parse_type("null?"), parse_type("int64"))


ICEBERG = ["metadata/00000-a.metadata.json", "metadata/snap-1.avro", "data/day=1/a.parquet", "data/day=2/b.parquet"]
DELTA = ["_delta_log/00000000000000000000.json", "day=1/a.parquet", "day=2/b.parquet"]
HUDI = [".hoodie/hoodie.properties", "day=1/a.parquet", "day=2/b.parquet"]
TABLES = {"Delta Lake": DELTA, "Iceberg": ICEBERG, "Hudi": HUDI}


def made(root, names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "path", ["lake/t", "lake", "lake/t/{inside}day=1", "lake/**/*.parquet", "lake/t/{inside}*/a.parquet"]
)
def test_files_of_a_table_with_a_log_are_refused(tmp_path, table, path):
    made(tmp_path / "lake/t", TABLES[table])
    with pytest.raises(InputError) as caught:
        list_input(path.format(inside="data/" if table == "Iceberg" else ""), tmp_path)
    assert caught.value.place == str(tmp_path / "lake/t")
    assert table in caught.value.problem
    assert "write the table's rows to files of their own" in caught.value.hint


@pytest.mark.parametrize(
    "names",
    [
        ["a.parquet", "metadata/notes.json"],
        ["a.parquet", "metadata/b.parquet"],
        ["a.parquet", "_delta_log"],
        ["a.parquet", "empty/_delta_log/0.json"],
    ],
)
def test_other_directories_are_listed(tmp_path, names):
    made(tmp_path / "log", names)
    assert "a.parquet" in [file.path for file in list_input("log", tmp_path).new]


def test_one_file_that_a_person_names_is_that_file(tmp_path):
    made(tmp_path, DELTA)
    assert [file.path for file in list_input("day=1/a.parquet", tmp_path).new] == ["a.parquet"]


def test_the_files_of_a_change_feed_are_changes_all(tmp_path):
    """Those that Delta Lake itself keeps of changes may be read where they lie; the table beside them may not."""
    configuration = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(tmp_path / "t", pl.DataFrame({"id": [1, 2], "v": ["a", "b"]}), configuration=configuration)
    DeltaTable(tmp_path / "t").update(predicate="id = 1", updates={"v": "'c'"})
    assert list_input("t/_change_data", tmp_path).new
    with pytest.raises(InputError, match="a table of Delta Lake"):
        list_input("t", tmp_path)
