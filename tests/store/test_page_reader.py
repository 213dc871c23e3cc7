"""Large row groups, read page by page: any rows in any order are those that polars reads, of every type."""

import datetime as dt
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from pyarrow import parquet

from ddcli.engine.lanes import Layout
from ddcli.engine.pool import Pool
from ddcli.errors import InputError
from ddcli.expressions.types import parse_type
from ddcli.store.formats.base import Append, SnapshotsFormat, UpsertFormat
from ddcli.store.log.reader import LogReader
from ddcli.store.parquet import pages, row_groups
from ddcli.store.tables import files
from ddcli.store.tables.files import Tables
from ddcli.store.tables.input_path import partition_of
from ddcli.store.tables.inventory import list_input
from tests.secret import SECRET

ROWS = 1000
MOMENT = dt.datetime(2024, 1, 31, 12, 30, 15)  # noqa: DTZ001 - without a zone is a type of its own
VALUES = {
    **dict.fromkeys(
        (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()), 7
    ),
    **dict.fromkeys((pa.float32(), pa.float64()), 1.5),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())), "é"),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary(1)), b"\xff"),
    **dict.fromkeys((pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")), MOMENT),
    **dict.fromkeys((pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin")), MOMENT.replace(tzinfo=dt.UTC)),
    **dict.fromkeys((pa.duration("ms"), pa.duration("us")), dt.timedelta(seconds=5)),
    **dict.fromkeys((pa.time32("ms"), pa.time64("us"), pa.time64("ns")), dt.time(6, 30)),
    pa.date32(): dt.date(2024, 1, 31),
    pa.decimal128(12, 2): Decimal("10.25"),
    pa.decimal128(38, 5): Decimal("-1.00001"),
    pa.bool_(): True,
    pa.list_(pa.int64()): [1, 2],
    pa.large_list(pa.string()): ["x", None],
    pa.struct({"a": pa.int64(), "b": pa.string()}): {"a": 1, "b": "x"},
}


@pytest.fixture(autouse=True)
def any_size_is_large(monkeypatch):
    for module in (pages, row_groups):
        monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(pages, "BATCH", 64)


@pytest.fixture
def file(tmp_path):
    """Return a file of all types, each with nulls, whose row groups are of unequal size, with a partition above it."""
    chance = random.Random(1)
    columns = {
        f"{at} {kind}": pa.array([value if chance.random() < 0.7 else None for _ in range(ROWS)], kind)
        for at, (kind, value) in enumerate(VALUES.items())
    }
    path = tmp_path / "day=3/a.parquet"
    path.parent.mkdir()
    table = pa.table({"row": range(ROWS), "s.lsn": range(ROWS), **columns})
    with parquet.ParquetWriter(path, table.schema, data_page_size=256) as writer:
        for first, end in ((0, 1), (1, 700), (700, 700), (700, ROWS)):
            writer.write_table(table.slice(first, end - first), row_group_size=ROWS)
    return path


def some(chance):
    first = chance.randrange(ROWS + 1)
    return first, chance.choice([0, 1, 63, 64, 65, 300, 698])


@pytest.mark.parametrize("order", ["any", "one after the other"])
def test_any_rows_are_those_that_polars_reads(file, order):
    plain, reader = (
        Tables(partitions={file: partition_of("day=3/a")}),
        Tables(partitions={file: partition_of("day=3/a")}),
    )
    names = [*plain.footer(file)]
    chance = random.Random(2)
    slices = [some(chance) for _ in range(60)] if order == "any" else [(at, 130) for at in range(0, ROWS, 130)]
    for first, count in slices:
        columns = chance.sample(names, chance.randrange(1, len(names)))
        want = plain.kind(file).scan([file]).slice(first, count).collect()
        found = reader.collect([file], columns, (first, count))
        kept = [name for name in columns if name != "day"]
        assert_frame_equal(found.select(kept), want.select(kept))
        assert found.height == want.height
    assert {name for _, names in reader._pages._places for name in names}, "else this says nothing"


def test_fields_of_structs_are_read(file):
    reader = Tables(nested=True)
    (name,) = (name for name in reader.footer(file) if "struct" in name and "." not in name)
    wanted = [f"{name}.a", f"{name} is null", "s.lsn"]
    want = pl.read_parquet(file).slice(5, 300)
    found = reader.collect([file], wanted, (5, 300))
    assert found[wanted[0]].equals(want[name].struct.field("a"))
    assert found[wanted[1]].equals(want[name].is_null())
    assert found["s.lsn"].to_list() == list(range(5, 305))


def test_threads_and_other_processes_read_side_by_side(file):
    reader = Tables()
    slices = [(first, 20) for first in range(0, ROWS, 20)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda rows: reader.collect([file], ["row"], rows)["row"].to_list(), slices))
    assert found == [list(range(first, first + 20)) for first, _ in slices]
    again = pickle.loads(pickle.dumps(reader))  # noqa: S301 - our own
    assert again.collect([file], ["row"], (40, 2))["row"].to_list() == [40, 41]


def test_slices_in_order_are_one_pass(file, monkeypatch):
    opened = []
    begin = pages._Cursor.__init__
    monkeypatch.setattr(pages._Cursor, "__init__", lambda *args: opened.append(args[2:]) or begin(*args))
    reader = Tables()
    for first in range(0, ROWS, 50):
        reader.collect([file], ["row"], (first, 50))
    assert opened == [(["row"], 0)]


@pytest.mark.parametrize("nulls", [False, True])
def test_ends_of_large_row_groups_are_found_slice_by_slice(tmp_path, monkeypatch, nulls):
    monkeypatch.setattr(files, "MANY", 10)
    path = tmp_path / "a.parquet"
    times = [random.Random(3).randrange(1000) for _ in range(100)]
    frame = pl.DataFrame({"time": [None, *times] if nulls else times, "v": 1})
    frame.write_parquet(path)
    rows, ends, found = Tables().ends(path, ["time", "v"])
    assert (rows, ends.rows(), found) == (len(frame), [(min(times), 1), (max(times), 1)], nulls)


def test_a_damaged_page_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"a": [str(at) * 9 for at in range(2000)], "time": 0}).write_parquet(path, data_page_size=1024)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 200] = bytes(200)
    path.write_bytes(data)
    with pytest.raises(InputError, match="can't be read as Parquet") as caught:
        [Tables().collect([path], ["a"], (first, 100)) for first in range(0, 2000, 100)]
    assert caught.value.place == str(path)


@pytest.mark.parametrize(("log", "rows"), [(Append(), 4), (SnapshotsFormat(), 100), (UpsertFormat(key=("a",)), 100)])
def test_equal_updates_of_a_slice_are_one_where_rows_add_up(tmp_path, monkeypatch, log, rows):
    """Out of core only: the rows of a key that has very many equal ones would come together in one shard."""
    monkeypatch.setattr("ddcli.store.log.pieces.SAMPLE", 4)
    pl.DataFrame({"a": [1, 2] * 50, "time": 0}).write_parquet(tmp_path / "a.parquet")
    reader = LogReader(list_input("a.parquet", tmp_path), log)
    for most, count in ((None, 100), (50, rows)):
        slices = reader.take(["a"], None, (), most).slices
        found = [
            part.matrix(Layout(dict.fromkeys(part.read().frame.columns, parse_type("int64"))), Pool(SECRET))
            for part in slices
        ]
        assert sum(map(len, found)) == count
        assert sum(int(each[:, -1].sum()) for each in found) == 100
