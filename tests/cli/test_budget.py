"""Budgets: a run that takes more commits nothing and names what took most; `dd check` refuses operators of a worse class."""

from __future__ import annotations

import json

import pytest

from ddcli.driver.run import run
from ddcli.errors import BudgetError
from ddcli.job.sizes import Sizes
from ddcli.runtime import placement
from tests.harness import ORDER_COLUMNS, files
from tests.spark.support import Here, started

PIPELINE = """\
dd: 1
name: p
inputs:
  orders: {path: in/, columns: {region: string, amount: int64}}
collections:
  largest:
    from: orders
    apply:
      - filter: amount > 0
      - reduce: {by: [region], largest: max(amount)}
  pairs:
    from: orders
    apply:
      - join: {with: largest, on: [region]}
outputs: {largest: out/largest/, pairs: out/pairs/}
"""
ROWS = [("north", 1, 0, 1), ("north", 2, 0, 1), ("south", 3, 0, 1)]
TAKEN = 44
"""The rows of the first run: in, out, and read."""


@pytest.fixture
def pairs(shop):
    def write(budget=""):
        return shop.write("p.yaml", PIPELINE + (f"budget: {budget}\n" if budget else ""))

    shop.log("in/0.parquet", ROWS, **ORDER_COLUMNS)
    shop.pipeline = write
    write()
    return shop


def refused(shop, *arguments):
    """Run what exceeds a budget; return its message. Nothing is there that was not."""
    before = files(shop.folder / "out", shop.folder / ".dd/p/manifest")
    result = shop("run", "p.yaml", *arguments)
    assert result.code == 6, result.err
    assert files(shop.folder / "out", shop.folder / ".dd/p/manifest") == before
    assert "nothing was committed" in result.err
    return result.err


def test_rows_of_a_run(pairs):
    pairs.pipeline(f"{{rows: {TAKEN - 1}}}")
    message = refused(pairs)
    assert f"budget.rows: the run took {TAKEN} rows, and the budget is {TAKEN - 1} rows" in message
    assert "p.yaml:14:9: error:" in message, "the join took most"
    assert "join of collections.pairs.apply[0].join" in message
    assert "the budget is at p.yaml:16:16" in message.lower()
    refused(pairs, "--dry-run")
    assert pairs("run", "p.yaml", "--budget", f"rows={TAKEN}").code == 0
    before = files(pairs.folder / "out")
    pairs.log("in/1.parquet", [("north", 9, 1, 1)], **ORDER_COLUMNS)
    refused(pairs, "--budget", "rows=3")
    assert pairs("run", "p.yaml").code == 0
    assert files(pairs.folder / "out") != before


def test_bounds_of_operators(pairs):
    pairs.pipeline("{operator: {rows: 5}}")
    message = refused(pairs)
    assert (
        "budget.operator.rows: join of collections.pairs.apply[0].join took 8 rows, and the budget is 5 rows (5 in, 3 out, 0 read)"
        in message
    )
    assert refused(pairs, "--budget", "operator.rows=7") == message.replace(
        "budget.operator.rows", "--budget operator.rows"
    ).replace("budget is 5", "budget is 7").replace("at p.yaml:16:27", "the command's")
    pairs.pipeline("{operator: {rows: 7}, collections: {pairs: {rows: 8}}}")
    assert pairs("run", "p.yaml").code == 0


def test_bytes_and_seconds(pairs):
    assert " kB, and the budget is 100 B" in refused(pairs, "--budget", "bytes=100")
    assert "--budget operator.bytes" in refused(pairs, "--budget", "operator.bytes=100")
    assert "--budget seconds" in refused(pairs, "--budget", "seconds=0.00001")
    assert pairs("run", "p.yaml", "--budget", "bytes=1MB", "--budget", "seconds=5min").code == 0


def test_a_change_of_the_pipeline(pairs):
    """What a changed pipeline builds is bounded, too, and is not committed either."""
    assert pairs("run", "p.yaml").code == 0
    text = PIPELINE.replace("amount > 0", "amount > 1")
    pairs.write("p.yaml", text + "budget: {rows: 10}\n")
    refused(pairs, "--apply")
    pairs.write("p.yaml", text + "budget: {rows: 1000}\n")
    assert pairs("run", "p.yaml", "--apply").code == 0


@pytest.mark.parametrize("way", [Sizes(1, 1, 1), Sizes(3, 3, 2), Sizes(2, 4, 2, 3, 0), Sizes(2, 4, 1, 3, 0)])
def test_rows_do_not_depend_on_where_it_runs(pairs, way, monkeypatch):
    monkeypatch.setattr(placement, "sizes", lambda *_, **__: way)
    monkeypatch.setattr(Sizes, "spread", lambda self, *_, **__: self)
    path = pairs.pipeline(f"{{rows: {TAKEN}}}")
    engine = "spark" if way == Sizes(2, 4, 1, 3, 0) else "local"
    with started(Here(1)):
        with pytest.raises(BudgetError):
            run(path, engine=engine, budget={"rows": str(TAKEN - 1)})
        assert run(path, engine=engine).changed


def test_classes_of_work(pairs):
    check = pairs("check", "p.yaml", "--budget", "work=output", "-o", "json")
    assert check.code == 6
    (error,) = json.loads(check.out)["pipelines"][0]["errors"]
    assert (error["line"], error["column"], error["code"]) == (10, 9, 6)
    assert error["problem"] == (
        "collections.largest.apply[1].reduce: work: groups, but the budget is output: reduce (by region; max(amount))"
    )
    assert pairs("check", "p.yaml", "--budget", "work=groups").code == 0
    pairs.pipeline("{work: change}")
    result = pairs("check", "p.yaml")
    assert result.code == 6
    assert result.err.count("error: collections.") == 2
    refusal = pairs("run", "p.yaml")
    assert (refusal.code, refusal.err.splitlines()[0]) == (6, result.err.splitlines()[0])
    assert not (pairs.folder / "out").exists()
    pairs.pipeline("{work: change, collections: {largest: {work: groups}, pairs: {work: output}}}")
    assert pairs("check", "p.yaml").code == 0
    assert pairs("run", "p.yaml").code == 0


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        ("{}", "must be a mapping, found an empty one"),
        ("{rows: -1}", "must be a number of rows, found '-1'"),
        ("{rows: 5 kB}", "must be a number of rows"),
        ("{rows: 1.5}", "must be a number of rows, found '1.5'"),
        ("{operator: {rows: 1.2345k}}", "write it as a whole number: 1e6 or 500k"),
        ("{bytes: 0.5}", "must be a number of bytes, found '0.5'"),
        ("{bytes: 5 rows}", "must be a number of bytes"),
        ("{rows: 1e999}", "must be a number of rows"),
        ("{work: group}", "unknown class of work 'group'"),
        ("{collections: {larges: {rows: 1}}}", "budget.collections: no collection is named 'larges'"),
        ("{operator: {work: change}}", "unknown key 'work'"),
    ],
)
def test_what_is_no_budget(pairs, budget, problem):
    pairs.pipeline(budget)
    result = pairs("check", "p.yaml")
    assert result.code == 2
    assert problem in result.err


@pytest.mark.parametrize(
    "bound", ["rows", "rows=", "rows=many", "rows=1.5", "row=1", "work=groups", "operator.work=groups", "=1"]
)
def test_what_is_no_bound(pairs, bound):
    result = pairs("run", "p.yaml", "--budget", bound)
    assert result.code == 2
    assert "bound" in result.err or "number of rows" in result.err


def test_bounds_of_another_command(pairs):
    result = pairs("run", "p.yaml", "--budget", "work=groups")
    assert result.code == 2
    assert "--budget work: this is a bound of `dd check`, not of `dd run`" in result.err
    result = pairs("check", "p.yaml", "--budget", "operator.rows=5")
    assert result.code == 2
    assert "--budget operator.rows: this is a bound of `dd run`, not of `dd check`" in result.err


def test_what_gets_worse(pairs):
    """A sum becomes a maximum: `dd plan` and `dd diff` show where. A new collection is not worse than none."""
    best = PIPELINE.replace("max(amount)", "sum(amount)")
    more = PIPELINE.replace(
        "outputs: {", "  all: {from: orders, apply: [{reduce: {by: [], m: min(amount)}}]}\noutputs: {all: out/all/, "
    )
    pairs.write("best.yaml", best.replace("name: p", "name: best").replace("out/", "best/"))
    pairs.write("p.yaml", best)
    assert pairs("run", "p.yaml").code == 0
    pairs.write("p.yaml", more)
    (line,) = [line for line in pairs("plan", "p.yaml").out.splitlines() if line.startswith("  work ")]
    assert line == "  work    p.yaml:10:9: reduce of collections.largest.apply[1].reduce: groups, change before"
    assert json.loads(pairs("plan", "p.yaml", "-o", "json").out)["worsened"] == [line.removeprefix("  work    ")]
    notes = str(pairs("diff", "best.yaml", "p.yaml"))
    assert "note: p.yaml:10:9: reduce of collections.largest.apply[1].reduce: work: groups, but change in A" in notes
    assert ": work: " not in str(pairs("diff", "p.yaml", "best.yaml"))
    assert pairs("run", "p.yaml", "--apply").code == 0
    pairs.write("p.yaml", best)
    assert "  work " not in pairs("plan", "p.yaml").out
