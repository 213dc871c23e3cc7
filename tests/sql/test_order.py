"""A query's `order by` without a limit: the order in which `dd log --as-of` shows outputs and tables in files have their rows."""

import json
from functools import partial

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import ddcli
from ddcli.store.row_order import in_order, parse_order
from tests.draws import chance, many
from tests.tables.followers import small_files
from tests.tables.histories import properties_of

PIPELINE = """\
dd: 1
name: shop
inputs: {{sales: in/}}
collections:
  ordered:
    sql: |
      {query}
outputs:
  ordered: {output}
"""
COLUMNS = {"a": pl.Int64, "b": pl.Float64, "s": pl.String, "time": pl.Int64, "diff": pl.Int64}
QUERIES = (
    "select a, b, s from sales",
    "select distinct s, a % 3 as a, b from sales",
    "select a, max(b) as b, min(s) as s from sales group by a",
    "select a, b, s from sales union all select a + 1, b, upper(s) from sales",
    "with t as (select * from sales) select s, b, a from t where a is not null",
)
WAYS = ("", " asc", " desc", " nulls first", " desc nulls last", " desc nulls first", " nulls last")
SHOWN = "is that in which `dd log --as-of` shows outputs of it"


def write_rows(shop, draw, step):
    """Write random rows at a time, with nulls, and equal ones among them."""
    values = [None, *range(5)], [None, 0.5, -1.0, float("nan"), float("inf")], [None, "", "x", "Y", "é", "xx"]
    rows = [(*map(draw.choice, values), step, draw.choice([1, 1, 2])) for _ in range(draw.randint(1, 30))]
    shop.log(f"in/{step}.parquet", rows, **COLUMNS)


def draw_order(draw):
    """Return keys, and the same with a place of nulls each: null is the largest value."""
    names, written, plain = draw.sample(["a", "b", "s"], draw.randint(1, 3)), [], []
    for name in names:
        way = draw.choice(WAYS)
        nulls = "" if "nulls" in way else " nulls first" if "desc" in way else " nulls last"
        written.append(name + way)
        plain.append(name + way + nulls)
    return names, ", ".join(written), ", ".join(plain)


def test_random_orders(shop):
    """After each commit the log's contents are in the order in which DuckDB has them."""
    for seed in range(many(5)):
        draw = chance("orders", seed)
        query, (names, written, plain) = draw.choice(QUERIES), draw_order(draw)
        text = PIPELINE.format(query=f"{query} order by {written}", output=f"out/{seed}/")
        (shop.folder / f"{seed}.yaml").write_text(text.replace("name: shop", f"name: shop{seed}").replace("in/", f"in{seed}/"))
        for step in range(2):
            write_rows(shop, draw, step)
            (shop.folder / f"in{seed}").mkdir(exist_ok=True)
            (shop.folder / f"in/{step}.parquet").rename(shop.folder / f"in{seed}/{step}.parquet")
            assert shop("run", f"{seed}.yaml").code == 0
            sales = pl.read_parquet(shop.folder / f"in{seed}/*.parquet")
            sales = sales.select(pl.col("a", "b", "s").repeat_by("diff").explode())
            with duckdb.connect() as database:
                database.register("sales", sales.to_arrow())
                meant = database.sql(f"select {', '.join(names)} from ({query}) order by {plain}").pl()
            found = ddcli.read_log(shop.folder / f"out/{seed}", as_of="latest")
            repeated = found.select(pl.col(names).repeat_by("diff").explode())
            assert repeated.equals(meant.cast(dict(repeated.schema))), (query, written)
            assert found.equals(in_order(found, (), ())), "each record once"
