"""`keep:` of an output: what is older is summed up after a run, and what the times don't have is refused."""

import json

import polars as pl
import pytest

from ddcli.sources.change_log import read_log
from tests.harness import contents

LOG = {"k": pl.Int64, "time": pl.Int64, "diff": pl.Int64}
RUNS = 32
PIPELINE = """\
name: a
inputs: {rows: in/}
collections: {n: {from: rows, apply: [{reduce: {by: [k], n: count(*)}}]}}
outputs: {n: {path: out/kept/, keep: 5}, all: {from: n, path: out/all/}}
"""


def test_older_updates_are_summed_up_as_they_age(shop):
    shop.write("a.yaml", PIPELINE)
    horizons, most = set(), 0
    for time in range(RUNS):
        shop.log(f"in/{time}.parquet", [(time % 3, time, 1)], **LOG)
        assert shop("run", "a.yaml").code == 0
        kept, whole = (shop.folder / "out" / name for name in ("kept", "all"))
        most = max(most, len([*kept.glob("*.parquet")]))
        assert contents(kept) == contents(whole)
        refused = shop("log", "out/kept", "--as-of", "0")
        if refused.code:
            horizon = int(refused.err.split("nothing before ")[1].split(":")[0])
            horizons.add(horizon)
            assert horizon < time + 1 - 5
            for at in {horizon, (horizon + time) // 2, time}:
                assert read_log(kept, as_of=at).equals(read_log(whole, as_of=at))
    assert len(horizons) > 1
    assert most < RUNS // 2
    assert len([*whole.glob("*.parquet")]) == RUNS
    (log,) = [
        each for each in json.loads(shop("state", "ls", "a.yaml", "-o", "json").out)["outputs"] if each["name"] == "n"
    ]
    assert log["files"] < RUNS // 2
    assert shop("state", "verify", "a.yaml").code == 0


@pytest.mark.parametrize(
    ("keep", "time", "said"),
    [
        ("5 days", "int64", "a `keep` in days means nothing"),
        ("5", "date", "a `keep` needs a unit"),
        ("all", "int64", "all"),
    ],
)
def test_a_length_that_the_times_do_not_have_is_refused(shop, keep, time, said):
    shop.write("a.yaml", PIPELINE.replace("keep: 5", f"keep: {keep}"))
    kind = pl.Date if time == "date" else pl.Int64
    frame = pl.DataFrame({"k": [1], "time": [0], "diff": [1]}).with_columns(pl.col("time").cast(kind))
    (shop.folder / "in").mkdir()
    frame.write_parquet(shop.folder / "in/0.parquet")
    result = shop("run", "a.yaml")
    assert result.code == 2
    assert said in result.err
    assert shop("check", "a.yaml").err.startswith(result.err.strip())
    assert not (shop.folder / "out/kept").exists() or not [*(shop.folder / "out/kept").glob("*.parquet")]


def test_all_lengths_that_the_times_do_not_have_are_found(shop):
    text = PIPELINE.replace("keep: 5", "keep: 5 days, history: 3 weeks").replace("name: a", "name: a\nhistory: 2 hours")
    shop.write("a.yaml", text.replace("rows: in/", "rows: {path: in/, columns: {k: int64, time: int64, diff: int64}}"))
    result = shop("check", "a.yaml")
    assert result.code == 2
    assert [unit for unit in ("hours", "days", "weeks") if f"in {unit} means nothing" in result.err] == [
        "hours",
        "days",
        "weeks",
    ]


CLAIMED = PIPELINE.replace("keep: 5", "keep: 5, claims: 20")


def test_who_never_comes_back_holds_a_log_up_to_a_bound_that_is_told(shop):
    """A consumer, a target and a reader: runs tell how long they hold the log back, and that they were passed; then each is refused, and begins anew."""
    shop.write("a.yaml", CLAIMED)
    shop.write("r.yaml", "name: r\ninputs: {n: out/kept/}\noutputs: {n: out/r/}\n")
    told, passed, most = [], [], 0
    for time in range(RUNS + 8):
        shop.log(f"in/{time}.parquet", [(time % 3, time, 1)], **LOG)
        result = shop("run", "a.yaml", "--summary", "summary.json")
        assert result.code == 0
        claims = json.loads((shop.folder / "summary.json").read_text())["summary"]["claims"]
        told += [each for each in claims if not each["passed"]]
        passed += [each for each in claims if each["passed"]]
        assert result.err.count("  claim  n: ") == len(claims)
        most = max(most, len([*(shop.folder / "out/kept").glob("*.parquet")]))
        if time == 0:
            assert shop("feed", "out/kept", "--consumer", "gone").code == 0
            assert shop("feed", "out/kept", "--consumer", "gone", "--ack").code == 0
            assert shop("feed", "out/kept", "--consumer", "into", "--into", "fed").code == 0
            assert shop("run", "r.yaml").code == 0
            assert "too far behind" not in shop("feed", "out/kept", "--list").out
    assert {each["name"][:4] for each in told} == {"gone", "into", "r-" + told[-1]["name"][2:4]}
    assert {each["until"] for each in told if each["kind"] == "consumer"} == {"22"}
    assert {each["kind"] for each in passed} == {"consumer", "reader"}
    assert most < RUNS
    listed = shop("feed", "out/kept", "--list").out
    assert listed.count("too far behind: --drop it") == 2
    facts = json.loads(shop("state", "ls", "a.yaml", "-o", "json").out)
    assert [each["passed"] for each in facts["holds"]] == [["n"]]
    assert [each["passed"] for each in facts["consumers"]] == [True, True]
    assert "too far behind in n" in shop("state", "ls", "a.yaml").out
    for arguments in (["gone"], ["into", "--into", "fed"]):
        refused = shop("feed", "out/kept", "--consumer", *arguments)
        assert (refused.code, refused.out) == (4, "")
        assert "were summed up since" in refused.err
        assert "--drop" in refused.err
    assert len([*(shop.folder / "fed").glob("*.parquet")]) == 1
    assert shop("feed", "out/kept", "--consumer", "gone", "--drop").code == 0
    assert len(shop("feed", "out/kept", "--consumer", "gone").out.splitlines()) == 4
    refused = shop("run", "r.yaml")
    assert refused.code == 3
    assert "--full-refresh all" in refused.err
    assert shop("run", "r.yaml", "--full-refresh", "all", "--apply").code == 0
    assert contents(shop.folder / "out/r") == contents(shop.folder / "out/all")


def test_a_claim_without_a_bound_is_told(shop):
    shop.write("a.yaml", PIPELINE)
    for time in range(20):
        shop.log(f"in/{time}.parquet", [(time % 3, time, 1)], **LOG)
        result = shop("run", "a.yaml")
        if time == 0:
            shop("feed", "out/kept", "--consumer", "gone")
            shop("feed", "out/kept", "--consumer", "gone", "--ack")
    assert "claim  n: consumer 'gone' holds back 14 files from 1 on, without a bound: `claims` sets one" in result.err
    done = shop("log", "compact", "out/kept")
    assert "n: nothing to sum up" in done.out
    assert "consumer 'gone' holds back 19 files" in done.out
    (found,) = json.loads(shop("log", "compact", "out/kept", "--pass-claims", "-o", "json").out)
    assert [(each["name"], each["passed"], each["files"]) for each in found["claims"]] == [("gone", True, 19)]
    assert shop("feed", "out/kept", "--consumer", "gone").code == 4


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("keep: 5, claims: 4", "claims end before updates are as old as `keep`"),
        ("claims: 4", "this one is kept for ever"),
        ("keep: 5, claims: 4 days", "a `claims` in days means nothing"),
    ],
)
def test_claims_that_bound_nothing_are_refused(shop, keep, said):
    shop.write("a.yaml", PIPELINE.replace("keep: 5", keep))
    shop.log("in/0.parquet", [(0, 0, 1)], **LOG)
    result = shop("run", "a.yaml")
    assert result.code == 2
    assert said in result.err
