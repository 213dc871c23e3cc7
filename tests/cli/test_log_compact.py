"""`dd log compact`: what it reports, what it leaves, and what readers in other pipelines and consumers keep from it."""

import json

import polars as pl
import pytest

from ddcli.feed.delivery import OutputFeed
from ddcli.store.state.holds import read_holds
from tests.harness import contents

LOG = {"k": pl.String, "time": pl.Int64, "diff": pl.Int64}
WRITER = """\
name: a
inputs: {rows: in/}
outputs: {rows: out/a/, again: {from: rows, path: out/b/}}
"""
READER = """\
name: r
inputs: {rows: out/a/}
outputs: {rows: out/r/}
"""


@pytest.fixture
def logs(shop):
    """Return a folder with a writer of two logs that has run at the times 0 to 3."""
    shop.write("a.yaml", WRITER)
    shop.write("r.yaml", READER)
    for time in range(4):
        produce(shop, time)
    return shop


def produce(shop, time):
    rows = [("x", time, 1), *([("x", time, -1), ("y", time, 1)] if time else [])]
    shop.log(f"in/{time}.parquet", rows, **LOG)
    assert shop("run", "a.yaml").code == 0


def names(shop, output="a"):
    return sorted(path.name for path in (shop.folder / "out" / output).glob("*.parquet"))


def compacted(shop, *arguments):
    result = shop("log", "compact", *arguments, "-o", "json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_older_files_become_one(logs):
    meant = contents(logs.folder / "out/a")
    (planned,) = compacted(logs, "out/a", "--before", "3", "--dry-run")
    assert len(names(logs)) == 4
    (done,) = compacted(logs, "out/a", "--before", "3")
    assert done == planned
    assert {name: done[name] for name in ("output", "horizon", "files", "rows_before", "rows")} == {
        "output": "rows",
        "horizon": "2",
        "files": 3,
        "rows_before": 3,
        "rows": 2,
    }
    assert names(logs) == ["updates-3-4.parquet", "updates-start-3-summed5.parquet"]
    assert contents(logs.folder / "out/a") == meant
    assert logs("log", "out/a", "--as-of", "2").code == 0
    refused = logs("log", "out/a", "--as-of", "1")
    assert refused.code == 2
    assert "the log remembers nothing before 2" in refused.err
    assert "were summed up as of then" in logs("log", "out/a").err
    assert logs("state", "verify", "a.yaml").code == 0
    produce(logs, 4)
    (done,) = compacted(logs, "out/a")
    assert (done["files"], done["horizon"]) == (3, "4")
    assert len(names(logs)) == 1


def test_all_logs_of_a_pipeline(logs):
    done = compacted(logs, "a.yaml")
    assert [(each["output"], each["files"]) for each in done] == [("rows", 4), ("again", 4)]
    assert [each["horizon"] for each in compacted(logs, "a.yaml")] == [None, None]
    result = logs("log", "compact", "a.yaml")
    assert result.out.splitlines() == ["rows: nothing to sum up", "again: nothing to sum up"]


def test_what_a_reader_has_not_taken_stays(logs):
    assert logs("run", "r.yaml").code == 0
    (hold,) = read_holds(logs.folder / ".dd/a")
    assert (hold.reader.endswith("-logs"), hold.since) == (True, ((4,),))
    for time in (4, 5):
        produce(logs, time)
    (done,) = compacted(logs, "out/a")
    assert (done["files"], done["horizon"]) == (4, "3")
    assert logs("run", "r.yaml").code == 0
    assert contents(logs.folder / "out/r") == contents(logs.folder / "out/a")
    refused = logs("state", "reopen", "r.yaml", "--from", "2")
    assert refused.code == 3
    assert "can't be taken back so far" in refused.err


def test_a_reader_whose_hold_was_released_is_refused_and_begins_anew(logs):
    assert logs("run", "r.yaml").code == 0
    produce(logs, 4)
    (hold,) = read_holds(logs.folder / ".dd/a")
    assert logs("state", "release", "a.yaml", "--reader", hold.reader).code == 0
    compacted(logs, "out/a")
    refused = logs("run", "r.yaml")
    assert refused.code == 3
    assert "summed up before this pipeline had taken all of them" in refused.err
    assert logs("run", "r.yaml", "--full-refresh", "all", "--apply").code == 0
    produce(logs, 5)
    assert logs("run", "r.yaml").code == 0
    assert contents(logs.folder / "out/r") == contents(logs.folder / "out/a")


def test_what_a_consumer_has_not_got_stays(logs):
    feed = OutputFeed.open("out/a", logs.folder)
    feed.deliver("mail")
    feed.acknowledge("mail")
    produce(logs, 4)
    produce(logs, 5)
    (done,) = compacted(logs, "out/a")
    assert done["files"] == 4
    assert {row[0]: row[1] for row in feed.deliver("mail").changes.iter_rows()} == {"y": 2}


def test_what_is_no_output_is_refused(logs):
    refused = logs("log", "compact", "in")
    assert refused.code == 3
    assert "no output of a pipeline" in refused.err


@pytest.mark.parametrize(("forgotten", "left"), [("'y'", [("x", 2, 1)]), ("'x', 'y'", [])])
def test_a_log_whose_rows_are_forgotten_keeps_its_horizon(logs, forgotten, left):
    compacted(logs, "out/a", "--before", "3")
    assert logs("forget", "a.yaml", "--where", f"k in ({forgotten})").code == 0
    (name,) = (logs.folder / "out/a").glob("*-summed*.parquet")
    assert pl.read_parquet(name).rows() == left
    refused = logs("log", "out/a", "--as-of", "1")
    assert refused.code == 2
    assert "nothing before 2" in refused.err
    assert logs("log", "out/a", "--as-of", "2", "k=x").code == (0 if left else 1)
    produce(logs, 4)
    compacted(logs, "out/a")
    assert contents(logs.folder / "out/a") == contents(logs.folder / "out/b")
    assert logs("state", "verify", "a.yaml").code == 0


def test_a_reader_of_forgotten_rows_is_refused_whatever_it_does_with_files_that_are_gone(logs):
    logs.write("r.yaml", READER.replace("out/a/}", "{path: out/a/, consumed: forget}}", 1))
    assert logs("run", "r.yaml").code == 0
    compacted(logs, "out/a")
    assert logs("forget", "a.yaml", "--where", "k = 'y'").code == 0
    refused = logs("run", "r.yaml")
    assert refused.code == 3, refused.out
    assert "--full-refresh all" in refused.err


def test_variables_of_a_pipeline_file(logs):
    logs.write("a.yaml", WRITER.replace("out/b/", "'out/${PLACE}/'"))
    (_, other) = compacted(logs, "a.yaml", "--var", "PLACE=b")
    assert other["path"].endswith("out/b")


def test_who_reads_a_log_anew_learns_that_its_past_is_summed_up(logs):
    compacted(logs, "out/a")
    noted = "inputs.rows: older updates in its log are summed up"
    first = logs("run", "r.yaml")
    assert first.code == 0
    assert first.err.count(noted) == 1, first.err
    produce(logs, 4)
    assert noted not in logs("run", "r.yaml").err
    assert logs("forget", "r.yaml", "--where", "k = 'y'").err.count(noted) == 1


def test_what_is_made_of_a_log_whose_past_is_summed_up_says_nothing_of_that(logs):
    """An output that began after it, and one that is made of that in turn: an earlier time is refused, with the horizon. One that began before says what it said."""
    logs.write("e.yaml", READER.replace("name: r", "name: e").replace("out/r/", "out/e/"))
    logs.write(
        "own.yaml", READER.replace("name: r", "name: own").replace("out/a/", "in/").replace("out/r/", "out/own/")
    )
    assert logs("run", "e.yaml").code == 0
    compacted(logs, "out/a", "--before", "3")
    logs.write("s.yaml", "name: s\ninputs: {rows: out/r/}\noutputs: {rows: out/s/}\n")
    for name in ("r", "s", "own"):
        assert logs("run", f"{name}.yaml").code == 0
    for again in range(2):
        for name in ("r", "s"):
            refused = logs("log", f"out/{name}", "--as-of", "1")
            assert (refused.code, refused.out) == (2, ""), name
            assert "the log remembers nothing before 2" in refused.err
            assert logs("log", f"out/{name}", "--as-of", "2", "k=x").code == 0
        for name in ("e", "own"):
            assert logs("log", f"out/{name}", "--as-of", "1", "k=x").code == 0
        produce(logs, 4 + again)
        for name in ("e", "r", "s"):
            assert logs("run", f"{name}.yaml").code == 0
    assert logs("forget", "r.yaml", "--where", "k = 'y'").code == 0
    assert logs("log", "out/r", "--as-of", "1").code == 2
    compacted(logs, "out/r")
    assert logs("log", "out/r", "--as-of", "1").code == 2


def test_the_state_says_nothing_of_that_either(logs):
    """Also when rows were forgotten, which computes its past anew."""
    reduced = "collections: {n: {from: rows, apply: [{reduce: {by: [k], n: count(*)}}]}}\noutputs: {n: out/r/}\nhistory: all\n"
    logs.write("r.yaml", f"name: r\ninputs: {{rows: out/a/}}\n{reduced}")
    logs.write("e.yaml", f"name: e\ninputs: {{rows: out/a/}}\n{reduced.replace('out/r/', 'out/e/')}")
    assert logs("run", "e.yaml").code == 0
    compacted(logs, "out/a", "--before", "3")
    assert logs("run", "r.yaml").code == 0
    produce(logs, 4)
    assert logs("run", "r.yaml").code == 0
    asked = lambda name, at: logs("query", f"{name}.yaml", "n", "k=x", "--as-of", at)  # noqa: E731
    for name in ("r", "e"):
        refused = asked("r", "1")
        assert (refused.code, refused.out) == (2, "")
        assert "before 2 is unknown: older updates in a log" in refused.err
        assert asked("r", "2").out.splitlines()[1:] == ["x  1     1"]
        if name == "r":
            assert asked("e", "1").out.splitlines()[1:] == ["x  1     1"]
            assert logs("forget", "e.yaml", "--where", "k = 'y'").code == 0
        else:
            assert asked("e", "1").code == 2
