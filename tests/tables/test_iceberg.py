"""Tables of Iceberg as inputs."""

import importlib.util
import json
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from ddcli import read_log
from ddcli.driver.run import run
from ddcli.errors import InputError, UsageError
from ddcli.store.mirrors import equal_parts
from ddcli.store.mirrors.iceberg import IcebergSource
from ddcli.version import install_command
from tests.draws import SEED, many
from tests.harness import contents, imported_by
from tests.tables import followers, histories
from tests.tables.followers import Follower, race
from tests.tables.histories import IcebergHistory, delete_equal, delete_positions, named, properties_of
from tests.tables.rest_catalog import rest_server

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")


def pipeline(folder, more=""):
    """Write a pipeline that copies an input."""
    file = folder / "p.yaml"
    table = f"{{iceberg: {{catalog: {named(properties_of(folder))}, table: shop.orders}}{more}}}"
    file.write_text(f"name: p\ninputs: {{orders: {table}}}\noutputs: {{orders: out/}}\n")
    return file


def held(folder, as_of="latest"):
    return Counter({tuple(row): diff for *row, diff in read_log(folder / "out", as_of=as_of).rows()})


@pytest.fixture
def table(tmp_path):
    """Return a table of three rows in three files."""
    catalog = load_catalog("default", **properties_of(tmp_path))
    catalog.create_namespace("shop")
    found = catalog.create_table("shop.orders", pa.schema([("k", pa.int64()), ("v", pa.string())]))
    for row in [(1, "a"), (2, "b"), (3, "c")]:
        found.append(pl.DataFrame([row], ["k", "v"], orient="row").to_arrow())
    return catalog.load_table("shop.orders")


@pytest.mark.slow
def test_a_command_imports_what_its_tables_need(tmp_path, table):
    """Nothing but rows that a delete names is read through pyarrow's datasets, which import pandas where it is installed."""
    file = pipeline(tmp_path)
    unused = {"pandas", "pyarrow._dataset", "pyparsing"}
    imported_by(tmp_path, "run", file.name)
    assert unused & imported_by(tmp_path, "run", file.name) == set()
    table.append(pl.DataFrame([(4, "d")], ["k", "v"], orient="row").to_arrow())
    table.delete("k = 2")
    imported_by(tmp_path, "run", file.name)
    assert held(tmp_path) == Counter([(1, "a"), (3, "c"), (4, "d")])


@pytest.mark.parametrize("seed", range(many(5)))
def test_a_random_history(tmp_path, monkeypatch, seed):
    """After each run the output is what the package reads, and, by version, what it reads of each snapshot since the first run."""
    draw = random.Random(f"{SEED}-{seed}")
    monkeypatch.setattr(equal_parts, "LEAST", (1, 1 << 12)[seed % 3 == 0])
    monkeypatch.setattr(equal_parts, "SAMPLE", (1, 256)[seed % 3 == 2])
    monkeypatch.setattr(equal_parts, "NEAR", (0, 4)[seed % 2])
    history = IcebergHistory(tmp_path, draw)
    time = draw.choice(["", ", time: version", ", time: committed"])
    file = pipeline(tmp_path, time + ", columns: {k: int64?, v: string?}")
    run(file)
    first = history.table.current_snapshot().sequence_number
    for _ in range(draw.randrange(2, 5)):
        steps = [history.change() for _ in range(draw.randrange(3))]
        summary = run(file)
        assert held(tmp_path) == history.contents(), steps
        if not time and set(steps) <= {"rewrite", "add_column"}:
            assert not sum(output.inserted + output.deleted for output in summary.outputs.values())
    for version in range(first, history.table.current_snapshot().sequence_number + 1) if "version" in time else ():
        assert held(tmp_path, version) == history.contents(version), version
    assert not run(file).changed


@pytest.fixture
def rest(tmp_path, monkeypatch):
    """Have catalogs of a folder be a server's; return what it is asked."""
    with rest_server(properties_of(tmp_path)) as (properties, asked):
        for name, value in properties.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
        for module in (histories, followers, sys.modules[__name__]):
            monkeypatch.setattr(module, "properties_of", lambda _: properties)
        yield asked


@pytest.mark.parametrize("seed", range(many(3)))
def test_a_random_history_by_a_server(tmp_path, monkeypatch, rest, seed):
    test_a_random_history(tmp_path, monkeypatch, seed)
    assert "GET /v1/config" in rest
    assert "GET /v1/namespaces/shop/tables/orders" in rest


def test_a_table_of_a_server_is_written(tmp_path, rest):
    """By one commit a run, also where two runs begin at once."""
    draw = random.Random(SEED)
    follower = Follower(tmp_path / "f", "iceberg")
    load_catalog("default", **follower.properties).create_namespace("shop")
    for _ in range(4):
        follower.supply(draw)
        follower.run()
        follower.check()
    race(follower)
    assert rest.count("POST /v1/namespaces/shop/tables/t") >= 3


def test_a_table_of_version_3(tmp_path, table):
    """Pyiceberg writes none, so its metadata are made of those of version 2: rows have numbers."""
    metadata, first = json.loads(table.metadata.model_dump_json(by_alias=True)), 0
    for snapshot in metadata["snapshots"]:
        snapshot["first-row-id"], snapshot["added-rows"] = first, int(snapshot["summary"]["added-records"])
        first += snapshot["added-rows"]
    location = table.metadata_location.replace("/metadata/", "/metadata/3-")
    Path(location.removeprefix("file://")).write_text(
        json.dumps(metadata | {"format-version": 3, "next-row-id": first})
    )
    catalog = load_catalog("default", **properties_of(tmp_path))
    catalog.drop_table("shop.orders")
    assert catalog.register_table("shop.orders", location).metadata.format_version == 3
    run(pipeline(tmp_path))
    assert held(tmp_path) == Counter([(1, "a"), (2, "b"), (3, "c")])


def test_only_files_that_differ_are_read(tmp_path, table, monkeypatch):
    read, plain = [], IcebergSource._file
    file = pipeline(tmp_path)
    run(file)
    monkeypatch.setattr(IcebergSource, "_file", lambda self, task: read.append(task) or plain(self, task))
    table.delete("k = 2")
    table.append(pl.DataFrame({"k": [4], "v": ["d"]}).to_arrow())
    run(file)
    assert sum(task.file.record_count for task in read) == 2
    assert held(tmp_path) == Counter([(1, "a"), (3, "c"), (4, "d")])


@pytest.mark.parametrize("least", [1, 1 << 12])
def test_files_whose_columns_are_others_now(tmp_path, monkeypatch, least):
    """The package reads a file with a column that has a wider type since, or another name: it may be one that was rewritten."""
    monkeypatch.setattr(equal_parts, "LEAST", least)
    catalog = load_catalog("default", **properties_of(tmp_path))
    catalog.create_namespace("shop")
    schema = pa.schema([("k", pa.int32()), ("v", pa.string())])
    catalog.create_table("shop.orders", schema).append(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}, schema))
    table = catalog.load_table("shop.orders")
    with table.update_schema() as change:
        change.update_column("k", LongType())
        change.rename_column("v", "w")
    with table.update_schema() as change:
        change.add_column("v", StringType())
    file = pipeline(tmp_path)
    run(file)
    assert held(tmp_path) == Counter([(1, "a", None), (2, "b", None), (3, "c", None)])
    plainly, plain = [], IcebergSource._plainly
    monkeypatch.setattr(
        IcebergSource, "_plainly", lambda self, *given: plainly.append(found := plain(self, *given)) or found
    )
    table.delete("k = 2")
    run(file)
    assert sorted(found is None for found in plainly) == [False, True]
    assert held(tmp_path) == Counter([(1, "a", None), (3, "c", None)])


def test_columns_of_equal_bytes_are_not_read(tmp_path, monkeypatch):
    """Of a file that is rewritten only columns with other bytes are read whole, and the others where rows differ."""
    rows = equal_parts.LEAST
    catalog = load_catalog("default", **properties_of(tmp_path))
    catalog.create_namespace("shop")
    frame = pl.DataFrame({"k": range(rows), "v": ["a"] * rows, "w": range(rows)})
    catalog.create_table("shop.orders", frame.to_arrow().schema).append(frame.to_arrow())
    file, read, plain = pipeline(tmp_path), [], IcebergSource._plainly
    run(file)
    monkeypatch.setattr(
        IcebergSource,
        "_plainly",
        lambda self, task, columns=None: read.append(columns) or plain(self, task, columns),
    )
    table = catalog.load_table("shop.orders")
    for changed, columns in [(7, [["w"], ["w"], ["k", "v"]]), (rows, [])]:
        frame = frame.with_columns(pl.when(pl.col("k") == changed).then(-1).otherwise("w").alias("w"))
        table.overwrite(frame.to_arrow())
        run(file)
        assert read == columns
        read.clear()
    assert held(tmp_path) == Counter(frame.rows())


def renamed(catalog, *names):
    for name, other in names:
        with catalog.load_table("shop.orders").update_schema() as change:
            change.rename_column(name, other)


def test_a_column_of_another_ones_name_is_another(tmp_path, monkeypatch):
    """Two columns have changed names: files from before and after have equal bytes by these names, and other rows."""
    monkeypatch.setattr(equal_parts, "LEAST", 1)
    catalog = load_catalog("default", **properties_of(tmp_path))
    catalog.create_namespace("shop")
    rows = pa.table({"v": ["a", "b"], "w": ["x", "y"]})
    catalog.create_table("shop.orders", rows.schema).append(rows)
    monkeypatch.setattr(IcebergSource, "_bounds", lambda *_: {})  # they tell the files apart, where they are known
    swap = [("v", "between"), ("w", "v"), ("between", "w")]
    renamed(catalog, *swap)
    file = pipeline(tmp_path, ", columns: {v: string?, w: string?}")
    run(file)
    assert held(tmp_path) == Counter([("x", "a"), ("y", "b")])
    table = catalog.load_table("shop.orders")
    table.overwrite(rows.select(table.schema().column_names))
    run(file)
    assert held(tmp_path) == Counter([("a", "x"), ("b", "y")])
    renamed(catalog, *swap)
    with pytest.raises(InputError, match="the table has another column under the name"):
        run(file)


def test_a_column_with_the_name_of_one_that_was_renamed(tmp_path, table):
    """The rows that were taken in have its values under the name that it had."""
    file = pipeline(tmp_path)
    run(file)
    renamed(load_catalog("default", **properties_of(tmp_path)), ("v", "w"))
    table.refresh()
    with table.update_schema() as change:
        change.add_column("v", StringType())
    with pytest.raises(InputError, match="has another column under the name 'v'"):
        run(file)


@pytest.mark.parametrize("part", ["metadata/snap-*.avro", "metadata/*-m0.avro", "data/*.parquet"])
def test_a_table_that_lacks_a_file_is_refused_with_its_name(tmp_path, table, part):
    lost = next(iter((tmp_path).rglob(part)))
    for path in list(tmp_path.rglob(part)):
        path.unlink()
    with pytest.raises(InputError, match=r"a file of the table is gone: .*(No such file|Failed to open)") as caught:
        run(pipeline(tmp_path))
    assert lost.suffix in caught.value.problem


def test_position_deletes(tmp_path, table, monkeypatch):
    """Rows that a delete file names go, and come back with it; pyiceberg reads such files and doesn't write them."""
    table.overwrite(pl.DataFrame({"k": [1, 2, 3], "v": ["a", "b", "c"]}).to_arrow())
    file = pipeline(tmp_path)
    run(file)
    plain = IcebergSource._tasks
    before = table.current_snapshot()
    table.append(pl.DataFrame({"k": [4], "v": ["d"]}).to_arrow())

    def tasks(source, tip):
        found = plain(source, tip)
        if tip == str(before.snapshot_id):
            return found
        (key, task) = next((key, task) for key, (task,) in found.items() if task.file.record_count == 3)
        name = str(tmp_path / "warehouse/shop/orders/data/deletes.parquet")
        pq.write_table(pa.table({"file_path": [task.file.file_path], "pos": pa.array([1], pa.int64())}), name)
        facts = {"file_format": FileFormat.PARQUET, "partition": Record(), "record_count": 1}
        deletes = DataFile.from_args(content=DataFileContent.POSITION_DELETES, file_path=name, **facts)
        return {**{k: v for k, v in found.items() if k != key}, (*key, name): [replace(task, delete_files=[deletes])]}

    monkeypatch.setattr(IcebergSource, "_tasks", tasks)
    run(file)
    assert held(tmp_path) == Counter([(1, "a"), (3, "c"), (4, "d")])


class EqualityHistory:
    """A table whose rows are deleted by equality, as Flink does it, by position and by pyiceberg; beside it its rows by the specification."""

    def __init__(self, folder, draw):
        self.draw = draw
        self.catalog = load_catalog("default", **properties_of(folder))
        self.catalog.create_namespace("shop")
        schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("p", pa.int64())])
        self.by = draw.random() < 0.5
        table = self.catalog.create_table("shop.orders", schema, properties={"format-version": "2"})
        if self.by:
            with table.update_spec() as update:
                update.add_identity("p")
        self.rows = []
        self.append()

    @property
    def table(self):
        return self.catalog.load_table("shop.orders")

    def row(self):
        draw = self.draw
        return draw.choice([1, 2, 3, None]), draw.choice(["a", "b", None]), draw.choice([0, 1])

    def append(self):
        rows = [self.row() for _ in range(self.draw.randrange(1, 6))]
        self.table.append(pl.DataFrame(rows, {"k": pl.Int64, "v": pl.String, "p": pl.Int64}, orient="row").to_arrow())
        self.rows += rows

    def delete(self):
        """Delete the rows that have the values of some."""
        names = self.draw.choice([["k"], ["v"], ["k", "v"]])
        values = [dict(zip("kvp", self.row(), strict=True)) for _ in range(self.draw.randrange(1, 3))]
        partition = self.draw.choice([0, 1, None]) if self.by else None
        delete_equal(self.table, names, [[each[name] for name in names] for each in values], partition)
        gone = {tuple(each[name] for name in names) for each in values}
        at = ["kvp".index(name) for name in names]
        self.rows = [
            row for row in self.rows if tuple(row[i] for i in at) not in gone or partition not in (None, row[2])
        ]


@pytest.mark.parametrize("seed", range(many(6)))
def test_equality_deletes(tmp_path, seed):
    """A file of values deletes the rows of older files of its partition that have them, nulls too, and no newer ones."""
    draw = random.Random(f"{SEED}-{seed}")
    history = EqualityHistory(tmp_path, draw)
    file = pipeline(tmp_path, draw.choice(["", ", time: version"]))
    run(file)
    for _ in range(draw.randrange(2, 5)):
        for _ in range(draw.randrange(1, 4)):
            draw.choice([history.append, history.delete])()
        run(file)
        assert held(tmp_path) == Counter(history.rows)
    assert not run(file).changed


def test_equality_deletes_by_a_column_that_is_gone(tmp_path, table):
    file = pipeline(tmp_path)
    delete_equal(table, ["k"], [[2]])
    run(file)
    assert held(tmp_path) == Counter([(1, "a"), (3, "c")])
    with table.refresh().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("k")
    file = pipeline(tmp_path, ", columns: {v: string?}")
    file.write_text(file.read_text().replace("name: p", "name: q").replace("out/", "out2/"))
    with pytest.raises(InputError, match="deletes rows by a column"):
        run(file)


@pytest.mark.parametrize("time", ["", ", time: version"])
def test_expired_snapshots_are_compared_with_the_mirror(tmp_path, table, time):
    file = pipeline(tmp_path, time)
    run(file)
    table.delete("k = 2")
    table.append(pl.DataFrame({"k": [3], "v": ["c"]}).to_arrow())
    table.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in table.snapshots() if each != table.current_snapshot()]
    ).commit()
    run(file)
    assert held(tmp_path) == Counter([(1, "a"), (3, "c"), (3, "c")])
    assert not run(file).changed


def test_a_table_that_is_rolled_back(tmp_path, table):
    file = pipeline(tmp_path)
    run(file)
    first = table.current_snapshot().snapshot_id
    table.delete("k = 2")
    run(file)
    assert held(tmp_path) == Counter([(1, "a"), (3, "c")])
    table.manage_snapshots().set_current_snapshot(first).commit()
    run(file)
    assert held(tmp_path) == Counter([(1, "a"), (2, "b"), (3, "c")])


def test_changes_of_columns(tmp_path, table):
    """An added one is null in older rows; one that is renamed is refused."""
    file = pipeline(tmp_path, ", columns: {k: int64?}")
    run(file)
    with table.update_schema() as update:
        update.rename_column("v", "w")
    with pytest.raises(InputError, match="the table has no column 'v' any more"):
        run(file)


def test_what_can_not_be_read(tmp_path, table, monkeypatch):
    file = pipeline(tmp_path)
    file.write_text(file.read_text().replace("shop.orders", "shop.none"))
    with pytest.raises(InputError, match=r"the catalog 'default' has no table 'shop\.none'"):
        run(file)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UsageError) as caught:
        run(file)
    assert caught.value.hint == install_command("iceberg")


def test_a_table_of_a_catalog_with_another_name_is_not_found(tmp_path, table):
    """A catalog in a database has its tables under its name, which is `default` where the file has none."""
    file = pipeline(tmp_path)
    file.write_text(file.read_text().replace("{catalog: {", "{catalog: {name: prod, "))
    with pytest.raises(InputError, match=r"the catalog 'prod' has no table 'shop\.orders'") as caught:
        run(file)
    assert "the catalog's `name`" in caught.value.hint


LISTS = [
    None,
    [],
    [{"a": 1, "b": None}],
    [None, {"a": None, "b": [None, []]}],
    None,
    [{"a": 2, "b": [[{"c": None}], None]}],
]


def test_null_lists_of_structs_stay_null(tmp_path):
    """Also those inside of each other, in a file of which rows are deleted, and in one that a later column is not in."""
    kind = pl.List(pl.Struct({"a": pl.Int64, "b": pl.List(pl.List(pl.Struct({"c": pl.Int64})))}))
    frame = pl.DataFrame({"k": range(len(LISTS)), "v": pl.Series(LISTS, dtype=kind)}, schema_overrides={"k": pl.Int64})
    catalog = load_catalog("default", **properties_of(tmp_path))
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", frame.to_arrow().schema)
    path = tmp_path / "warehouse/shop/orders/data/given.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(frame.to_arrow().cast(table.schema().as_arrow()), path)
    table.add_files([f"file://{path}"])
    file, wanted = pipeline(tmp_path), frame
    run(file)
    assert read_log(tmp_path / "out", as_of="latest").select("k", "v").sort("k").equals(wanted)
    delete_positions(table, f"file://{path}", [1, 4])
    run(file)
    wanted = wanted.filter(~pl.col("k").is_in([1, 4]))
    assert read_log(tmp_path / "out", as_of="latest").select("k", "v").sort("k").equals(wanted)
    with catalog.load_table("shop.orders").update_schema() as schema:
        schema.add_column("w", LongType())
    (tmp_path / "more").mkdir()
    path = tmp_path / "more/p.yaml"
    path.write_text(file.read_text())
    run(path)
    found = read_log(tmp_path / "more/out", as_of="latest").select("k", "v", "w").sort("k")
    assert found.equals(wanted.with_columns(w=pl.lit(None, pl.Int64)))


OUTPUT = """\
name: p
inputs: {a: {path: in/, format: append, columns: {k: int64}}}
outputs: {b: {from: a, as: table, iceberg: {catalog: CATALOG, table: shop.b}}, plain: {from: a, path: out/}}
"""
IN_A_DATABASE = "{uri: 'sqlite:///catalog.db', warehouse: 'file://warehouse'}"


@pytest.mark.parametrize(
    ("catalog", "missing", "said"),
    [
        (IN_A_DATABASE, "sqlalchemy", "catalogs of Iceberg in databases need the package sqlalchemy"),
        (IN_A_DATABASE.replace("{", "{type: sql, "), "sqlalchemy", "need the package sqlalchemy"),
        (IN_A_DATABASE, "pyiceberg", "tables of Iceberg need the package pyiceberg"),
        ("configured", "sqlalchemy", ""),
    ],
)
def test_a_missing_package_of_an_output_is_found_before_a_run_commits(shop, monkeypatch, catalog, missing, said):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None if name == missing else find(name, *more))
    shop.write("p.yaml", OUTPUT.replace("CATALOG", catalog))
    shop.write("in/1.csv", "k\n1\n")
    checked = shop("check")
    assert (checked.code, said in checked.err) == (2 if said else 0, True), checked.err
    if said:
        assert checked.err.startswith("p.yaml:3:")
        assert install_command("iceberg") in checked.err


def test_a_run_whose_table_fails_says_that_it_is_committed(shop):
    shop.write(
        "p.yaml", OUTPUT.replace("CATALOG", "{uri: 'sqlite:///nowhere/catalog.db', warehouse: 'file://warehouse'}")
    )
    shop.write("in/1.csv", "k\n1\n")
    failed = shop("run")
    assert failed.code == 5
    assert "outputs.b.iceberg: " in failed.err
    assert "the run is committed, and the table stays as it was" in failed.err
    assert contents(shop.folder / "out") == {(1,): 1}
