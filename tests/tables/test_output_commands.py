"""What commands do about outputs that are tables."""

import json
import shutil

import polars as pl
import pytest

from tests.harness import snapshot

PIPELINE = """\
dd: 1
name: shop
clock: arrival
inputs: {sales: in/*.csv}
collections:
  totals: {from: sales, apply: [{reduce: {by: city, n: count(*)}}]}
outputs:
  totals: {as: table, delta: lake/totals}
  file: {from: totals, as: table, parquet: lake/totals.parquet, path: out/totals}
"""
HEAVY = {"polars", "numpy", "deltalake", "pyarrow", "pyiceberg"}


@pytest.fixture
def tables(shop):
    """Return a folder with a pipeline whose outputs are tables, after its first run."""
    text = PIPELINE.replace("in/*.csv", "{path: in/*.csv, columns: {city: string}}")
    shop.write("shop.yaml", text)
    shop.write("in/1.csv", "city\nRome\nOslo\nRome\n")
    done = shop("run", "shop.yaml")
    assert done.code == 0, done.err
    assert "  table  totals -> lake/totals\n  table  file -> lake/totals.parquet\n" in done.err
    return shop


def read(shop):
    """Return what both tables have, which is the same."""
    found = [pl.read_delta(str(shop.folder / "lake/totals")), pl.read_parquet(shop.folder / "lake/*.parquet")]
    one, other = (frame.sort("city").rows() for frame in found)
    assert one == other
    return one


def write_anew(shop):
    """Remove the tables: a run writes them with all that they are to have."""
    shutil.rmtree(shop.folder / "lake")
    assert shop("run", "shop.yaml").code == 0
    assert read(shop) == [("Oslo", 1), ("Rome", 2)]


def test_a_run_with_nothing_new_changes_nothing_and_imports_nothing_heavy(tables):
    before = snapshot(tables.folder)
    done = tables.importing(HEAVY, "run", "shop.yaml")
    assert "nothing new" in done.err
    assert done.out == "[]\n"
    assert snapshot(tables.folder) == before


def test_the_summary_has_the_tables(tables):
    assert json.loads(tables("run", "shop.yaml", "-o", "json").out)["tables"] == {}
    tables.write("in/2.csv", "city\nCork\n")
    dry = json.loads(tables("run", "shop.yaml", "-o", "json", "--dry-run").out)
    assert (dry["changed"], dry["tables"]) == (True, {})
    assert read(tables) == [("Oslo", 1), ("Rome", 2)]
    done = json.loads(tables("run", "shop.yaml", "-o", "json").out)
    assert done["tables"] == {"totals": "lake/totals", "file": "lake/totals.parquet"}
    assert read(tables) == [("Cork", 1), ("Oslo", 1), ("Rome", 2)]
    shutil.rmtree(tables.folder / "lake/totals")
    done = tables("run", "shop.yaml")
    assert "nothing new" in done.err
    assert "  table  totals -> lake/totals\n" in done.err
    assert read(tables) == [("Cork", 1), ("Oslo", 1), ("Rome", 2)]


def test_a_changed_pipeline_changes_the_tables(tables):
    file = tables.folder / "shop.yaml"
    file.write_text(file.read_text().replace("n: count(*)", "n: 10 * count(*)"))
    assert tables("run", "shop.yaml").code == 4
    assert read(tables) == [("Oslo", 1), ("Rome", 2)]
    assert tables("run", "shop.yaml", "--apply").code == 0
    assert read(tables) == [("Oslo", 10), ("Rome", 20)]
    file.write_text(file.read_text().replace("n: 10 * count(*)", "many: count(*)"))
    done = tables("run", "shop.yaml", "--rewrite", "totals", "--rewrite", "file")
    assert done.code == 4
    assert "outputs.totals.delta: the table has other columns than the output" in done.err
    write_anew(tables)


def test_a_reset_names_the_tables_that_stay(tables):
    done = tables("reset", "shop.yaml", "--outputs", "--yes")
    assert (
        "note: the table of the output 'totals' stays, and a new state refuses to write to it: lake/totals" in done.out
    )
    assert not (tables.folder / ".dd/shop").exists()
    assert read(tables) == [("Oslo", 1), ("Rome", 2)]
    done = tables("run", "shop.yaml")
    assert done.code == 4
    assert "the table has rows that this pipeline has not written" in done.err
    write_anew(tables)


def test_an_output_that_becomes_a_table_has_all_that_its_log_has(shop):
    text = PIPELINE.replace("in/*.csv", "{path: in/*.csv, columns: {city: string}}")
    log = "outputs: {totals: out/t, file: {from: totals, path: out/totals}}"
    shop.write("shop.yaml", text.partition("outputs:")[0] + log + "\n")
    shop.write("in/1.csv", "city\nRome\nOslo\nRome\n")
    assert shop("run", "shop.yaml").code == 0
    shop.write("shop.yaml", text.replace("delta: lake/totals}", "delta: lake/totals, path: out/t}"))
    done = shop("run", "shop.yaml")
    assert done.code == 0, done.err
    assert read(shop) == [("Oslo", 1), ("Rome", 2)]


def test_an_output_that_was_left_out_for_a_while(tables):
    file = tables.folder / "shop.yaml"
    text = file.read_text()
    file.write_text(text.replace("  totals: {as: table, delta: lake/totals}\n", ""))
    tables.write("in/2.csv", "city\nRome\n")
    assert tables("run", "shop.yaml").code == 0
    assert not [*(tables.folder / ".dd/shop/logs/totals").glob("*.parquet")]
    file.write_text(text)
    done = tables("run", "shop.yaml")
    assert done.code == 0, done.err
    assert read(tables) == [("Oslo", 1), ("Rome", 3)]


def test_a_file_that_others_have_replaced_is_seen_with_nothing_new(tables):
    path = tables.folder / "lake/totals.parquet"
    path.write_bytes(b"something else")
    done = tables("run", "shop.yaml")
    assert done.code == 4
    assert "lake/totals.parquet: error: outputs.file.parquet: the file can't be read" in done.err
    path.unlink()
    assert tables("run", "shop.yaml").code == 0
    assert read(tables) == [("Oslo", 1), ("Rome", 2)]


def test_another_pipeline_reads_a_table_that_is_an_output(tables):
    text = "name: next\nclock: arrival\ninputs: {t: {delta: lake/totals}}\noutputs: {t: {path: out/next}}\n"
    tables.write("next.yaml", text)
    assert tables("run", "next.yaml").code == 0
    tables.write("in/2.csv", "city\nRome\n")
    for file in ("shop.yaml", "next.yaml"):
        assert tables("run", file).code == 0
    log = pl.read_parquet(tables.folder / "out/next/*.parquet")
    last = log.filter(pl.col("time") == log["time"].max()).sort("diff")
    assert last.select("city", "n", "diff").rows() == [("Rome", 2, -1), ("Rome", 3, 1)]


@pytest.mark.parametrize("command", [["state", "verify"], ["state", "ls"], ["plan"], ["explain"], ["log"]])
def test_commands_that_look(tables, command):
    place = "out/totals" if command == ["log"] else "shop.yaml"
    done = tables(*command, place)
    assert done.code == 0, done.err
