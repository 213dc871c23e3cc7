"""The chain of pipelines/shop/, from Delta Lake through Iceberg to Postgres, whose processes are killed at any moment and race."""

from __future__ import annotations

import shutil
from collections import Counter

import duckdb
import polars as pl
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.draws import EFFORT, chance, many
from tests.harness import ROOT
from tests.test_fixtures import load_script

KILLS = many(3) if EFFORT <= 1 else 200
RUN = ["run", "pipelines/shop/", "--quiet", "--if-locked", "wait"]
STAGED = "select order_id, customer_id, region, day, amount from orders join customers using (customer_id) where status <> 'cancelled'"
MARTS = f"select region, day, count(*), sum(amount)::decimal(38, 2), max(amount) from ({STAGED}) group by region, day"


def meant(folder, query):
    """Return what DuckDB computes of the two tables of Delta Lake."""
    with duckdb.connect() as connection:
        for name in ("orders", "customers"):
            connection.register(name, pl.read_delta(str(folder / "build/shop" / name)).to_arrow())
        return Counter(connection.sql(query).fetchall())


def staged(folder):
    """Return the table of Iceberg as its package reads it."""
    catalog = load_catalog("shop", type="sql", uri="sqlite:///build/shop/catalog.db", warehouse="build/shop/warehouse")
    return catalog.load_table("staging.orders_by_region")


def commits(table):
    """Return the numbers of our commits that the snapshots of a table have, as they follow each other."""
    summaries = [each.summary.additional_properties for each in table.metadata.snapshots]
    return [int(value) >> 20 for summary in summaries for name, value in summary.items() if name.startswith("dd/")]


def test_a_chain_that_is_killed(tmp_path, nursery, execute, monkeypatch):
    """Days come in between; in the end each commit was made once, and both tables are what the first ones add up to."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "pipelines/shop", tmp_path / "pipelines/shop", ignore=shutil.ignore_patterns(".dd"))
    make, draw, shop = load_script("make_shop"), chance("chain"), tmp_path / "build/shop"
    make.add_day(shop, 20)
    (end,) = nursery.run(tmp_path, {"command": RUN})
    assert end["code"] == 0, end
    usual, killed = end["seconds"], 0
    while killed < KILLS:
        if draw.random() < 0.5:
            make.add_day(shop, 20)
        racing = [{"command": RUN, "kill": draw.uniform(0, usual * 1.2)}]
        if draw.random() < 0.3:
            racing.append({"command": RUN, "kill": draw.uniform(0, usual * 2)})
        ends = nursery.run(tmp_path, *racing)
        assert {end["code"] for end in ends} <= {0, -9}, ends
        killed += sum(end["code"] == -9 for end in ends)
        usual = usual * 1.1 if ends[0]["code"] else max(usual / 1.2, ends[0]["seconds"])
    make.add_day(shop, 20)
    ends = nursery.run(tmp_path, {"command": RUN}, {"command": RUN})
    assert [end["code"] for end in ends] == [0, 0], ends
    table = staged(tmp_path)
    assert Counter(pl.DataFrame(table.scan().to_arrow()).rows()) == meant(tmp_path, STAGED)
    assert commits(table) == sorted(set(commits(table)))
    found = execute("select region, day, orders, revenue, largest from revenue")
    assert Counter(found) == meant(tmp_path, MARTS)
    assert len(found) > 4
    assert DeltaTable(str(shop / "orders")).version() > 4
    (made,) = execute("select count(*) from dd_commits")
    assert made == (1,)
