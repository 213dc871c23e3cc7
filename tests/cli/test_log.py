"""`dd log`: what is printed, in which form, and what is refused.

`dd log compact`: what it reports, what it leaves, and what readers in other pipelines and consumers keep from it.
"""

import io
import json
import pty
import shlex
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
import pytest

from ddcli.cli.main import main
from ddcli.feed.delivery import OutputFeed
from ddcli.store.state.directory import read_holds
from tests.harness import ROOT, contents


def test_a_person_sees_columns(orders):
    assert orders("log", "orders/").out == (
        "region  amount  time  diff\n"
        "north       10     0     1\n"
        "north        5     1     1\n"
        "south        7     1     1\n"
        "north       10     2    -1\n"
    )
    assert orders("log", "orders/1.parquet", "--as-of", 1).out == (
        "region  amount  diff\nnorth        5     1\nnorth       10     1\nsouth        7     1\n"
    )


def test_columns_of_text_are_named_by_the_option(shop):
    """The hint's words can be pasted, whatever the columns are called."""
    shop.write("it's/1.csv", "the k,time,diff\n1,0,1\n")
    refused = shop("log", "it's/")
    assert refused.code == 3
    option = refused.err.partition("hint: name them: ")[2].strip()
    assert shlex.split(option)[0] == "--columns"
    assert shop("log", "it's/", *shlex.split(option)).out == "the k  time  diff\n    1     0     1\n"


def test_an_output_is_a_log(orders):
    orders("run", "orders.yaml", "--until", 2)
    found = json.loads(orders("log", "out/totals", "--as-of", 1, "-o", "json").out)
    assert found == [
        {"region": "north", "orders": 2, "amount": 15, "diff": 1},
        {"region": "south", "orders": 1, "amount": 7, "diff": 1},
    ]
    later = orders("log", "out/totals", "--as-of", 2)
    assert later.err == "note: the log is complete before 2; at 2 it may still change\n"
    assert orders("log", "out/totals", "--as-of", 1).err == ""


def test_an_output_without_records_so_far_is_no_wrong_path(orders):
    """It has a file without rows, so that its columns are known; a directory of an older version has none."""
    orders("run", "orders.yaml", "--until", 0)
    (empty,) = (orders.folder / "out/totals").glob("*.parquet")
    assert pl.read_parquet(empty).height == 0
    found = orders("log", "out/totals")
    assert (found.code, found.out.split()) == (0, [*pl.read_parquet_schema(empty)])
    assert orders("convert", "out/totals", "t.csv", "--as-of", "latest").code == 0
    (orders.folder / "t.csv").unlink()
    empty.unlink()
    for command in (["log", "out/totals"], ["convert", "out/totals", "t.csv", "--as-of", "latest"]):
        found = orders(*command)
        assert (found.code, found.out) == (3, "")
        assert found.err.splitlines() == [
            "out/totals: error: the log has no updates yet, so its columns are unknown",
            "hint: its collection is empty: the pipeline has run, and its output had no record so far",
        ]
    (orders.folder / "empty").mkdir()
    assert "hint: check the path" in orders("log", "empty").err


def test_history_of_a_key(orders):
    found = orders("log", "orders/", "--key", "region=north", "-k", "amount=10", "-o", "jsonl")
    assert [json.loads(line) for line in found.out.splitlines()] == [
        {"region": "north", "amount": 10, "time": 0, "diff": 1},
        {"region": "north", "amount": 10, "time": 2, "diff": -1},
    ]
    none = orders("log", "orders/", "-k", "region=west")
    assert (none.code, none.err) == (1, "no rows with region = west\n")
    assert orders("log", "orders/", "-k", "region is null").code == 1


def test_limit_says_that_it_cuts(orders):
    cut = orders("log", "orders/", "-n", 2, "-o", "csv")
    assert cut.out == "region,amount,time,diff\nnorth,10,0,1\nnorth,5,1,1\n"
    assert cut.err == "cut after 2 rows by --limit; the log has more\n"
    assert orders("log", "orders/", "-n", 4).err == ""
    assert len(orders("log", "orders/", "-n", 0, "-o", "csv").out.splitlines()) == 1


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "parquet", "text"])
def test_every_type_in_every_form(tmp_path, monkeypatch, form, capfdbinary):
    """Each value is the same in all of them; the text forms are those that casts read, so CSV reads back."""
    monkeypatch.chdir(tmp_path)
    moment = datetime.fromisoformat("2024-01-02 03:04:05.6")
    row = {
        "i": 2**60, "f": 1.5, "d": Decimal("1.50"), "s": 'a"b', "e": "", "b": b"\x00\xff", "o": True,
        "day": date(2024, 1, 2), "at": moment, "z": moment.replace(tzinfo=UTC), "t": time(3, 4), "u": timedelta(seconds=90),
        "l": [1, None], "n": None,
    }  # fmt: skip
    frame = pl.DataFrame([row, dict.fromkeys(row)], schema_overrides={"d": pl.Decimal(10, 2), "n": pl.Int8})
    frame = frame.with_columns(time=pl.lit(0), diff=pl.lit(1))
    frame.write_parquet("log.parquet")
    main(["log", "log.parquet", "-o", form])
    out = capfdbinary.readouterr().out
    if form == "parquet":
        assert pl.read_parquet(io.BytesIO(out)).equals(frame, null_equal=True)
        return
    if form == "csv":
        lines = out.decode().splitlines()
        assert lines[1] == (
            '1152921504606846976,1.5,1.50,"a""b","",00ff,true,2024-01-02,2024-01-02 03:04:05.6,'
            '2024-01-02 03:04:05.600+00:00,03:04:00,PT1M30S,"[1, null]",,0,1'
        )
        assert lines[2] == ",,,,,,,,,,,,,,0,1"
        return
    if form == "text":
        assert out.decode().splitlines()[2].split() == ["null"] * 14 + ["0", "1"]
        return
    text = out.decode()
    found = json.loads(text) if form == "json" else [json.loads(line) for line in text.splitlines()]
    assert found[0]["b"] == "00ff"
    assert found[0]["i"] == 2**60
    assert (found[0]["day"], found[0]["l"], found[0]["d"]) == ("2024-01-02", [1, None], "1.50")
    assert found[1] == dict.fromkeys(row) | {"time": 0, "diff": 1}


@pytest.mark.parametrize(
    ("form", "said"),
    [("text", "region  amount  diff\n"), ("csv", "region,amount,diff\n"), ("json", "[]\n"), ("jsonl", "")],
)
def test_what_is_empty_has_columns_all_the_same(orders, form, said):
    assert orders("log", "orders/", "--as-of", -1, "-o", form).out == said


def test_since_latest_are_the_updates_at_the_last_time(orders):
    rows = [json.loads(line) for line in orders("log", "orders/", "-o", "jsonl").out.splitlines()]
    last = max(row["time"] for row in rows)
    found = orders("log", "orders/", "--since", "latest", "-o", "jsonl").out.splitlines()
    assert [json.loads(line) for line in found] == [row for row in rows if row["time"] == last] != rows


def test_csv_reads_back(orders):
    """What is written as CSV is a log, too: the same, once the types are said."""
    (orders.folder / "log.csv").write_text(orders("log", "orders/", "-o", "csv").out)
    types = ["--columns", "{region: string, amount: int64}"]
    assert orders("log", "log.csv", *types, "--as-of", 1).out == orders("log", "orders/", "--as-of", 1).out
    assert "has no column types" in orders("log", "log.csv").err
    for wrong in ("region", "{region: strin}", "[region]", "{region: {}}"):
        assert orders("log", "log.csv", "--columns", wrong).code == 2


def test_product_times_and_dates(shop):
    shop.log(
        "log/a.parquet",
        [("a", date(2024, 1, 1), 0, 1), ("a", date(2024, 1, 2), 1, 1), ("b", date(2024, 1, 1), 1, 1)],
        v=pl.String, day=pl.Date, version=pl.Int64, diff=pl.Int64,
    )  # fmt: skip
    both = ["--time", "day", "--time", "version"]
    found = shop("log", "log", *both, "--as-of", "2024-01-01,1", "-o", "jsonl").out.splitlines()
    assert [json.loads(line) for line in found] == [{"v": "a", "diff": 1}, {"v": "b", "diff": 1}]
    found = shop("log", "log", *both, "--since", "2024-01-01,1", "--until", "2024-01-02,5", "-o", "csv").out
    assert found == "v,day,version,diff\nb,2024-01-01,1,1\n"
    wrong = shop("log", "log", *both, "--as-of", "2024-01-01")
    assert wrong.code == 2
    assert "1 of the 2 coordinates of the log's time, day, version" in wrong.err


def test_wrong_use_is_told(orders):
    for arguments, code, said in (
        (["--as-of", 1, "--since", 0], 2, "leave out one or the others"),
        (["--as-of", "soon"], 2, "'soon' is not a time: the log's time is int64"),
        (["-k", "regin=x"], 2, "did you mean 'region'?"),
        (["-k", "amount=ten"], 2, "'ten' is not int64, the type of the column 'amount'"),
        (["-k", "amount"], 2, "'amount' is not a condition"),
        (["-k", "amount="], 2, "'amount=' names no value"),
        (["-k", "amount=1", "-k", "amount=2"], 2, "'amount' is given twice"),
        (["--time", "tme"], 3, "no column 'tme'"),
    ):
        found = orders("log", "orders/", *arguments)
        assert (found.code, said in found.err, found.out) == (code, True, ""), found
    assert orders("log", "order/").code == 3
    orders.write("plain.csv", "a\n1\n")
    plain = orders("log", "plain.csv", "--columns", "{a: int64}")
    assert plain.err.endswith("hint: its columns are: a; name the time column with --time\n")


def test_text_steers_no_terminal(shop):
    shop.log("log.parquet", [("a\nb\x1b[31m", 0, 1)], v=pl.String, time=pl.Int64, diff=pl.Int64)
    assert shop("log", "log.parquet").out.splitlines()[1].split() == ["a\\nb\\x1b[31m", "0", "1"]


def test_parquet_is_kept_from_a_terminal(orders):
    """As it would be read by nobody there."""
    _, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "ddcli", "log", "orders/", "-o", "parquet"],
        stdout=theirs, stderr=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}, cwd=orders.folder, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"a terminal can't show Parquet" in done.stderr


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
    for at in range(4):
        produce(shop, at)
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
    for at in (4, 5):
        produce(logs, at)
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
    next(feed.follow("mail", [None]))
    feed.acknowledge("mail")
    produce(logs, 4)
    produce(logs, 5)
    (done,) = compacted(logs, "out/a")
    assert done["files"] == 4
    assert {row[0]: row[1] for row in next(feed.follow("mail", [None])).changes.iter_rows()} == {"y": 2}


def test_what_is_no_output_is_refused(logs):
    refused = logs("log", "compact", "in")
    assert refused.code == 3
    assert "not an output of a pipeline" in refused.err


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
