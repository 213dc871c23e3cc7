"""NaN and the infinities in JSON: told from null and from each other, and read back as they were."""

import datetime as dt
import io
import json
import math

import duckdb
import polars as pl
import pytest

from ddcli.render.rows import write_rows

VALUES = [1.5, math.nan, math.inf, -math.inf, None, 0.0, 1e300]
SAID = [1.5, "NaN", "Infinity", "-Infinity", None, 0.0, 1e300]
TYPES = {"id": pl.Int64, "x": pl.Float64, "small": pl.Float32, "list": pl.List(pl.Float64)}
PIPELINE = """\
dd: 1
name: floats
inputs:
  floats: {path: PATH, COLUMNS}
collections:
  kept: {from: floats, apply: [distinct]}
outputs:
  kept: OUT
"""


def same(values, others):
    """Return whether values are the same, NaN being itself."""
    return [repr(value) for value in values] == [repr(value) for value in others]


@pytest.fixture
def floats(shop):
    rows = [(at, value, 0.1 if at == 0 else value, [value, None, 2.0], 0, 1) for at, value in enumerate(VALUES[:-1])]
    shop.log("floats/1.parquet", [*rows, (6, VALUES[6], None, None, 0, 1)], **TYPES, time=pl.Int64, diff=pl.Int64)
    shop.write("floats.yaml", PIPELINE.replace("PATH, COLUMNS", "floats/").replace("OUT", "out/"))
    return shop


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_a_log_says_which_it_is(floats, form):
    result = floats("log", "floats", "-o", form)
    rows = json.loads(result.out) if form == "json" else list(map(json.loads, result.out.splitlines()))
    assert same([row["x"] for row in rows], SAID)
    assert same([row["small"] for row in rows], [0.1, *SAID[1:6], None])
    assert [row["list"] for row in rows] == [*([value, None, 2.0] for value in SAID[:6]), None]
    assert "NaN" not in result.out.replace('"NaN"', "")


def test_without_such_values_it_says_the_same():
    """A batch that has none of them is written by polars, one that has some by us: nobody sees which."""
    plain = pl.DataFrame({"a": 0.1, "b": 1e16, "c": "é\n", "d": dt.date(2024, 1, 2), "e": [None], "f": [[1, None]]})
    plain = plain.with_columns(pl.col("b").cast(pl.Float32).alias("g"), pl.lit(dt.time(3)).alias("h"))
    alone, both = io.BytesIO(), io.BytesIO()
    write_rows([plain], "jsonl", alone)
    write_rows([plain.vstack(plain.with_columns(a=pl.lit(math.nan)))], "jsonl", both)
    line = alone.getvalue().decode()
    assert both.getvalue().decode() == line + line.replace("0.1", '"NaN"')


def test_ndjson_is_read_back(floats):
    """As an input of ours, and by DuckDB."""
    lines = floats("log", "floats", "-o", "jsonl").out
    floats.write("back/1.ndjson", lines)
    columns = "columns: {id: int64, x: 'float64?', small: 'float32?'}"
    floats.write("back.yaml", PIPELINE.replace("PATH, COLUMNS", f"back/, {columns}").replace("OUT", "again/"))
    assert floats("run", "back.yaml").code == 0
    again = pl.read_parquet(floats.folder / "again" / "*.parquet").sort("id")
    assert same(again["x"], VALUES)
    assert same(again["small"], pl.Series([0.1, *VALUES[1:6], None], dtype=pl.Float32))
    path = floats.folder / "back" / "1.ndjson"
    found = duckdb.sql(f"select x from read_json('{path}', columns={{id: 'BIGINT', x: 'DOUBLE'}}) order by id")
    assert same([value for (value,) in found.fetchall()], VALUES)


def test_a_table_is_converted_and_back(floats):
    assert floats("convert", "floats", "table.ndjson", "--as-of", "latest").code == 0
    rows = map(json.loads, (floats.folder / "table.ndjson").read_text().splitlines())
    assert sorted(map(repr, (row["x"] for row in rows))) == sorted(map(repr, SAID))


def test_the_other_commands_say_the_same(floats):
    assert floats("run", "floats.yaml").code == 0
    (row,) = json.loads(floats("query", "floats.yaml", "kept", "id=3", "-o", "json").out)
    assert (row["x"], row["list"]) == ("-Infinity", ["-Infinity", None, 2.0])
    (why,) = json.loads(floats("why", "floats.yaml", "kept", "id=1", "-o", "json").out)["records"]
    (reason,) = why["reason"]["because"]
    assert why["record"]["x"] == reason["updates"][0]["record"]["x"] == "NaN"
    floats.log("other/1.parquet", [(1, 7.0, None, [math.nan], 0, 1)], **TYPES, time=pl.Int64, diff=pl.Int64)
    found = json.loads(floats("diff", "out", "other", "--key", "id", "-o", "json").out)
    (changed,) = [each for each in found["changes"] if each["change"] == "changed"]
    assert changed["cells"]["x"] == {"old": "NaN", "new": 7.0}
    assert changed["cells"]["list"] == {"old": ["NaN", None, 2.0], "new": ["NaN"]}
