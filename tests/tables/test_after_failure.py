"""A row on which a run has failed is forgotten when it is gone from the table: a run fails if the table has such a row now, and only then."""

import contextlib
import random
import shutil
import sqlite3
from collections import Counter
from itertools import product

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from ddcli import read_log
from ddcli.driver.run import run
from ddcli.errors import InputError
from ddcli.store.files.gate import Files
from tests.draws import SEED, many, some
from tests.harness import called, snapshot
from tests.store.support import Dead, Faulty
from tests.tables.histories import properties_of

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
KINDS = ("sqlite", "duckdb", "delta", "iceberg")
SCHEMA = {"k": pl.Int64, "q": pl.Int64}


class Table:
    """A table of some kind with the columns `k` and `q`, and a pipeline that divides by `q`."""

    def __init__(self, folder, kind):
        self.folder, self.kind, self.rows = folder, kind, []
        self.file = folder / "p.yaml"
        made = "create table t (k bigint, q bigint)"
        if kind in ("sqlite", "duckdb"):
            self.execute(made)
            given = f"{{database: {kind}:///t.db, table: t}}"
        elif kind == "delta":
            write_deltalake(str(folder / "t"), pl.DataFrame([], SCHEMA))
            given = "{delta: t/}"
        else:
            properties = properties_of(folder)
            catalog = load_catalog("default", **properties)
            catalog.create_namespace("shop")
            catalog.create_table("shop.t", pa.schema([("k", pa.int64()), ("q", pa.int64())]))
            listed = ", ".join(f"{key}: '{value}'" for key, value in properties.items())
            given = f"{{iceberg: {{catalog: {{{listed}}}, table: shop.t}}}}"
        divided = "c: {from: t, apply: [{map: {k: k, y: 100 / q}}]}"
        self.file.write_text(f"name: p\ninputs: {{t: {given}}}\ncollections: {{{divided}}}\noutputs: {{c: out/}}\n")

    def execute(self, *statements):
        path = str(self.folder / "t.db")
        with contextlib.closing(sqlite3.connect(path) if self.kind == "sqlite" else duckdb.connect(path)) as database:
            for statement in statements:
                database.execute(statement)
            database.commit() if self.kind == "sqlite" else None

    def insert(self, k, q):
        self.rows.append((k, q))
        frame = pl.DataFrame([(k, q)], SCHEMA, orient="row")
        if self.kind == "delta":
            write_deltalake(str(self.folder / "t"), frame, mode="append")
        elif self.kind == "iceberg":
            self.iceberg.append(frame.to_arrow())
        else:
            self.execute(f"insert into t values ({k}, {q})")

    def delete(self, q):
        self.rows = [row for row in self.rows if row[1] != q]
        if self.kind == "delta":
            DeltaTable(str(self.folder / "t")).delete(f"q = {q}")
        elif self.kind == "iceberg":
            self.iceberg.delete(f"q = {q}")
        else:
            self.execute(f"delete from t where q = {q}")

    @property
    def iceberg(self):
        return load_catalog("default", **properties_of(self.folder)).load_table("shop.t")

    def check(self):
        """Run, and check that this fails if there is a zero, and that the output is what there is if not."""
        if any(q == 0 for _, q in self.rows):
            with pytest.raises(InputError):
                run(self.file)
            return
        run(self.file)
        self.check_output()

    def check_output(self):
        assert self.held() == Counter((k, 100 / q) for k, q in self.rows)

    def held(self):
        if not (self.folder / "out").exists():
            return Counter()
        return Counter({tuple(row): diff for *row, diff in read_log(self.folder / "out", as_of="latest").rows()})


@pytest.mark.in_turn
@pytest.mark.parametrize(("kind", "seed"), [*some(product(KINDS, range(many(2))))])
def test_a_random_history(tmp_path, kind, seed):
    draw = random.Random(f"{SEED}-{seed}")
    table = Table(tmp_path, kind)
    for _ in range(7):
        for _ in range(draw.randrange(3)):
            table.insert(draw.randrange(3), draw.choice([0, 1, 2]))
        if draw.random() < 0.6:
            table.delete(draw.choice([0, 0, 1]))
        table.check()


def mended(folder, kind):
    """Return a table on a row of which a run has failed, and that has lost this row since."""
    table = Table(folder, kind)
    table.insert(1, 1)
    table.check()
    table.insert(2, 0)
    table.check()
    table.delete(0)
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_sees_the_same(tmp_path, kind, capsys):
    table = mended(tmp_path, kind)
    table.insert(3, 2)
    before = snapshot(tmp_path / ".dd")
    assert called(["plan", str(table.file)]) == 0
    assert called(["run", str(table.file), "--dry-run"]) == 0
    assert "1 update" in capsys.readouterr().err
    assert snapshot(tmp_path / ".dd") == before
    table.check()


@pytest.mark.parametrize("kind", ["sqlite", "delta"])
@pytest.mark.parametrize("more", [True, False])
def test_a_run_that_dies_anywhere(tmp_path, monkeypatch, kind, more):
    """Whatever operation of the store is the last one, also as files of a mirror are replaced, by others or by none."""
    table = mended(tmp_path, kind)
    if more:
        table.insert(3, 2)
    shutil.copytree(tmp_path / ".dd", tmp_path / "kept/.dd")
    shutil.copytree(tmp_path / "out", tmp_path / "kept/out")
    counted = Faulty()
    monkeypatch.setattr("ddcli.store.state.directory.Files", lambda: counted)
    run(table.file)
    dead = [at for at in counted.changes if "/tables/" in str(counted.log[at][1])]
    assert len(dead) >= 3
    for at in some([*dead, dead[-1] + 1]):
        for after in (False, True):
            for name in (".dd", "out"):
                shutil.rmtree(tmp_path / name)
                shutil.copytree(tmp_path / "kept" / name, tmp_path / name)
            faulty = Faulty(at, Dead, after)
            monkeypatch.setattr("ddcli.store.state.directory.Files", lambda faulty=faulty: faulty)
            with contextlib.suppress(Dead):
                run(table.file)
            monkeypatch.setattr("ddcli.store.state.directory.Files", Files)
            run(table.file, dry_run=True)
            run(table.file)
            table.check_output()
            assert not list((tmp_path / ".dd").rglob("*.dd-tmp")), (at, after)
            names = [path.name for path in (tmp_path / ".dd/p/tables/t").glob("*.parquet")]
            assert not any(name.startswith("000000002") for name in names), (at, after)


def test_an_error_of_a_value_names_the_table_and_the_record(tmp_path):
    table = Table(tmp_path, "duckdb")
    table.execute("create table days as select 7 as k, date '12000-01-01' as day")
    table.file.write_text("name: p\ninputs: {t: {database: duckdb:///t.db, table: days}}\noutputs: {t: out/}\n")
    with pytest.raises(InputError) as caught:
        run(table.file)
    assert "the year 12000, in the record where k = 7" in caught.value.problem
    assert (caught.value.span.line, caught.value.place) == (2, None)
