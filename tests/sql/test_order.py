"""A query's `order by` without a limit: the order in which `dd log --as-of` shows outputs, and in which tables in files have their rows."""

import json

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import ddcli
from ddcli.expressions.types import parse_order
from tests.draws import chance, many
from tests.tables.followers import small_files
from tests.tables.histories import properties_of

PIPELINE = """\
dd: 1
name: shop
inputs: {sales: in/}
collections:
  ordered:
    sql: |
      QUERY
outputs:
  ordered: OUTPUT
"""
COLUMNS = {"a": pl.Int64, "b": pl.Float64, "s": pl.String, "time": pl.Int64, "diff": pl.Int64}
VALUES = [None, *range(5)], [None, 0.5, -1.0, float("nan"), float("inf")], [None, "", "x", "Y", "é", "xx"]
QUERIES = (
    "select a, b, s from sales",
    "select distinct s, a % 3 as a, b from sales",
    "select a, count(*) as b, min(s) as s from sales group by a",
    "select a, b, s from sales union all select a + 1, b, upper(s) from sales",
    "with t as (select * from sales) select s, b, a from t where a is not null",
)
WAYS = ("", " asc", " desc", " nulls first", " desc nulls last", " desc nulls first", " nulls last")
TOTALS = "select s, a, count(*) as n from sales group by s, a"


def supply(shop, draw, step, rows=30):
    """Write random rows at a time, with nulls, and equal ones among them; return all so far, each as often as it is there."""
    found = [(*map(draw.choice, VALUES), step, draw.choice([1, 1, 2])) for _ in range(rows)]
    shop.log(f"in/{step}.parquet", found, **COLUMNS)
    sales = pl.read_parquet(shop.folder / "in/*.parquet")
    return repeated(sales, ["a", "b", "s"])


def repeated(rows, names):
    """Return columns of records, each as often as it is there."""
    return rows.select(pl.col(names).repeat_by("diff").list.explode()) if rows.height else rows.select(names)


def draw_order(draw):
    """Return the columns of an order, and the order."""
    names = draw.sample(["a", "b", "s"], draw.randint(1, 3))
    return names, ", ".join(name + draw.choice(WAYS) for name in names)


def ordered(sales, query, names, order):
    """Return columns of a query's rows in an order, as DuckDB has them."""
    with duckdb.connect() as database:
        database.register("sales", sales.to_arrow())
        return database.sql(f"select {', '.join(names)} from ({query}) order by {order}").pl()


@pytest.mark.parametrize("query", QUERIES)
def test_random_orders(shop, query):
    """After each commit, and after the oldest are summed up, the log shows its contents in the order in which DuckDB has them."""
    draw = chance("orders", query)
    for seed in range(many(2)):
        names, written = draw_order(draw)
        shop.write("p.yaml", PIPELINE.replace("QUERY", f"{query} order by {written}").replace("OUTPUT", f"out/{seed}/"))
        for step in range(2):
            sales = supply(shop, draw, step)
            assert shop("run", "p.yaml", "--state", f"state{seed}").code == 0
            found = ddcli.read_log(f"out/{seed}", as_of="latest")
            meant = ordered(sales, query, names, written)
            assert repeated(found, names).equals(meant.cast(dict(found.select(names).schema))), written
            assert found.height == found.unique().height
        assert shop("log", "compact", f"out/{seed}").code == 0
        assert ddcli.read_log(f"out/{seed}", as_of="latest").equals(found)
        (shop.folder / "in/1.parquet").unlink()


def test_all_formats_are_in_the_order(shop):
    query = f"{TOTALS} order by 3 desc, s desc nulls last, a"
    shop.write("p.yaml", PIPELINE.replace("QUERY", query).replace("OUTPUT", "out/"))
    sales = supply(shop, chance("formats"), 0)
    assert shop("run", "p.yaml").code == 0
    meant = ordered(sales, TOTALS, ["s", "a", "n"], "n desc, s desc nulls last, a nulls last").rows()
    (lines, rows) = (shop("log", "out", "--as-of", "latest", "-o", form).out for form in ("jsonl", "json"))
    assert [json.loads(line) for line in lines.splitlines()] == json.loads(rows)
    assert [(row["s"], row["a"], row["n"]) for row in json.loads(rows)] == meant
    assert shop("log", "out", "--as-of", "latest", "-o", "csv").out.splitlines()[1:] == [
        f"{'' if s is None else s or chr(34) * 2},{'' if a is None else a},{n},1" for s, a, n in meant
    ]
    asked = shop("sql", query, "--from", "p.yaml", "-o", "json").out
    assert [(row["s"], row["a"], row["n"]) for row in json.loads(asked)] == meant


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_files_of_tables_are_in_the_order(shop, kind):
    """Each file by itself, of the first commit and of later ones."""
    place = {"parquet": "lake/t.parquet", "delta": "lake/t"}.get(kind)
    if place is None:
        (shop.folder / "lake").mkdir()
        listed = ", ".join(f"{key}: '{value}'" for key, value in properties_of(shop.folder / "lake").items())
        place = f"{{catalog: {{{listed}}}, table: shop.t}}"
    text = PIPELINE.replace("QUERY", f"{TOTALS} order by n desc, s nulls first")
    shop.write("p.yaml", text.replace("OUTPUT", f"{{as: table, {kind}: {place}}}"))
    draw, seen = chance("tables"), set()
    with small_files():
        for step in range(3):
            sales = supply(shop, draw, step, 20)
            assert shop("run", "p.yaml").code == 0
            files = {name: pl.read_parquet(name) for name in table_files(shop.folder / "lake", kind)}
            for rows in files.values():
                assert rows.equals(rows.sort("n", "s", descending=[True, False], nulls_last=False, maintain_order=True))
            found = pl.concat(files.values())
            assert sorted(map(str, found.rows())) == sorted(map(str, ordered(sales, TOTALS, found.columns, "1").rows()))
            seen |= {*files}
    assert any(rows.height > 2 for rows in files.values())
    assert len(seen) == 1 if kind == "parquet" else len(files) < len(seen)


def table_files(folder, kind):
    """Return the files that a table has now."""
    if kind == "delta":
        return DeltaTable(str(folder / "t")).file_uris()
    if kind == "iceberg":
        table = load_catalog("default", **properties_of(folder)).load_table("shop.t")
        return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    return [str(folder / "t.parquet")]


def test_an_edited_order_holds_from_the_next_commit(shop):
    """It changes nothing of the state, so that nothing has to be allowed or computed."""
    for step, order in enumerate(("n, s, a", "n desc, s, a")):
        shop.write("p.yaml", PIPELINE.replace("QUERY", f"{TOTALS} order by {order}").replace("OUTPUT", "out/"))
        if step:
            assert "nothing new" in shop("run", "p.yaml").out + shop("run", "p.yaml").err
        sales = supply(shop, chance("edited"), step)
        for _ in range(2):  # the second finds nothing new, the third has what was kept of the plan
            assert shop("run", "p.yaml").code == 0
        keys = ", ".join(f"{key} nulls last" for key in order.split(", "))
        found = ddcli.read_log("out", as_of="latest").drop("diff")
        assert found.rows() == ordered(sales, TOTALS, ["s", "a", "n"], keys).rows()


NOTES = {
    "select a, b from sales order by b desc, a": "only sets the order in which `dd log --as-of` and tables in files show its rows",
    "select a, b from sales order by sales.s": "so only `dd sql` can show it",
    "select a as b from sales order by sales.b": "so only `dd sql` can show it",
    "select a, b from sales order by b desc, a + 1": "so only `dd sql` can show it",
    "select a, b from sales order by b\n    apply: [distinct]": "changes nothing here",
    "select a, b from (select * from sales order by a)": "changes nothing here",
}


@pytest.mark.parametrize(("query", "note"), NOTES.items())
def test_check_notes_what_becomes_of_an_order(shop, query, note):
    """And only where the note says so are rows shown in it."""
    shop.write("p.yaml", PIPELINE.replace("QUERY", query).replace("OUTPUT", "out/"))
    sales = supply(shop, chance("notes"), 0)
    (line,) = [line for line in shop("check", "p.yaml").err.splitlines() if "note:" in line]
    assert line.startswith("p.yaml:7:")
    assert note in line
    assert shop("run", "p.yaml").code == 0
    assert ("order" in json.loads((shop.folder / "out/_progress.json").read_text())["owner"]) == (
        "show its rows" in note
    )
    assert len(sales)


def test_an_order_that_others_wrote(shop):
    """One that is none, or is by columns that the log has not, counts as none."""
    shop.write("p.yaml", PIPELINE.replace("QUERY", f"{TOTALS} order by n").replace("OUTPUT", "out/"))
    supply(shop, chance("others"), 0)
    assert shop("run", "p.yaml").code == 0
    path = shop.folder / "out/_progress.json"
    progress = json.loads(path.read_text())
    assert parse_order(progress["owner"]["order"]) == (("n", False, True),)
    for order in ([["m", True, True]], "n", [["n"]], [["n", 1, True]], [[["n"], True, True]], {"n": True}, None, [0]):
        progress["owner"]["order"] = order
        path.write_text(json.dumps(progress))
        found = ddcli.read_log("out", as_of="latest")
        assert found.equals(found.sort("s", "a", "n", nulls_last=True))
