"""`dd query`: what is found, by which keys, and how it is said what can't be."""

import json
import os
import signal
import subprocess
import sys
import threading

import polars as pl
import pytest

from ddcli.errors import UsageError
from ddcli.query import Lookup
from ddcli.store.state.manifest import read_newest
from tests.harness import ROOT, write_log

SHOP = """\
dd: 1
name: shop
inputs:
  orders: orders/
  customers: {path: customers/, format: upsert, key: [customer]}
collections:
  paid:
    from: orders
    apply:
      - filter: amount > 0
  totals:
    from: paid
    apply:
      - reduce: {by: [customer], orders: count(*), mean: avg(amount)}
  named:
    from: totals
    apply:
      - join: {with: customers, on: [customer], how: left}
  everything:
    from: paid
    apply:
      - reduce: {by: [], amount: sum(amount)}
  kinds:
    from: orders
    apply:
      - project: [customer, kind]
      - distinct
outputs:
  named: out/named/
  everything: out/everything/
  kinds: out/kinds/
"""
PEOPLE = {"customer": pl.Int64, "name": pl.String, "time": pl.Int64}
TYPES = {"customer": pl.Int64, "amount": pl.Int64, "kind": pl.String, "note": pl.String}


@pytest.fixture
def kept(shop):
    """Return a shop whose pipeline has run."""
    shop.write("shop.yaml", SHOP)
    times = {"time": pl.Int64, "diff": pl.Int64}
    rows = [(1, 10, "a", "x", 0, 1), (1, 20, "b", "x", 1, 1), (2, 5, None, "x", 1, 1), (3, 0, "c", "x", 1, 1)]
    shop.log("orders/1.parquet", rows, **TYPES, **times)
    write_log(shop.folder / "customers/1.parquet", [(1, "Ann", 0), (3, "Cy", 0)], PEOPLE)
    assert shop("run", "shop.yaml").code == 0
    return shop


def records(result):
    """Return the records of a result in JSON."""
    return json.loads(result.out)


def test_a_person_sees_columns(kept):
    found = kept("query", "shop.yaml", "named", "customer=1")
    assert found.out == "customer  orders  mean  name  diff\n       1       2  15.0  Ann      1\n"
    assert kept("query", "shop.yaml", "named", "customer=2", "-o", "jsonl").out == (
        '{"customer":2,"orders":1,"mean":5.0,"name":null,"diff":1}\n'
    )


def test_what_is_reduced_joined_distinct_and_upserted_is_found(kept):
    ask = lambda *arguments: records(kept("query", "shop.yaml", *arguments, "-o", "json"))  # noqa: E731
    assert ask("totals", "customer=1") == [{"customer": 1, "orders": 2, "mean": 15.0, "diff": 1}]
    assert ask("customers", "customer=3") == [{"customer": 3, "name": "Cy", "diff": 1}]
    assert ask("everything") == [{"amount": 35, "diff": 1}]
    assert [row["kind"] for row in ask("kinds", "customer=1")] == ["a", "b"]
    assert ask("kinds", "customer=2", "kind is null") == [{"customer": 2, "kind": None, "diff": 1}]
    none = kept("query", "shop.yaml", "named", "customer=3", "-o", "json")
    assert (none.code, none.out) == (1, "[]\n")


def test_what_cannot_be_asked_is_told(kept):
    for arguments, code, said in (
        (["named", "name=Ann"], 2, "hint: give a value of customer"),
        (["named"], 2, "'named' can't be asked without a key"),
        (["paid", "customer=1"], 2, "the state keeps it by no key"),
        (["orders", "note=x"], 2, "the state has no column 'note' of 'orders', as no output needs it"),
        (["name", "customer=1"], 2, "did you mean 'named'?"),
        (["named", "customr=1"], 2, "did you mean 'customer'?"),
        (["named", "customer=one"], 2, "'one' is not int64"),
        (["named", "customer=1", "--as-of", 0], 2, "the state no longer keeps 0 apart"),
        (["named", "customer=1", "--as-of", 2], 2, "2 is not closed: the state has closed the times before 2"),
        (["named", "customer=1", "--as-of", 1, "--follow"], 2, "--as-of and --follow don't go together"),
        (["named", "customer=1", "--count", 1], 2, "--count and --timeout need --follow"),
    ):
        found = kept("query", "shop.yaml", *arguments)
        assert (found.code, said in found.err, found.out) == (code, True, ""), found
    assert kept("query", "shop.yaml", "named", "customer=1", "--as-of", 1).code == 0, "it is the newest time"


def test_a_state_that_is_none_or_another_is_told(kept):
    assert "there is no state yet" in kept("query", "shop.yaml", "named", "customer=1", "--state", "x").err
    kept.write("shop.yaml", SHOP.replace("amount > 0", "amount > 7"))
    changed = kept("query", "shop.yaml", "named", "customer=1")
    assert changed.code == 4
    assert "the pipeline has changed since its state was made" in changed.err


def test_what_is_made_of_an_imported_arrangement_is_found(kept):
    """In the state of the pipeline that makes it; what is imported is to be asked where it is kept."""
    kept.write(
        "exporter.yaml",
        SHOP.replace("name: shop", "name: exporter")
        .replace("out/", "exported/")
        .replace("- filter: amount > 0", "- filter: amount > 0\n      - arrange: {by: [customer], export: paid}"),
    )
    kept.write(
        "importer.yaml",
        """\
dd: 1
name: importer
inputs:
  paid: {import: {state: .dd/exporter, arrangement: paid}}
collections:
  largest:
    from: paid
    apply:
      - reduce: {by: [customer], amount: max(amount)}
outputs:
  largest: imported/
""",
    )
    assert kept("run", "exporter.yaml").code == 0
    assert kept("run", "importer.yaml").code == 0
    found = kept("query", "importer.yaml", "largest", "customer=1", "-o", "json")
    assert records(found) == [{"customer": 1, "amount": 20, "diff": 1}], found.err
    assert "another pipeline keeps it" in kept("query", "importer.yaml", "paid", "customer=1").err
    arranged = records(kept("query", "exporter.yaml", "paid", "customer=1", "-o", "json"))
    assert [row["amount"] for row in arranged] == [10, 20]


def test_the_kept_past_is_told_apart(kept):
    kept.write("shop.yaml", SHOP + "history: all\n")
    assert kept("run", "shop.yaml", "--full-refresh", "all").code == 0
    log = {"time": pl.Int64, "diff": pl.Int64}
    kept.log("orders/2.parquet", [(1, 30, "a", "x", 2, 1), (1, 10, "a", "x", 3, -1)], **TYPES, **log)
    assert kept("run", "shop.yaml").code == 0
    found = [records(kept("query", "shop.yaml", "totals", "customer=1", "--as-of", at, "-o", "json")) for at in (2, 3)]
    assert [row["orders"] for (row,) in found] == [3, 2]


def test_a_value_of_another_type_is_refused(kept):
    lookup = Lookup.open(kept.folder / "shop.yaml", "totals")
    for value in ("1", 1.5, 2**70):
        with pytest.raises(UsageError, match="is not int64, the type of the column 'customer'"):
            lookup.rows({"customer": value})


def test_a_column_may_be_called_as_the_count_is(kept):
    """The count has another name then, however many are taken."""
    other = (
        SHOP.replace("name: shop", "name: other")
        .replace("out/", "other/")
        .replace("orders: count(*)", "diff: count(*)")
        .replace("    from: totals\n    apply:\n", "    from: totals\n    apply:\n      - rename: {diff: orders}\n")
    )
    both = other.replace("name: other", "name: both").replace("other/", "both/").replace("mean:", "$diff:")
    for text, names in ((other, ("mean", "$diff")), (both, ("$diff", "$$diff"))):
        kept.write("other.yaml", text)
        assert kept("run", "other.yaml").code == 0
        found = kept("query", "other.yaml", "totals", "customer=1", "-o", "json")
        assert records(found) == [{"customer": 1, "diff": 2, **dict(zip(names, (15.0, 1), strict=True))}]


def test_nothing_is_written_and_nobody_waits(kept):
    """Not even the holds' lock: a state that may only be read can be asked."""
    before = {path: path.stat().st_mtime_ns for path in (kept.folder / ".dd").rglob("*")}
    lock = subprocess.Popen(
        [sys.executable, "-c", "import fcntl,sys; f=open(sys.argv[1],'a'); fcntl.flock(f, 2); print('held', flush=True); input()", ".dd/shop/LOCK"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert lock.stdout.readline() == "held\n"
    assert kept("query", "shop.yaml", "named", "customer=1").code == 0
    lock.communicate("\n")
    assert {path: path.stat().st_mtime_ns for path in (kept.folder / ".dd").rglob("*")} == before


def test_a_commit_while_it_is_looked_for_is_no_harm(kept, monkeypatch):
    """Its files are gone then, so the newer state is asked."""
    lookup = Lookup.open(kept.folder / "shop.yaml", "totals")
    kept.log("orders/2.parquet", [(1, 30, "a", "x", 5, 1)], **TYPES, time=pl.Int64, diff=pl.Int64)
    assert kept("run", "shop.yaml").code == 0
    assert kept("state", "compact", "shop.yaml").code == 0
    assert lookup.rows({"customer": 1})["orders"].to_list() == [3]
    assert lookup.manifest.number == read_newest(kept.folder / ".dd/shop").number
    for path in (kept.folder / ".dd/shop/arrangements").rglob("*.parquet"):
        path.unlink()
    damaged = kept("query", "shop.yaml", "totals", "customer=1")
    assert damaged.code == 4
    assert "can't be read" in damaged.err


def test_follow_prints_what_commits_change(kept):
    """At first what there is; then each commit's changes, and a commit that changes nothing here is counted as well."""
    follow = subprocess.Popen(
        [sys.executable, "-m", "ddcli", "query", "shop.yaml", "totals", "customer=1", "--follow", "--count", "2", "-o", "jsonl"],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=kept.folder,
    )  # fmt: skip
    watchdog = threading.Timer(300, follow.kill)
    watchdog.start()
    assert json.loads(follow.stdout.readline()) == {"commit": "2", "customer": 1, "orders": 2, "mean": 15.0, "diff": 1}
    for at, row in ((2, (1, 30, "a", "x", 5, 1)), (3, (2, 1, "a", "x", 6, 1))):
        kept.log(f"orders/{at}.parquet", [row], **TYPES, time=pl.Int64, diff=pl.Int64)
        assert kept("run", "shop.yaml").code == 0
        if at == 2:
            lines = [json.loads(follow.stdout.readline()) for _ in range(2)]
            assert [(line["commit"], line["orders"], line["diff"]) for line in lines] == [("6", 2, -1), ("6", 3, 1)]
    assert follow.wait() == 0
    watchdog.cancel()
    follow.stdout.close()


def test_following_ends_with_ctrl_c(kept):
    follow = subprocess.Popen(
        [sys.executable, "-m", "ddcli", "query", "shop.yaml", "totals", "customer=1", "--follow"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=kept.folder,
    )  # fmt: skip
    assert follow.stdout.readline().split()[0] == "commit"
    follow.send_signal(signal.SIGINT)
    _, said = follow.communicate(timeout=300)
    assert follow.returncode == 130
    assert "Traceback" not in said
