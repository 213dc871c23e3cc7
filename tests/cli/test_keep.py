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
