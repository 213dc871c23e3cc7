"""`dd explain`: what it shows before and after runs, in each format, of what it can and can't read."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest

from ddcli.commands.explain import explain
from ddcli.render.units import amount
from tests.harness import ORDER_COLUMNS

SHARING = """\
dd: 1
name: sharing
inputs:
  a: {path: a/, columns: {k: int64, v: int64}}
  b: {path: b/, columns: {k: int64, w: int64}}
collections:
  links: {from: a, apply: [{arrange: {by: [k]}}]}
  one: {from: links, apply: [{join: {with: b, on: [k]}}]}
  two: {from: one, apply: [{join: {with: links, as: again, on: [k]}}, {filter: again.v > 3 and w is not null}]}
outputs: {one: out/one/, two: out/two/}
"""


def operators(view):
    return {(each.kind, *each.names): each for each in view.operators}


def test_without_data(shop):
    """Where columns are declared, nothing has to be there."""
    path = shop.write("p.yaml", SHARING)
    view = explain(path)
    assert view.runs == ()
    assert not view.counts()
    found = operators(view)
    assert {("input", "a"), ("input", "b"), ("join", "one"), ("output", "one"), ("output", "two")} <= found.keys()
    (shared,) = [each for each in view.operators if each.shared]
    assert shared.inputs == (found["input", "a"].id,)
    assert found["join", "one"].id in shared.readers
    assert len(shared.readers) == 2
    (two,) = [each for each in view.operators if "two" in each.names and each.kind != "output"]
    assert two.kind == "filter", "what is linear is one operator"
    assert not (shop.folder / ".dd").exists()
    result = shop("explain", "p.yaml")
    assert (result.code, result.err) == (0, "")
    assert "arrange  shared by 2  by k" in result.out


def test_after_runs(orders):
    assert orders("run", "orders.yaml", "--until", "2").code == 0
    assert orders("run", "orders.yaml").code == 0
    view = explain(orders.folder / "orders.yaml")
    assert [run.number for run in view.runs] == [1, 2]
    found, counts = operators(view), view.counts()
    assert counts[found["input", "orders"].id].rows_out == 1
    assert view.counts(view.runs[0])[found["input", "orders"].id].rows_out == 3
    output = counts[found["output", "totals"].id]
    assert (output.rows_out, output.inserted, output.retracted) == (2, 1, 1)
    (reduce,) = [each for each in view.operators if each.keeps]
    assert (reduce.kind, reduce.held.rows) == ("reduce", 2)
    assert "sum(amount)" in reduce.says[1]
    shown = orders("explain", "orders.yaml").out
    assert "2 rows  +1 -1" in shown
    assert "state 2 rows" in shown


def test_json(orders):
    """As the help says."""
    orders("run", "orders.yaml")
    orders.log("orders/2.parquet", [("north", 1, 9, 1)], **ORDER_COLUMNS)
    orders("run", "orders.yaml")
    tree = json.loads(orders("explain", "orders.yaml", "-o", "json").out)
    assert list(tree) == ["name", "operators", "loops", "outputs", "runs"]
    for each in tree["operators"]:
        fields = [
            "id",
            "kind",
            "names",
            "says",
            "columns",
            "inputs",
            "readers",
            "loop",
            "keeps",
            "held",
            "work",
            "estimated",
            "shared",
            "counts",
        ]
        assert list(each) == fields
        assert each["held"] is None or list(each["held"]) == ["rows", "bytes", "files"]
    assert set(tree["operators"][0]["counts"]) == {
        "rows_in", "rows_out", "inserted", "retracted", "seconds", "turns", "rounds", "rows_read", "rows_scanned",
    }  # fmt: skip
    assert tree["outputs"]["totals"] in {each["id"] for each in tree["operators"]}
    assert [run["number"] for run in tree["runs"]] == [1, 2]
    assert set(tree["runs"][0]) == {"number", "began", "upper", "seconds", "rows_read", "rows_written", "state_bytes"}
    (totals,) = [each for each in tree["operators"] if each["kind"] == "input"]
    assert totals["columns"] == {"region": "string?", "amount": "int64?"}
    help_text = re.sub(r"\s+", " ", orders("explain", "--help").out)
    for field in (
        "readers: [ID]",
        "held: {rows, bytes, files}",
        "feedback: [[ID, ID]]",
        "rows_read, rows_written, state_bytes",
    ):
        assert field in help_text


TURNED = """\
dd: 1
name: turned
inputs: {a: {path: a/}, b: {path: b/}, c: {path: c/}}
collections:
  all: {from: a, apply: [{join: {with: b, on: [k]}}, {join: {with: c, on: [w]}}]}
outputs: {all: out/all/}
"""


def test_before_the_first_run_it_is_the_plan_of_that_run(shop):
    """Also where the order of joins hangs on how large the files are; after it the state keeps the order, however large they become."""
    path = shop.write("p.yaml", TURNED)
    columns = {"a": ("k", "v"), "b": ("k", "w"), "c": ("w", "x")}
    for rows, expected in ((2, "k"), (50_000, "w")):
        for name, (one, other) in columns.items():
            many = [(at, at * 7919, 0, 1) for at in range(rows if name == "a" else 2)]
            shop.log(f"{name}/1.parquet", many, **dict.fromkeys((one, other, "time", "diff"), pl.Int64))
        before = explain(path)
        first = next(each for each in before.operators if each.kind == "join")
        assert first.says[0].startswith(f"on {expected}"), first.says
    assert shop("run", "p.yaml").code == 0
    types = dict.fromkeys(("w", "x", "time", "diff"), pl.Int64)
    shop.log("c/2.parquet", [(-at, at, 1, 1) for at in range(50_000)], **types)
    for after in (explain(path), shop("run", "p.yaml") and explain(path)):
        assert [each.id for each in after.operators] == [each.id for each in before.operators]


def test_an_arrangement_shows_how_many_of_its_keys_were_scanned(shop):
    """Where the keys of a change lie in all pages, that is all of it, once for each reader; where one is asked for, a page or two."""
    path = shop.write("p.yaml", SHARING)
    types = dict.fromkeys(("k", "v", "time", "diff"), pl.Int64)
    other = {"w" if name == "v" else name: kind for name, kind in types.items()}
    shop.log("a/1.parquet", [(at, at, 0, 1) for at in range(20_000)], **types)
    shop.log("b/1.parquet", [(1, 1, 0, 1)], **other)
    assert shop("run", "p.yaml").code == 0

    def scanned():
        view = explain(path)
        counts = view.counts()
        (links,) = [each for each in view.operators if each.kind == "arrange" and each.shared]
        (b,) = [each for each in view.operators if each.names == ("b",) and each.kind == "input"]
        rest = [counts[each.id].rows_scanned for each in view.operators if each.id in counts and each is not links]
        assert not any(rest)
        assert counts[b.id].rows_out
        return counts[links.id].rows_scanned

    assert scanned() == 0
    shop.log("b/2.parquet", [(7, 1, 1, 1)], **other)
    assert shop("run", "p.yaml").code == 0
    few = scanned()
    assert 0 < few <= 1024
    assert f"scanned the keys of {amount(few)}" in shop("explain", "p.yaml").out
    shop.log("b/3.parquet", [(at, 2, 2, 1) for at in range(0, 20_000, 400)], **other)
    assert shop("run", "p.yaml").code == 0
    assert 38_000 <= (all_of_it := scanned()) <= 40_000  # by both joins
    assert f"scanned the keys of {amount(all_of_it)}" in shop("explain", "p.yaml").out


def test_what_was_expected_is_beside_what_came(shop):
    """Before the first run by rules, then by what the runs before have measured."""
    text = SHARING.replace("apply: [{arrange: {by: [k]}}]", "apply: [{filter: v > 1}, {arrange: {by: [k]}}]")
    path = shop.write("p.yaml", text)
    rows = [(at, at, 0, 1) for at in range(12)]
    types = {"k": pl.Int64, "v": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
    shop.log("a/1.parquet", rows, **types)
    shop.log("b/1.parquet", rows, **{"w" if name == "v" else name: kind for name, kind in types.items()})
    assert shop("run", "p.yaml").code == 0

    def expected(*names):
        view = explain(path)
        counts = view.counts()
        return [(each.kind, each.estimated, counts[each.id].rows_out) for each in view.operators if each.names == names]

    assert expected("one") == [("join", 4, 10), ("output", None, 10)]
    shop.log("a/2.parquet", [(at, at, 1, 1) for at in range(8)], **types)
    assert shop("run", "p.yaml").code == 0
    assert expected("one")[0] == ("join", 7, 6)
    assert "6 rows (7 expected)" in shop("explain", "p.yaml").out


def test_a_loop_in_json(shop, root):
    view = explain(root / "pipelines/scc.yaml")
    tree = view.to_json()
    inner = [each for each in tree["loops"] if each["parent"]]
    (outer,) = [each for each in tree["loops"] if not each["parent"]]
    assert [each["variables"] for each in inner] == [("label",), ("label",)]
    assert {each["parent"] for each in inner} == {outer["id"]}
    ids = {each["id"]: each for each in tree["operators"]}
    for loop in tree["loops"]:
        for result, variable in loop["feedback"]:
            assert ids[variable]["kind"] == "variable"
            assert ids[variable]["loop"] == ids[result]["loop"] == loop["id"]


def test_a_changed_pipeline_has_counts_where_it_is_the_same(orders):
    orders("run", "orders.yaml")
    text = (orders.folder / "orders.yaml").read_text()
    more = "  large: {from: orders, apply: [{filter: amount > 6}, distinct]}\noutputs:\n  large: out/large/\n"
    orders.write("orders.yaml", text.replace("outputs:\n", more))
    view = explain(orders.folder / "orders.yaml")
    found, counts = operators(view), view.counts()
    assert found["output", "totals"].id in counts
    assert found["output", "large"].id not in counts
    assert orders("explain", "orders.yaml").code == 0


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("p.svg", "<svg "),
        ("p.html", "<!doctype html>"),
        ("p.md", "flowchart TD"),
        ("p.json", '{"name"'),
        ("p.txt", "○"),
    ],
)
def test_a_file_by_its_ending(orders, name, beginning):
    result = orders("explain", "orders.yaml", "--out", name)
    assert (result.code, result.out, result.err) == (0, "", "")
    written = (orders.folder / name).read_text()
    assert written.startswith(beginning)
    assert "\x1b" not in written
    assert written.endswith("\n")


def test_what_it_refuses(orders):
    result = orders("explain", "orders.yaml", "--out", "p.pdf")
    assert result.code == 2
    assert "choose one with -o" in result.err
    assert orders("explain", "orders.yaml", "--format", "svg", "--out", "p.pdf").code == 0
    result = orders("explain", "orders.yaml", "--out", "none/p.svg")
    assert (result.code, "none/p.svg" in result.err) == (5, True)
    assert orders("explain", "none.yaml").code == 2
    orders.write("orders.yaml", (orders.folder / "orders.yaml").read_text().replace("sum(amount)", "sum(amout)"))
    result = orders("explain", "orders.yaml")
    assert result.code == 2
    assert "did you mean" in result.err


def test_it_imports_no_polars(orders):
    script = "import sys\nfrom ddcli.cli.main import main\ntry:\n    main(['explain', 'orders.yaml', '-o', 'html'])\nfinally:\n    assert 'polars' not in sys.modules and 'numba' not in sys.modules"
    orders("run", "orders.yaml")
    result = orders.process(script=script)
    assert (result.code, result.err) == (0, "")


def test_a_terminal_without_the_characters(orders):
    result = orders.process("explain", "orders.yaml", env={"PYTHONIOENCODING": "latin-1"})
    assert result.code == 0
    assert result.out.isascii()
    assert "o   input  orders" in result.out.replace("o input", "o   input")


def test_profile(orders):
    """Where the time went: a table, in the summary's JSON, and of a run that commits nothing, too."""
    result = orders("run", "orders.yaml", "--profile", "--dry-run")
    lines = result.err.splitlines()
    head = next(at for at, line in enumerate(lines) if line.split()[:2] == ["time", "share"])
    table = [line.split() for line in lines[head + 1 : -1]]
    assert "reduce" in {row[-3] if "by" in row else row[-1] for row in table} | {word for row in table for word in row}
    assert lines[-1].endswith("by the clock")
    tree = json.loads(orders("run", "orders.yaml", "--profile", "-o", "json").out)
    found = {each["kind"]: each for each in tree["operators"]}
    assert found["input"]["rows_out"] == 4
    assert found["output"]["rows_out"] == found["reduce"]["rows_out"]
    assert found["reduce"]["seconds"] > 0
    assert sum(each["share"] for each in tree["operators"]) == pytest.approx(1)
    seconds = [each["seconds"] for each in tree["operators"]]
    assert seconds == sorted(seconds, reverse=True)
    assert "operators" not in json.loads(orders("run", "orders.yaml", "-o", "json").out)
    assert "share" not in orders("run", "orders.yaml", "--profile").err, "nothing is new"


OWN_NAMES = """\
dd: 1
name: own
inputs:
  a: {path: a/, columns: {k: int64, v: int64, s: string?}}
  b: {path: b/, columns: {x: int64, y: int64}}
collections:
  means: {from: a, apply: [{reduce: {by: [k], mean: avg(v * 2), most: max(v + 1), all: "array_agg(s order by s)"}}]}
  total: {from: a, apply: [{reduce: {by: [], n: count(s), sum: sum(v), twice: sum(v) * 2}}]}
  whole: {from: a, apply: [{reduce: {by: [], mean: avg(v)}}]}
  while: {from: a, apply: [{temporal_filter: {from: v, until: "nullif(v + k, 3)"}}]}
  both: {from: a, apply: [{join: {with: b, on: {k: x, v: x}}}]}
  first: {from: a, apply: [{top_k: {by: [k], k: 1, order_by: [v desc]}}]}
  near: {from: a, apply: [{window: {by: [k], order_by: [v + 1 desc], columns: {x: v - lag(v * 2)}}}]}
  on: {from: a, apply: [{window: {by: [s], order_by: [v], columns: {x: 1 + row_number(), y: sum(v + 2)}}}]}
  far: {from: a, apply: [{window: {by: [s], order_by: [v], columns: {x: 1 + ntile(2), y: sum(v + 2)}}}]}
outputs: {near: o/7/, far: o/8/, on: o/9/, means: o/1/, total: o/2/, whole: o/3/, while: o/4/, both: o/5/, first: o/6/}
"""


def test_it_speaks_in_the_file_s_words(shop):
    """Columns that the plan adds are shown as what they stand for."""
    path = shop.write("p.yaml", OWN_NAMES)
    said = [line for each in explain(path).operators for line in each.says]
    assert [line for line in said if "$" in line] == []
    columns = [column for each in explain(path).operators for column in each.columns]
    assert [column for column in columns if "$" in column or not column] == []
    assert {"avg(v * 2)", "max(v + 1)", "count(*)"} <= {*columns}
    text = "\n".join(said)
    assert "avg(v * 2), max(v + 1), array_agg(s order by s)" in text
    assert "mean: avg(v * 2), most: max(v + 1), all: array_agg(s order by s)" in text
    assert "n: count(s), sum: sum(v), twice: sum(v) * 2" in text
    assert "from v, until " in text
    assert "in the order of v + 1 desc\nreads 1 row on each side of a change\nlag(v * 2, 1)" in text
    assert "in the order of v\nreads on from a change as far as it reaches\nrow_number(), sum(v + 2)" in text
    assert "in the order of v\nreads whole partitions\nntile(2), sum(v + 2)" in text
    assert "where (not (" not in text
    assert "$" not in shop("explain", "p.yaml").out


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits_the_terminal(shop, orders, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shop.write("p.yaml", OWN_NAMES)
    drawn = shop("explain", "p.yaml").out.splitlines()
    table = orders("run", "orders.yaml", "--profile").err.splitlines()
    table = table[next(at for at, line in enumerate(table) if line.split()[:2] == ["time", "share"]) :]
    assert max(map(len, drawn)) <= width
    assert max(map(len, table)) <= width
    assert any("…" in line for line in drawn) == (width < 200)
    assert ("rows/s" in table[0]) == (width > 60)
    assert table[0].endswith("operator")
    assert all("reduce by" in line for line in table if "reduce" in line)
