"""Directories whose files count only as far as a table's own log says: refused wherever a directory is listed."""

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from ddcli.errors import InputError
from ddcli.store.tables.inventory import list_input

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
