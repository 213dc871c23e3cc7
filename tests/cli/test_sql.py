"""`dd sql` and `dd functions`: what they print, in which order, as of when, and what they refuse."""

import json

import polars as pl

from tests.harness import snapshot

PIPELINE = """\
inputs: {orders: {path: in/}}
collections:
  totals: {sql: "select customer, sum(amount) as total from orders group by customer"}
outputs:
  totals: out/totals/
"""
TYPES = {"customer": pl.String, "amount": pl.Int64, "time": pl.Int64, "diff": pl.Int64}


def shopped(shop):
    shop.write("p.yaml", PIPELINE)
    shop.log("in/1.parquet", [("ann", 3, 0, 1), ("bob", 5, 0, 2), ("cid", None, 1, 1)], **TYPES)
    return lambda query, *more: shop("sql", query, "--from", "p.yaml", *more)


def test_an_answer_is_as_of_the_last_commit_and_commits_nothing(shop):
    sql = shopped(shop)
    query = "select customer, total from totals order by total desc, customer"
    rows = [{"customer": "cid", "total": None}, {"customer": "bob", "total": 10}, {"customer": "ann", "total": 3}]
    assert json.loads(sql(query, "-o", "json").out) == rows  # as a first run would have it
    assert shop("run", "p.yaml").code == 0
    shop.log("in/2.parquet", [("ann", 20, 5, 1)], **TYPES)
    before = snapshot(shop.folder)
    assert json.loads(sql(query, "-o", "json").out) == rows
    latest = sql("select customer from totals order by total desc nulls last limit 1", "--as-of", "latest")
    assert latest.out.split() == ["customer", "ann"]
    assert sql("select count(*) as n from orders", "--as-of", "0", "-o", "csv").out == "n\n3\n"
    assert snapshot(shop.folder) == before


def test_rows_stand_as_often_as_they_are_there_in_the_order_that_is_asked_for(shop):
    sql = shopped(shop)
    assert sql("select customer from orders order by amount desc, customer desc", "-o", "csv").out.split() == [
        "customer", "cid", "bob", "bob", "ann",
    ]  # fmt: skip
    assert sql("select distinct amount as a from orders order by a nulls first", "-o", "csv").out.split("\n")[1:4] == ["", "3", "5"]  # fmt: skip
    cut = sql("select amount from orders", "--limit", "2")
    assert cut.out.split() == ["amount", "3", "5"]
    assert "cut by --limit: there are 4 rows" in cut.err


def test_a_mistake_is_shown_at_its_place(shop):
    sql = shopped(shop)
    wrong = sql("select customer,\n  totl from totals")
    assert wrong.code == 2
    assert wrong.err.startswith("query:2:3: error: no column is named `totl`")
    other = sql("select 1 as x from total")
    assert other.code == 2
    assert "hint: did you mean `totals`?" in other.err
    open_ = sql("select 1 as x from orders", "--as-of", "7")
    assert open_.code == 0  # without a state the inputs have no end
    assert shop("run", "p.yaml").code == 0
    assert "7 is not closed" in sql("select 1 as x from orders", "--as-of", "7").err


def test_functions_are_listed_and_searched(shop):
    found = shop("functions", "strpos")
    assert found.out.splitlines()[0] == "strpos(text: string, part: string) -> int64"
    listed = json.loads(shop("functions", "-o", "json").out)
    assert {"substring", "sum", "/"} <= {each["name"] for each in listed}
    assert next(each for each in listed if each["name"] == "/")["elsewhere"][0]["duckdb"] == "2.5e0"
    missing = shop("functions", "subtring")
    assert (missing.code, missing.err) == (1, "no function has 'subtring' in it\nhint: did you mean 'substring'?\n")
