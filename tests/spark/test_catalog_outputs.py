"""Tables of Spark's catalogs that follow outputs: they have what the log adds up to, whatever dies in between, and are written by one output alone."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl
import pyspark
import pytest

from ddcli.driver.run import run
from ddcli.errors import EngineError, StateError, UsageError
from ddcli.store.targets.spark_table import SparkTable
from tests.draws import chance, many
from tests.harness import called, contents, write_log
from tests.store.support import Dead
from tests.tables.followers import COLUMNS, Follower

MERGING = Path(__file__).with_name("MergeCatalog.java")
PIPELINE = """\
dd: 1
name: shop
inputs: {{sales: in/}}
collections:
  totals: {{from: sales, apply: [{{reduce: {{by: [city], n: count(*), total: sum(amount)}}}}]}}
outputs:
  t: {{from: {source}, as: table, spark: {table}{key}}}
"""
KINDS = {
    "whole": ("sales", "shop.t", ""),
    "parts": ("sales", "shop.t", ""),
    "merged": ("totals", "lake.shop.t", ", key: city"),
}
"""Tables that are overwritten, in partitions, and merged into."""


@pytest.fixture
def session(spark):
    """Return a session with a catalog of tables that Spark can merge into; overwriting keeps other partitions by default."""
    from pyspark.sql import SparkSession

    found = SparkSession(spark.context).newSession()
    classes = Path(spark.context.getConf().get("spark.driver.extraClassPath"))
    if shutil.which("javac") and not any(classes.iterdir()):
        jars = Path(pyspark.__file__).parent / "jars/*"
        subprocess.run(["javac", "-nowarn", "-d", classes, "-cp", str(jars), MERGING], check=True, capture_output=True)
    found.conf.set("spark.sql.catalog.lake", "MergeCatalog")
    found.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    found.sql("create database if not exists shop")
    yield found
    found.sql("drop table if exists shop.t")
    if any(classes.iterdir()):
        found.sql("drop table if exists lake.shop.t")


class SparkFollower(Follower):
    """A folder with a pipeline whose output is a table of Spark."""

    def __init__(self, folder, session, kind):
        super().__init__(folder, "parquet")
        if kind == "merged" and not shutil.which("javac"):
            pytest.skip("a catalog with merge is compiled by javac")
        self.session, self.kind = session, kind
        self.source, self.table, self.unique = KINDS[kind]
        text = PIPELINE.format(source=self.source, table=self.table, key=self.unique)
        (folder / "shop.yaml").write_text(text)
        session.sql(f"drop table if exists {self.table}")
        if kind == "parts":
            session.sql(f"create table {self.table} (amount bigint, city string) using parquet partitioned by (city)")

    def run(self, files=None, **options):
        return super().run(files, spark=self.session, **options)

    def meant(self):
        rows = Counter(contents(self.folder / "in"))
        if self.source == "sales":
            return rows
        cities = {city for city, _ in rows}
        totals = [(each, [(n, amount) for (city, amount), n in rows.items() if city == each]) for each in cities]
        return Counter(
            (city, sum(n for n, _ in found), sum(n * amount for n, amount in found)) for city, found in totals
        )

    def read(self):
        names = "city, amount" if self.source == "sales" else "city, n, total"
        return Counter(map(tuple, self.session.sql(f"select {names} from {self.table}").collect()))


@contextmanager
def dying(at=None, *, after=False):
    """Have the run die before, or after, this one of the steps in which Spark changes the table; yield those that have begun."""
    begun = []
    with pytest.MonkeyPatch.context() as patch:

        def step(name):
            real = getattr(SparkTable, name)

            def stepped(self, *given):
                here = len(begun) == at
                begun.append(name)
                if here and not after:
                    raise Dead
                real(self, *given)
                if here:
                    raise Dead

            patch.setattr(SparkTable, name, stepped)

        for name in ("_state_commit", "_overwrite", "_merge"):
            step(name)
        yield begun


@pytest.mark.in_turn(9)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_what_its_log_adds_up_to(session, tmp_path, kind):
    draw, each = chance("tables that spark writes", kind), SparkFollower(tmp_path, session, kind)
    for step in range(3):
        each.supply(draw)
        with dying() as steps:
            each.run()
        each.check()
        assert ("_merge" in steps) == (kind == "merged" and step > 0)
    assert not each.run().changed


@pytest.mark.in_turn(9)
@pytest.mark.parametrize("kind", ["whole", "merged"])
def test_a_commit_is_made_once_whenever_a_run_dies(session, tmp_path, kind):
    """It dies before or after a step of Spark's, in the first commit or a later one; perhaps other rows come before the next run."""
    draw = chance("deaths of spark tables", kind)
    each = SparkFollower(tmp_path, session, kind)
    deaths = list(itertools.product(range(3), (False, True)))
    for at, after in draw.sample(deaths, min(many(3), len(deaths))):
        each.supply(draw)
        with suppress(Dead), dying(at, after=after) as begun:
            each.run()
        assert len(begun) == at + 1
        if draw.random() < 0.5:
            each.supply(draw)
        each.run()
        each.check()


@pytest.mark.in_turn(9)
def test_a_state_that_was_left_behind_brings_the_table_to_what_it_knows(session, tmp_path):
    each, draw = SparkFollower(tmp_path / "shop", session, "merged"), chance("copies of states")
    each.supply(draw)
    each.run()
    shutil.copytree(each.folder / ".dd", tmp_path / "older")
    each.supply(draw)
    each.run()
    shutil.rmtree(each.folder / ".dd")
    shutil.move(tmp_path / "older", each.folder / ".dd")
    each.supply(draw)
    each.run()
    each.check()


@pytest.mark.in_turn(9)
def test_rows_of_others_are_refused_and_lost_ones_come_back(session, tmp_path):
    each, draw = SparkFollower(tmp_path / "shop", session, "whole"), chance("rows of others")
    each.supply(draw)
    session.sql("create table shop.t (city string, amount bigint) using parquet")
    session.sql("insert into shop.t values ('x', 1)")
    for _ in range(2):
        with pytest.raises(
            StateError, match=r"outputs\.t\.spark: the table has rows that this pipeline has not written"
        ):
            each.run()
    assert sum(each.read().values()) == 1
    session.sql("truncate table shop.t")
    each.run()
    each.check()
    other = each.folder / "other.yaml"
    other.write_text((each.folder / "shop.yaml").read_text().replace("name: shop", "name: other"))
    with pytest.raises(StateError, match="another output writes the table, too"):
        run(other, spark=session)
    session.sql("truncate table shop.t")
    each.supply(draw)
    each.run()
    each.check()
    session.sql("alter table shop.t add columns (note string)")
    each.supply(draw)
    with pytest.raises(StateError, match="the table has city string, amount bigint, note string"):
        each.run()
    session.sql("drop table shop.t")
    each.run()
    each.check()


@pytest.mark.in_turn(9)
def test_records_that_a_table_can_not_hold_are_refused(session, tmp_path):
    """Negative ones, two of one key and one without its key: in the first commit, and later."""
    for source, key, rows, problem in (
        ("sales", "", [("a", 1, -1)], "a negative multiplicity, and a table can't hold it: city = a, amount = 1"),
        ("sales", ", key: city", [("b", 1, 1), ("b", 2, 1)], "several records have one key: city = b"),
        ("sales", ", key: city", [(None, 1, 1)], "a record has a null in its key: city = None"),
    ):
        for first in (True, False):
            each = SparkFollower(tmp_path / f"{problem[:20]}{first}", session, "merged")
            each.source, each.unique = source, key
            (each.folder / "shop.yaml").write_text(PIPELINE.format(source=source, table=each.table, key=key))
            if not first:
                write_log(each.folder / "in/0.parquet", [("b", 3, 0, 1)], COLUMNS)
                each.run()
            found = [(city, amount, 1, diff) for city, amount, diff in rows]
            write_log(each.folder / "in/1.parquet", found[: 1 if not first and "several" in problem else None], COLUMNS)
            with pytest.raises(EngineError, match=problem) as caught:
                each.run()
            assert "the table stays as it was" in caught.value.hint
            gone = [(*row[:2], 2, -row[3]) for row in found[: 1 if not first and "several" in problem else None]]
            write_log(each.folder / "in/2.parquet", gone, COLUMNS)
            each.run()
            assert each.read() == Counter(contents(each.folder / "in"))


def test_kinds_of_tables_that_can_not_follow_are_named(session, tmp_path, monkeypatch):
    each = SparkFollower(tmp_path, session, "whole")
    each.supply(chance("kinds"))
    file = each.folder / "shop.yaml"
    file.write_text(PIPELINE.format(source="totals", table="shop.t", key=", key: city"))
    with pytest.raises(EngineError, match="Spark can't merge into a table of this kind") as caught:
        each.run()
    assert "leave `key` out" in caught.value.hint
    session.conf.set("spark.sql.catalog.db", "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog")
    session.conf.set("spark.sql.catalog.db.url", "jdbc:derby:memory:shop;create=true")
    session.conf.set("spark.sql.catalog.db.driver", "org.apache.derby.jdbc.EmbeddedDriver")
    file.write_text(PIPELINE.format(source="totals", table="db.APP.T", key=""))
    with pytest.raises(EngineError, match="its catalog keeps no properties of tables"):
        each.run()
    with pytest.raises(UsageError, match="this is a table of Spark, and no Spark is named"):
        run(file)
    for wrong in ("{spark: shop.t}", "{as: log, spark: shop.t}", "{as: history, key: id, spark: shop.t}"):
        file.write_text(f"name: p\ninputs: {{t: in/}}\noutputs: {{t: {wrong}}}\n")
        assert called(["check", str(file)]) == 2


def test_values_come_back_as_they_were(session, tmp_path):
    frame = pl.DataFrame(
        {
            "i": pl.Series([1, None], dtype=pl.Int16),
            "x": [0.1, None],
            "d": pl.Series(["1.50", None]).cast(pl.Decimal(9, 2)),
            "s": ["ä'\\", None],
            "at": pl.Series([1, None]).cast(pl.Datetime("us")),
            "zoned": pl.Series([1, None]).cast(pl.Datetime("us", "UTC")),
            "tags": [[1, None], None],
            "place": [{"x": 1, "name": "b"}, {"x": None, "name": None}],
            "time": [0, 0],
            "diff": [2, 1],
        }
    )
    (tmp_path / "in").mkdir()
    frame.write_parquet(tmp_path / "in/0.parquet")
    (tmp_path / "p.yaml").write_text("name: p\ninputs: {t: in/}\noutputs: {t: {as: table, spark: shop.t}}\n")
    run(tmp_path / "p.yaml", spark=session)
    found = pl.DataFrame(session.table("shop.t").orderBy("s").toArrow())
    meant = frame.drop("time", "diff")[[1, 0, 0]]
    assert found.cast(meant.schema).select(meant.columns).rows() == meant.rows()
