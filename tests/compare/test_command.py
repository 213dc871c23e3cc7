"""`dd diff`: what it says in each form, with which exit code, and what it says to wrong use."""

import io
import json
import os
import re
from datetime import date, timedelta

import polars as pl
import pytest

from ddcli import diff
from ddcli.compare.output import markdown, show
from ddcli.errors import UsageError
from tests.compare.definition import difference

TEXT = """\
A  old.csv  3 rows  (CSV, a file)
B  new.csv  3 rows  (CSV, a file)
key  id
note: both sides are text: types inferred: id int64, region string, amount float64

rows
  same     1
  removed  1
  changed  1
  added    1

changed cells
  amount 1

~ id=2  amount: 7.0 -> 8.0
- id=3  region=null  amount=3.0
+ id=4  region="we|st"  amount=1.0

different: 1 removed, 1 changed, 1 added
"""


def test_text(shop):
    result = shop("diff", "old.csv", "new.csv", "--key", "id")
    assert (result.code, result.out, result.err) == (1, TEXT, "")


def test_the_same(shop):
    result = shop("diff", "old.csv", "old.csv")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("\nsame\n")


def test_durations_beside_text(shop):
    """Text can't be read as durations: a column without any is text on one side, and one with some is refused."""
    for name, values in (("none", [None]), ("some", [timedelta(seconds=1)])):
        column = pl.Series("a", values, dtype=pl.Duration("us"))
        pl.DataFrame([column]).write_parquet(shop.folder / f"{name}.parquet")
    shop.write("text.ndjson", '{"a": null}\n')
    result = shop("diff", "none.parquet", "text.ndjson", "--plain")
    assert (result.code, result.err) == (1, "")
    assert "same     1\n" in result.out
    result = shop("diff", "some.parquet", "text.ndjson", "--plain")
    assert (result.code, result.out) == (3, "")


@pytest.mark.parametrize("name", ["*", "^a$"])
def test_names_that_stand_for_several_columns(shop, name):
    for side, value in (("a", 1), ("b", 2)):
        pl.DataFrame({name: [value], "a": [0]}).write_parquet(shop.folder / f"{side}.parquet")
        shop.write(f"{side}.ndjson", json.dumps({name: value, "a": 0}) + "\n")
    for ending in ("parquet", "ndjson"):
        result = shop("diff", f"a.{ending}", f"b.{ending}", "--plain")
        assert (result.code, result.out) == (3, "")
        assert f"'{name}' can't be a column's name" in result.err


def test_json(shop):
    result = shop("diff", "old.csv", "new.csv", "--key", "id", "-o", "json")
    tree = json.loads(result.out)
    side = {"name": "old.csv", "kind": "CSV, a file", "rows": 3, "repeated_keys": 0}
    assert tree == {
        "same": False,
        "ok": False,
        "verdict": "different: 1 removed, 1 changed, 1 added",
        "a": side,
        "b": side | {"name": "new.csv"},
        "key": ["id"],
        "max_changed": None,
        "rows": {"same": 1, "removed": 1, "changed": 1, "added": 1},
        "cells": {"amount": 1},
        "columns": [],
        "notes": ["both sides are text: types inferred: id int64, region string, amount float64"],
        "changes": [
            {"change": "changed", "count": 1, "key": {"id": 2}, "cells": {"amount": {"old": 7.0, "new": 8.0}}},
            {"change": "removed", "count": 1, "key": {"id": 3}, "row": {"region": None, "amount": 3.0}},
            {"change": "added", "count": 1, "key": {"id": 4}, "row": {"region": "we|st", "amount": 1.0}},
        ],
        "changes_left_out": 0,
    }
    told = json.loads(shop("diff", "old.csv", "new.csv", "-o", "json", "--limit", "1").out)
    assert told["changes"] == [{"change": "removed", "count": 1, "row": {"id": 2, "region": "south", "amount": 7.0}}]
    assert told["changes_left_out"] == 3


def test_the_help_has_the_shape_of_the_json(shop):
    shown = shop("diff", "--help").out
    for name in json.loads(shop("diff", "old.csv", "new.csv", "-o", "json").out):
        assert f'"{name}"' in shown


def test_json_lines_are_all_changes(shop):
    shop.write("many.csv", "id,region,amount\n" + "".join(f"{at},x,1\n" for at in range(100, 200)))
    result = shop("diff", "old.csv", "many.csv", "--key", "id", "-o", "jsonl")
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["key"]["id"] for line in lines] == [1, 2, 3, *range(100, 200)]
    assert len(shop("diff", "old.csv", "many.csv", "-o", "jsonl", "--limit", "7").out.splitlines()) == 7


def test_values_that_json_has_no_word_for(shop):
    frame = pl.DataFrame(
        {
            "id": [1],
            "nan": [float("nan")],
            "price": pl.Series(["1.10"]).cast(pl.Decimal(9, 2)),
            "at": pl.Series([1]).cast(pl.Datetime("ns")),
            "bin": [b"\xff"],
            "took": pl.Series([1]).cast(pl.Duration("ns")),
            "list": [[1, None]],
            "struct": [{"x": "y"}],
        }
    )
    frame.write_parquet("a.parquet")
    frame.clear().write_parquet("b.parquet")
    result = shop("diff", "a.parquet", "b.parquet", "--key", "id", "-o", "jsonl")
    assert json.loads(result.out)["row"] == {
        "nan": "NaN",
        "price": "1.10",
        "at": "1970-01-01 00:00:00.000000001",
        "bin": "ff",
        "took": "PT0.000000001S",
        "list": [1, None],
        "struct": {"x": "y"},
    }
    for form in ("text", "markdown", "html"):
        assert shop("diff", "a.parquet", "b.parquet", "--key", "id", "-o", form).code == 1


def test_parquet_is_a_log_that_dd_reads(shop):
    with (shop.folder / "changes.parquet").open("wb") as out:
        assert (
            shop.process(
                "diff", "old.csv", "new.csv", "-k", "id", "-o", "parquet", stdout=out, capture_output=False
            ).code
            == 1
        )
    log = pl.read_parquet("changes.parquet")
    assert log.schema == {"id": pl.Int64, "region": pl.String, "amount": pl.Float64, "time": pl.Int64, "diff": pl.Int64}
    assert sorted(log.select("id", "diff").rows()) == [(2, -1), (2, 1), (3, -1), (4, 1)]
    pl.read_csv("old.csv").with_columns(time=0, diff=1).select(log.columns).cast(log.schema).write_parquet(
        "base.parquet"
    )
    (shop.folder / "log").mkdir()
    os.link("base.parquet", "log/1.parquet")
    os.link("changes.parquet", "log/2.parquet")
    assert shop("diff", "log", "new.csv", "--key", "id").code == 0


def test_parquet_of_a_log_has_its_time(shop):
    schema = {"id": pl.Int64, "day": pl.Date, "diff": pl.Int64}
    rows = [(1, date(2024, 1, 1), 1), (1, date(2024, 1, 2), -1), (2, date(2024, 1, 2), 1)]
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet("log.parquet")
    with (shop.folder / "changes.parquet").open("wb") as out:
        options = ("--time", "day", "--from", "2024-01-01", "--to", "2024-01-02", "-o", "parquet")
        shop.process("diff", "log.parquet", *options, stdout=out, capture_output=False)
    log = pl.read_parquet("changes.parquet")
    assert log.schema == schema
    assert log["day"].to_list() == [date(2024, 1, 2)] * 2


HUGE = 10**38 - 1
FORMS = ("text", "json", "jsonl", "markdown", "html", "parquet")
ODD = {
    "int64 beside uint64": ([1, 2], pl.Int64, [1, 2**64 - 1], pl.UInt64, None),
    "Int128": ([HUGE, -1], pl.Int128, [HUGE - 1, None], pl.Int128, None),
    "UInt128": ([HUGE, 1], pl.UInt128, [HUGE, 2], pl.UInt128, None),
    "a larger Int128": ([HUGE + 1, -1], pl.Int128, [0, 0], pl.Int128, "has integers of more than 38 digits"),
    "Int128 in a list": ([[HUGE]], pl.List(pl.Int128), [[1]], pl.List(pl.Int128), "is List(Int128), which Parquet"),
    "Int128 in a struct": ([{"a": 1}], pl.Struct({"a": pl.Int128}), [{"a": 2}], pl.Struct({"a": pl.Int128}), "which"),
    "an array": ([[1, 2]], pl.Array(pl.Int64, 2), [[1, 3]], pl.Array(pl.Int64, 2), None),
    "Float16": ([1.0], pl.Float16, [2.0], pl.Float16, None),
    "a category": (["a"], pl.Categorical, ["b"], pl.Enum(["b"]), None),
    "nulls": ([None], pl.Null, [None, None], pl.Null, None),
    "bytes": ([b"a"], pl.Binary, [b"\xff"], pl.Binary, None),
    "a duration": ([1, 2], pl.Duration("ms"), [1, 3], pl.Duration("ns"), None),
    "a time": ([1, 2], pl.Time, [1, 3], pl.Time, None),
}


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("key", ["id", "v", None])
def test_every_type_is_shown_in_every_form(shop, case, key):
    """Those that records can't have, too. Parquet has no integers of 128 bits: it holds decimals, or the column is refused."""
    old, kind, new, other, refused = ODD[case]
    sides = {
        name: pl.DataFrame({"id": range(len(values)), "v": pl.Series(values, dtype=dtype)})
        for name, values, dtype in (("a", old, kind), ("b", new, other))
    }
    for name, side in sides.items():
        side.write_ipc(f"{name}.arrow")
    found = diff("a.arrow", "b.arrow", key=key)
    assert not found.same
    for form in FORMS:
        if form != "parquet":
            show(found, form, 9, io.BytesIO())
    sink = io.BytesIO()
    if refused:
        with pytest.raises(UsageError, match=re.escape(refused)):
            show(found, "parquet", 9, sink)
        return
    show(found, "parquet", 9, sink)
    sink.seek(0)
    log = pl.read_parquet(sink)
    assert log["diff"].sum() == sides["b"].height - sides["a"].height
    if kind in (pl.Int64, pl.Int128, pl.UInt128):
        assert log["v"].dtype == pl.Decimal(38, 0)
        changed = {(v, sign) for (values, sign) in ((old, -1), (new, 1)) for v in values if v is not None}
        assert {(v, sign) for v, sign in log.select("v", "diff").rows() if v is not None} <= changed


@pytest.mark.parametrize(("allowed", "code"), [("3", 0), ("2", 1), ("0", 1), ("100%", 0), ("99.9%", 1)])
def test_max_changed(shop, allowed, code):
    result = shop("diff", "old.csv", "new.csv", "--key", "id", "--max-changed", allowed)
    assert result.code == code
    words = "no more than" if code == 0 else "more than"
    assert result.out.endswith(
        f"different: 1 removed, 1 changed, 1 added; 3 rows are {words} --max-changed {allowed}\n"
    )


def test_a_column_that_differs_is_not_allowed_by_max_changed(shop):
    shop.write("wide.csv", "id,region,amount,more\n1,north,10.5,x\n2,south,7,x\n3,,3,x\n")
    result = shop("diff", "old.csv", "wide.csv", "--key", "id", "--max-changed", "100%")
    assert result.code == 1
    assert "  more: only in B (string), not compared\n" in result.out
    assert result.out.endswith("different: 1 column\n")
    assert shop("diff", "old.csv", "wide.csv", "--ignore", "more").code == 0


def test_ignored_types_and_tolerances(shop):
    pl.read_csv("old.csv").with_columns(pl.col("id").cast(pl.Int16), pl.col("amount") + 0.05).write_parquet("a.parquet")
    pl.read_csv("old.csv").write_parquet("b.parquet")
    result = shop("diff", "a.parquet", "b.parquet", "--key", "id", "--tolerance", "amount=0.1")
    assert (result.code, result.out.splitlines()[-1]) == (1, "different: 1 column")
    assert "  id: int16 in A, int64 in B, compared as int64\n" in result.out
    result = shop("diff", "a.parquet", "b.parquet", "--key", "id", "--tolerance", "amount=0.1", "--ignore-types")
    assert (result.code, result.out.splitlines()[-1]) == (0, "same, except for ignored types")


def test_keys_that_repeat_are_said(shop):
    shop.write("twice.csv", "id,region,amount\n1,north,10.5\n1,north,11\n2,south,7\n3,,3\n")
    result = shop("diff", "old.csv", "twice.csv", "--key", "id")
    assert "note: 1 key is in B more than once: its rows are paired in order\n" in result.out
    assert '+ id=1  region="north"  amount=11.0\n' in result.out


def test_a_key_column_may_have_a_comma(shop):
    for name, amount in (("a", 1), ("b", 2)):
        shop.write(f"{name}.csv", f'"id, old",region,amount\n1,north,{amount}\n')
    assert "changed  1" in shop("diff", "a.csv", "b.csv", "--key", '"id, old",region').out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["old.csv"], 2, "there is nothing to compare A with"),
        (["old.csv", "gone.csv"], 3, "there is no file or directory 'gone.csv'"),
        (["old.csv", "new.csv", "--key", "idd"], 2, "did you mean 'id'?"),
        (["old.csv", "new.csv", "--key", "id,"], 2, "'id,' names no columns"),
        (["old.csv", "new.csv", "--ignore", "x"], 2, "neither side has a column 'x'"),
        (["old.csv", "new.csv", "--tolerance", "amount=1"], 2, "a tolerance needs a key"),
        (["old.csv", "new.csv", "-k", "id", "--tolerance", "amount"], 2, "'amount' is not a tolerance"),
        (["old.csv", "new.csv", "-k", "id", "--ignore", "id"], 2, "is in the key, and can't be ignored"),
        (["old.csv", "new.csv", "--max-changed", "few"], 2, "'few' is not a number of rows"),
        (["old.csv", "new.csv", "--as-of", "3"], 2, "not a change log"),
        (["old.csv", "new.csv", "--as-of", "3", "--to", "4"], 2, "--as-of is one time for both sides"),
        (["old.csv", "new.csv", "--time", "day"], 2, "neither side has the time columns day"),
        (["old.csv", "new.csv", "--select", "x"], 2, "--select is for pipelines"),
        (["old.csv", "new.yaml"], 2, "a pipeline file can only be compared with another one"),
        (["old.csv", "new.csv", "--memory", "1kB"], 2, "the least is 384MiB"),
        (["old.csv", "new.csv", "-o", "xml"], 2, "'xml' is not one of"),
    ],
)
def test_wrong_use(shop, arguments, code, said):
    result = shop("diff", *arguments)
    assert result.code == code
    assert said in result.err
    assert not result.out
    assert "Traceback" not in result.err


def test_text_steers_no_terminal_and_no_markdown(shop):
    pl.DataFrame({"id": [1], "v": ["\x1b[31m\n\u009b <b>|`*@you*"]}).write_parquet("a.parquet")
    pl.DataFrame({"id": [1], "v": ["x" * 5000]}).write_parquet("b.parquet")
    text = shop("diff", "a.parquet", "b.parquet", "--key", "id").out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert r'v: "\u001b[31m\n\u009b <b>|`*@you*" -> "xxx' in text
    markdown = shop("diff", "a.parquet", "b.parquet", "--key", "id", "-o", "markdown").out
    row = next(line for line in markdown.splitlines() if line.startswith("| ~"))
    assert "<b>" not in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 4
    page = shop("diff", "a.parquet", "b.parquet", "--key", "id", "-o", "html").out
    assert "<b>" not in page


def test_a_comment_begins_with_the_outputs_that_differ(shop):
    """Of many outputs the last differs, in wide rows: it is in the comment, as are the names of the others as far as they fit."""
    for name, letter in (("a", "x"), ("b", "y"), ("c", "x")):
        pl.DataFrame({"id": range(90), **{f"column {at}": [letter * 400] * 90 for at in range(40)}}).write_parquet(
            f"{name}.parquet", compression="lz4" if name == "c" else "zstd"
        )
    same, differing = diff("a.parquet", "c.parquet", key="id"), diff("a.parquet", "b.parquet", key="id")
    titled = [*((f"an output with a long name {number}", same) for number in range(5000)), ("zoo", differing)]
    for limit in (20, 0, None):
        text = markdown(titled, ["a wide note: " + "word " * 20_000], limit)
        assert text.startswith("**1 of 5,001 outputs differ; 90 rows**\n\na wide note")
        assert len(text.encode()) < 65_536
        assert text.index("<code>zoo</code>") < text.index("an output with a long name 99</code>, 4,900 more")
        assert ("| ~" in text) == (limit != 0)
        assert text.count("<details>") == text.count("</details>") == (limit != 0)


def test_markdown_fits_a_comment(shop):
    pl.DataFrame({"id": range(5000), "v": ["x" * 300] * 5000}).write_parquet("a.parquet")
    pl.DataFrame({"id": range(5000), "v": ["y" * 300] * 5000}).write_parquet("b.parquet")
    result = shop("diff", "a.parquet", "b.parquet", "--key", "id", "-o", "markdown", "--limit", "5000")
    assert 30_000 < len(result.out.encode()) < 65_536
    shown = sum(line.startswith("| ~") for line in result.out.splitlines())
    assert f"{5000 - shown:,} more not shown: see --limit" in result.out
    assert result.out.count("<details>") == result.out.count("</details>") == 1
    assert f"<summary>{shown:,} of 5,000 changes</summary>" in result.out
    assert result.out.startswith("### 📝 "), "a change may be intended"
    for most, mark in (("4999", "❌"), ("100%", "✅")):
        bounded = shop("diff", "a.parquet", "b.parquet", "--key", "id", "-o", "markdown", "--max-changed", most)
        assert bounded.out.startswith(f"### {mark} ")


def test_html_needs_no_network(shop):
    page = shop("diff", "old.csv", "new.csv", "--key", "id", "-o", "html").out
    assert not re.search(r"https?:|//|src=|href=|@import|url\(", page)
    assert page.count("<tr class=") == 3
    assert "<del>7.0</del> <ins>8.0</ins>" in page


def test_colours_are_for_terminals(shop):
    assert "\x1b" not in shop("diff", "old.csv", "new.csv").out
    seen = shop.process("diff", "old.csv", "new.csv", env={"FORCE_COLOR": "1", "TERM": "xterm"})
    assert "\x1b[" in seen.out


def test_a_narrow_terminal_does_not_cut_lines(shop):
    result = shop.process("diff", "old.csv", "new.csv", "-k", "id", env={"COLUMNS": "20"})
    assert result.out == TEXT


def test_the_definition_is_the_definition():
    """Count by hand what the random tests are held against."""
    a = [((1, "x"), 1), ((1, "y"), 2), ((2, "z"), -1)]
    b = [((1, "y"), 1), ((1, "w"), 1), ((3, None), 1)]
    found = difference(a, b, ["id", "v"], ("id",))
    assert found.changed == {((1,), ("x",), ("w",)): 1}
    assert found.removed == {((1,), ("y",)): 1}
    assert found.added == {((2,), ("z",)): 1, ((3,), (None,)): 1}
    assert difference(a, b, ["id", "v"]).removed == {((), (1, "x")): 1, ((), (1, "y")): 1}
