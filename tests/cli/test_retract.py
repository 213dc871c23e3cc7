"""`dd retract`: what becomes of a file's updates, of the file that lies there, and what is refused."""

import datetime as dt
import json
import os
import re
import subprocess

import polars as pl
import pytest

from ddcli.store.state.manifest import read_newest
from tests.harness import contents, files, read_log

UPSERT = """\
name: p
inputs:
  a: {path: in/, format: upsert, key: [k], columns: {k: int64, v: string}}
outputs: {a: out/}
"""
EVENTS = """\
name: p
clock: event
inputs:
  a: {path: in/}
  b: {path: other/}
collections:
  n: {from: a, apply: [{reduce: {by: [k], n: count(*)}}]}
  both: {from: n, apply: [{join: {with: b, on: [k]}}]}
outputs: {n: out/, both: both/}
"""
LOG = {"k": pl.String, "time": pl.Int64, "diff": pl.Int64}


def csv(*rows):
    return "k,v\n" + "".join(f"{k},{v}\n" for k, v in rows)


def ran(shop, command, *arguments, code=0):
    result = shop(command, "p.yaml", *arguments)
    assert result.code == code, result.err
    return result


@pytest.fixture
def upsert(shop):
    """Return a folder in which the second file has overwritten a key of the first one."""
    shop.write("p.yaml", UPSERT)
    shop.write("in/1.csv", csv((1, "a"), (2, "b")))
    ran(shop, "run", "--now", "2020-01-01")
    shop.write("in/2.csv", csv((1, "bad"), (3, "c")))
    ran(shop, "run", "--now", "2020-01-02")
    return shop


@pytest.fixture
def events(shop):
    """Return a folder with times of events, three of which are closed; a file has more."""
    shop.write("p.yaml", EVENTS)
    shop.log("other/1.parquet", [("x", 0, 1), ("y", 0, 1)], **LOG)
    shop.log("in/1.parquet", [("x", 0, 1), ("y", 1, 1)], **LOG)
    shop.log("in/2.parquet", [("x", 2, 1), ("z", 2, 1), ("y", 7, 1)], **LOG)
    ran(shop, "run", "--until", "3")
    return shop


def test_a_key_has_again_what_the_other_files_say(upsert):
    assert contents(upsert.folder / "out") == {(1, "bad"): 1, (2, "b"): 1, (3, "c"): 1}
    done = ran(upsert, "retract", "in/2.csv", "--now", "2021-01-01")
    assert "withdrew 2.csv from a" in done.err
    assert "at 2021-01-01 00:00:00" in done.err
    assert contents(upsert.folder / "out") == {(1, "a"): 1, (2, "b"): 1}
    last = read_log(upsert.folder / "out")["time"].max()
    assert last == dt.datetime(2021, 1, 1)  # noqa: DTZ001 - times have no zone
    assert json.loads((upsert.folder / "out/_progress.json").read_text())["upper"] == [[1609459200000001]]


def test_what_lies_there_as_it_was_is_passed_over_until_it_changes(upsert):
    ran(upsert, "retract", "in/2.csv")
    assert "nothing new" in ran(upsert, "run").err
    os.utime(upsert.folder / "in/2.csv")
    assert "nothing new" in ran(upsert, "run").err
    upsert.write("in/3.csv", csv((4, "d")))
    assert "skipped a: in/2.csv: withdrawn with `dd retract`; " in ran(upsert, "run").err
    ran(upsert, "run", "--full-refresh", "all")
    assert contents(upsert.folder / "out") == {(1, "a"): 1, (2, "b"): 1, (4, "d"): 1}
    assert "was withdrawn before" in ran(upsert, "retract", "in/2.csv").err
    upsert.write("in/2.csv", csv((1, "fine"), (3, "c")))
    assert "1 file" in ran(upsert, "run").err
    assert contents(upsert.folder / "out") == {(1, "fine"): 1, (2, "b"): 1, (3, "c"): 1, (4, "d"): 1}


def test_a_mended_file_is_taken_in_by_the_same_run(upsert):
    upsert.write("in/2.csv", csv((1, "fine"), (3, "c")))
    err = ran(upsert, "run", code=3).err
    assert "already read has changed" in err
    assert err.splitlines()[1:] == [
        "hint: one of these:",
        "  - put the file back as it was, and new rows into a file of their own",
        "  - withdraw it, and read the file that is there now: `dd retract p.yaml in/2.csv`",
        "  - replace the rows of files that have changed, from now on: `changed: replace` under the input",
        "  - recompute everything from the present files: `dd run p.yaml --full-refresh all`",
    ]
    summary = json.loads(ran(upsert, "retract", "in/2.csv", "-o", "json", "--now", "2021-01-01").out)
    assert (summary["withdrawn"], summary["replaced"]) == ({}, {"a": ["2.csv"]})
    assert contents(upsert.folder / "out") == {(1, "fine"): 1, (2, "b"): 1, (3, "c"): 1}


def test_a_repeated_command_does_not_withdraw_the_repaired_file(upsert):
    """It was read in the place of another: a line of cron that repeats would lose its rows. A file that is touched has not changed; one that is gone has."""
    upsert.write("in/2.csv", csv((1, "fine"), (3, "c")))
    ran(upsert, "retract", "in/2.csv")
    held = contents(upsert.folder / "out")
    os.utime(upsert.folder / "in/2.csv")
    err = ran(upsert, "retract", "in/1.csv", "in/2.csv", code=3).err
    assert "read again after it was repaired; it has not changed since" in err
    assert contents(upsert.folder / "out") == held
    upsert.write("in/2.csv", csv((1, "better"), (3, "c")))
    ran(upsert, "retract", "in/2.csv")
    assert contents(upsert.folder / "out") == {(1, "better"): 1, (2, "b"): 1, (3, "c"): 1}
    ran(upsert, "retract", "--again", "in/2.csv")
    assert contents(upsert.folder / "out") == {(1, "a"): 1, (2, "b"): 1}
    ran(upsert, "retract", "in/2.csv")  # nothing of it is there


def test_a_file_of_the_same_size_and_time_that_was_mended_counts_as_another(upsert):
    path = upsert.folder / "in/2.csv"
    stat = path.stat()
    upsert.write("in/2.csv", csv((1, "god"), (3, "c")))
    os.utime(path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    ran(upsert, "retract", "in/2.csv")
    assert (1, "god") in contents(upsert.folder / "out")


def test_a_file_that_is_gone_can_be_withdrawn_and_put_back(upsert):
    path = upsert.folder / "in/2.csv"
    data = path.read_bytes()
    path.unlink()
    err = ran(upsert, "run", code=3).err
    assert "has vanished" in err
    assert err.splitlines()[2:] == [
        "  - put the file back as it was",
        "  - withdraw its rows: `dd retract p.yaml in/2.csv`, or `dd retract p.yaml --missing` for all files that are gone",
        "  - keep the rows of files that are gone: `consumed: forget` under the input",
        "  - take out the rows of files that are gone, from now on: `missing: retract` under the input",
        "  - recompute everything from the present files: `dd run p.yaml --full-refresh all`",
    ]
    ran(upsert, "retract", "in/2.csv")
    assert contents(upsert.folder / "out") == {(1, "a"): 1, (2, "b"): 1}
    assert "no run has read this file" in ran(upsert, "retract", "in/2.csv", code=3).err
    path.write_bytes(data)
    ran(upsert, "run")
    assert contents(upsert.folder / "out") == {(1, "bad"): 1, (2, "b"): 1, (3, "c"): 1}


@pytest.mark.parametrize("path", ["in/1.csv", "in/*.csv"])
@pytest.mark.parametrize("first", ["withdrawn", "removed"])
def test_the_only_file_of_an_input_is_gone(shop, path, first):
    """Runs continue without it, whichever comes first, and read it when it is back."""
    shop.write("p.yaml", UPSERT.replace("in/", path))
    file = shop.write("in/1.csv", csv((1, "a")))
    ran(shop, "run")
    if first == "removed":
        file.unlink()
    ran(shop, "retract", file)
    file.unlink(missing_ok=True)
    assert contents(shop.folder / "out") == {}
    for command in ("run", "run", "check", "plan", "inputs"):
        ran(shop, command)
    assert ran(shop, "run", "--full-refresh", "all").code == 0
    assert contents(shop.folder / "out") == {}
    shop.write("in/1.csv", csv((1, "b")))
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(1, "b"): 1}


def test_a_table_that_was_passed_over_counts_when_the_newest_is_withdrawn(shop):
    """With an order, an older table that came later, and was none, is the newest of those that are left."""
    shop.write(
        "p.yaml",
        "name: p\ninputs:\n  a: {path: in/, format: snapshots, order_by: day, columns: {k: int64, day: int64}}\noutputs: {a: out/}\n",
    )
    shop.write("in/1.csv", "k,day\n1,10\n")
    ran(shop, "run")
    shop.write("in/2.csv", "k,day\n2,3\n")
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(1, 10): 1}
    ran(shop, "retract", "in/1.csv")
    assert contents(shop.folder / "out") == {(2, 3): 1}
    shop.write("in/3.csv", "k,day\n3,5\n")
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(3, 5): 1}


def test_a_file_that_no_run_has_read_stops_no_other(upsert):
    done = ran(upsert, "retract", "in/9.csv", "in/2.csv")
    assert "in/9.csv: no run has read this file, so there is nothing to withdraw\n" in done.err
    assert "withdrew 2.csv from a" in done.err
    assert contents(upsert.folder / "out") == {(1, "a"): 1, (2, "b"): 1}


@pytest.mark.parametrize("name", ["it's 3.csv", "$(id) \x1b[31m\n\x85\\3.csv", "-3*;\u202e.csv"])
def test_commands_in_hints_can_be_pasted_whatever_the_names_are(upsert, name):
    (upsert.folder / "p.yaml").rename(upsert.folder / "my p.yaml")
    upsert.write(f"in/{name}", csv((1, "worse")))
    assert upsert("run", "my p.yaml").code == 0
    upsert.write(f"in/{name}", csv((1, "fine"), (9, "z")))
    err = upsert("run", "my p.yaml").err
    (command,) = re.findall(r"`(dd retract .*?)`", err)
    pasted = f"dd() {{ printf '%s\\0' \"$@\"; }}; {command}"
    shell = subprocess.run(["bash", "-c", pasted], stdout=subprocess.PIPE, env={"LC_ALL": "C.UTF-8"}, check=True)
    words = shell.stdout.decode().split("\0")[:-1]
    assert words == ["retract", "my p.yaml", f"in/{name}"]
    assert upsert(*words).code == 0
    assert (1, "fine") in contents(upsert.folder / "out")


def test_a_summary_counts_the_files_beyond_five(shop):
    shop.write("p.yaml", UPSERT)
    for at in range(8):
        shop.write(f"in/{at}.csv", csv((at, "a")))
    ran(shop, "run")
    lines = ran(shop, "retract", *(f"in/{at}.csv" for at in range(7))).err.splitlines()
    assert [line for line in lines if "withdrew" in line] == [
        *(f"  withdrew {at}.csv from a" for at in range(5)),
        "  withdrew 2 more from a",
    ]
    assert contents(shop.folder / "out") == {(7, "a"): 1}


def test_a_dry_run_and_what_is_refused_change_nothing(upsert):
    before = files(upsert.folder)
    err = ran(upsert, "retract", "in/2.csv", "--dry-run").err
    assert "dry run" in err
    assert "  withdrew 2.csv from a\n" in err
    assert "no run has read this file" in ran(upsert, "retract", "in/8.csv", "in/9.csv", code=3).err
    assert "is before" in ran(upsert, "retract", "in/2.csv", "--now", "2000-01-01", code=2).err
    assert files(upsert.folder) == before
    (upsert.folder / "in/1.csv").write_text(csv((1, "other")))
    err = ran(upsert, "retract", "in/2.csv", code=3).err
    assert "in/1.csv: error: a file that was already read has changed" in err
    upsert.write("in/1.csv", csv((1, "a"), (2, "b")))
    upsert.write(
        "p.yaml", UPSERT.replace("outputs: {a: out/}", "outputs: {a: out/, c: more/}\ncollections: {c: {from: a}}")
    )
    assert "the pipeline has changed" in ran(upsert, "retract", "in/2.csv", code=4).err


def test_a_file_of_several_inputs_goes_from_all_of_them_through_a_link_too(shop):
    shop.write(
        "p.yaml",
        "inputs:\n  a: {path: in/, format: append, columns: {k: int64, v: string}}\n"
        "  b: {path: in/2*.csv, format: append, columns: {k: int64, v: string}}\n"
        "collections: {c: {from: [a, b]}}\noutputs: {c: out/}\nname: p\n",
    )
    shop.write("in/1.csv", csv((1, "a")))
    shop.write("in/2.csv", csv((2, "b")))
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(1, "a"): 1, (2, "b"): 2}
    (shop.folder / "link").symlink_to(shop.folder / "in")
    ran(shop, "retract", "link/2.csv")
    assert contents(shop.folder / "out") == {(1, "a"): 1}


def test_under_the_clock_of_events_updates_are_taken_back_at_the_first_open_time(events):
    """Also rows that still waited for their time go, and no closed time changes."""
    closed = read_log(events.folder / "out")
    ran(events, "retract", "in/2.parquet")
    log = read_log(events.folder / "out")
    assert log.filter(pl.col("time") < 3).sort(log.columns).equals(closed.sort(log.columns))
    assert log.filter(pl.col("time") >= 3)["time"].unique().to_list() == [3]
    assert contents(events.folder / "out") == {("x", 1): 1, ("y", 1): 1}
    assert contents(events.folder / "both") == {("x", 1): 1, ("y", 1): 1}
    assert "was withdrawn before" in ran(events, "retract", "in/2.parquet").err
    assert read_newest(events.folder / ".dd/p").upper == ((3,),)
    assert "in/2.parquet" not in str(read_newest(events.folder / ".dd/p").inputs["b"].files)
    ran(events, "run", "--until", "9")
    assert contents(events.folder / "out") == {("x", 1): 1, ("y", 1): 1}


def test_under_the_clock_of_events_a_mended_file_has_its_own_times(events):
    """Its rows at closed times are no late ones: they come in place of those that were taken in. The others wait."""
    events.log("in/2.parquet", [("x", 1, 1), ("x", 2, 1), ("y", 7, 1)], **LOG)
    summary = json.loads(ran(events, "retract", "in/2.parquet", "-o", "json").out)
    assert summary["replaced"] == {"a": ["2.parquet"]}
    assert contents(events.folder / "out", until=4) == {("x", 3): 1, ("y", 1): 1}
    ran(events, "run", "--until", "9")
    assert contents(events.folder / "out") == {("x", 3): 1, ("y", 2): 1}
    assert contents(events.folder / "both") == {("x", 3): 1, ("y", 2): 1}


def test_a_file_that_is_mended_after_it_was_withdrawn_is_taken_in_by_the_next_run(events):
    ran(events, "retract", "in/2.parquet")
    events.log("in/2.parquet", [("x", 1, 1), ("x", 7, 1)], **LOG)
    plan = ran(events, "plan")
    assert "again   a: 1 file" in plan.out
    assert "--apply" not in plan.out
    ran(events, "run", "--until", "5")
    assert contents(events.folder / "out", until=4) == {("x", 2): 1, ("y", 1): 1}
    assert contents(events.folder / "both") == {("x", 2): 1, ("y", 1): 1}
    ran(events, "run", "--until", "9")
    assert contents(events.folder / "out") == {("x", 3): 1, ("y", 1): 1}


def test_a_file_of_many(shop):
    """Entries of files that lie in segments by now are taken back too."""
    shop.write("p.yaml", UPSERT.replace("upsert, key: [k]", "append"))
    for number in range(70):
        shop.write(f"in/{number}.csv", csv((number, "a")))
    ran(shop, "run")
    for number in range(70, 140):
        shop.write(f"in/{number}.csv", csv((number, "a")))
    ran(shop, "run")
    (shop.folder / "in/3.csv").unlink()
    ran(shop, "retract", "in/3.csv", "in/99.csv")
    there = {file.path for file in read_newest(shop.folder / ".dd/p").inputs["a"].files if not file.withdrawn}
    assert there == {f"{number}.csv" for number in range(140) if number not in (3, 99)}
    assert len(contents(shop.folder / "out")) == 138
    assert "nothing new" in ran(shop, "run").err
    assert shop("state", "verify", "p.yaml").code == 0


def test_rows_put_aside_go_with_their_file(shop):
    shop.write(
        "p.yaml",
        "name: p\nclock: event\nerrors: quarantine\ninputs:\n  a: {path: in/, late: quarantine, quarantine: late/}\n"
        "collections: {c: {from: a, apply: [{map: {n: cast(k as int64)}}]}}\noutputs: {c: out/}\n",
    )
    shop.log("in/1.parquet", [("1", 0, 1), ("bad", 1, 1)], **LOG)
    ran(shop, "run", "--until", "2")
    shop.log("in/2.parquet", [("2", 2, 1), ("late", 0, 1), ("worse", 2, 1)], **LOG)
    ran(shop, "run", "--until", "3")

    def logged(where, *columns):
        frame = read_log(where).group_by(columns).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
        return sorted(frame.select(columns).rows())

    errors = shop.folder / ".dd/p/errors"
    assert logged(errors, "record") == [('{"k": "bad"}',), ('{"k": "worse"}',)]
    assert logged(shop.folder / "late", "k") == [("late",)]
    ran(shop, "retract", "in/2.parquet")
    assert logged(errors, "record") == [('{"k": "bad"}',)]
    assert logged(shop.folder / "late", "k") == []
    assert contents(shop.folder / "out") == {(1,): 1}
    shop.log("in/2.parquet", [("3", 3, 1)], **LOG)
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(1,): 1, (3,): 1}


def test_times_of_a_product(shop):
    shop.write("p.yaml", "name: p\ninputs: {a: {path: in/, time: [x, y]}}\noutputs: {a: out/}\n")
    kinds = {"k": pl.String, "x": pl.Int64, "y": pl.Int64, "diff": pl.Int64}
    shop.log("in/1.parquet", [("a", 0, 0, 1), ("b", 0, 1, 1)], **kinds)
    shop.log("in/2.parquet", [("a", 1, 0, 1), ("c", 0, 0, 1), ("d", 3, 3, 1)], **kinds)
    ran(shop, "run", "--until", "2,2")
    before = read_log(shop.folder / "out")
    ran(shop, "retract", "in/2.parquet")
    log = read_log(shop.folder / "out")
    for x, y in [(2, 0), (0, 2), (2, 2), (5, 1)]:
        there = log.filter((pl.col("x") <= x) & (pl.col("y") <= y)).group_by("k").agg(pl.col("diff").sum())
        wanted = {"a": 1} | ({"b": 1} if y else {})
        assert dict(there.filter(pl.col("diff") != 0).rows()) == wanted, (x, y)
    closed = (pl.col("x") < 2) & (pl.col("y") < 2)
    assert log.filter(closed).sort(log.columns).equals(before.sort(log.columns))


def test_what_is_due_and_what_leaves_with_the_file(shop):
    """A filter of time: what entered and left between the last run and this one is exact too."""
    shop.write(
        "p.yaml",
        'name: p\ninputs:\n  a: {path: in/, format: append, columns: {k: int64, placed: "datetime[us]"}}\n'
        "collections:\n  w: {from: a, apply: [{temporal_filter: {from: placed, until: placed + interval '7 days'}}, {project: [k]}]}\n"
        "outputs: {w: out/}\n",
    )
    shop.write("in/1.csv", "k,placed\n1,2024-01-01 00:00:00\n2,2024-01-05 00:00:00\n")
    shop.write("in/2.csv", "k,placed\n3,2024-01-06 00:00:00\n4,2024-01-20 00:00:00\n")
    ran(shop, "run", "--now", "2024-01-06")
    assert contents(shop.folder / "out") == {(1,): 1, (2,): 1, (3,): 1}
    ran(shop, "retract", "in/2.csv", "--now", "2024-01-09")
    assert contents(shop.folder / "out") == {(2,): 1}
    assert "nothing new" in ran(shop, "run", "--now", "2024-01-11").err
    ran(shop, "run", "--now", "2024-01-21")
    assert contents(shop.folder / "out") == {}
    assert "nothing new" in ran(shop, "run", "--now", "2024-02-21").err


def test_what_another_pipeline_reads_is_not_taken_back_behind_its_back(shop):
    shop.write(
        "p.yaml",
        "name: p\ninputs: {a: {path: in/}}\ncollections: {c: {from: a, apply: [{arrange: {by: [k], export: by_k}}]}}\noutputs: {c: out/}\n",
    )
    shop.write(
        "q.yaml",
        "name: q\ninputs: {a: {import: {state: .dd/p/, arrangement: by_k}}}\noutputs: {a: q/}\n",
    )
    shop.log("in/1.parquet", [("x", 0, 1)], **LOG)
    shop.log("in/2.parquet", [("y", 0, 1)], **LOG)
    ran(shop, "run")
    assert shop("run", "q.yaml").code == 0
    err = ran(shop, "retract", "in/2.parquet", code=4).err
    assert "reads rows that would be withdrawn: the exported 'by_k'" in err
    reader = err.partition("--reader ")[2].partition("`")[0]
    assert shop("state", "release", "p.yaml", "--reader", reader).code == 0
    ran(shop, "retract", "in/2.parquet")
    assert shop("run", "q.yaml", "--full-refresh", "all").code == 0
    assert contents(shop.folder / "q") == {("x",): 1}


def test_a_file_in_an_archive_is_withdrawn_once(shop):
    """Its name may come again, even with the same content, and whoever withdraws it twice has done no wrong."""
    shop.write("p.yaml", UPSERT.replace("upsert, key: [k]", "append").replace("}}", "}, consumed: {archive: done/}}"))
    path = shop.write("in/1.csv", csv((1, "a")))
    shop.write("in/2.csv", csv((2, "b")))
    ran(shop, "run")
    stat = (shop.folder / "done/1.csv").stat()
    ran(shop, "retract", "done/1.csv")
    for name in ("done/1.csv", "in/1.csv"):
        again = ran(shop, "retract", name)
        assert again.err.splitlines()[0] == f"{name} was withdrawn before, and nothing of it is in the state"
        assert again.err.count("was withdrawn before") == 1
    assert "nothing new" in ran(shop, "run").err
    shop.write("in/3.csv", csv((3, "c")))
    assert "passed" not in ran(shop, "run", "--full-refresh", "all").err
    assert contents(shop.folder / "out") == {(2, "b"): 1, (3, "c"): 1}
    assert shop("state", "verify", "p.yaml").code == 0
    path.write_bytes((shop.folder / "done/1.csv").read_bytes())
    os.utime(path, ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1}
    assert (shop.folder / "done/2/1.csv").exists()
    ran(shop, "retract", "in/1.csv")
    assert contents(shop.folder / "out") == {(2, "b"): 1, (3, "c"): 1}
    assert "was withdrawn before" in ran(shop, "retract", "in/1.csv").err


def test_what_was_withdrawn_before_is_noted_once_and_a_quiet_call_says_nothing(upsert):
    done = ran(upsert, "retract", "in/2.csv", "--quiet")
    assert (done.out, done.err) == ("", "")
    upsert.write("in/3.csv", csv((4, "d")))
    err = ran(upsert, "retract", upsert.folder / "in/2.csv").err
    assert err.startswith("in/2.csv was withdrawn before, and nothing of it is in the state\n")
    assert err.count("was withdrawn before") == 1
    again = ran(upsert, "retract", "in/2.csv", "-q")
    assert (again.out, again.err) == ("", "")
    assert ran(upsert, "retract", "in/9.csv", "-q", code=3).err


def test_a_withdrawn_file_that_goes_is_forgotten_by_the_next_commit(upsert):
    """If it returns before, it is passed over: no run with something to do has seen that it was gone."""
    ran(upsert, "retract", "in/2.csv")
    path = upsert.folder / "in/2.csv"
    data = path.read_bytes()
    path.unlink()
    assert "nothing new" in ran(upsert, "run").err
    path.write_bytes(data)
    upsert.write("in/3.csv", csv((4, "d")))
    assert "skipped a: in/2.csv: withdrawn with `dd retract`; " in ran(upsert, "run").err
    path.unlink()
    upsert.write("in/4.csv", csv((5, "e")))
    ran(upsert, "run")
    path.write_bytes(data)
    ran(upsert, "run")
    assert contents(upsert.folder / "out") == {(1, "bad"): 1, (2, "b"): 1, (3, "c"): 1, (4, "d"): 1, (5, "e"): 1}


def test_of_a_record_that_was_withdrawn_nobody_says_that_there_was_none(upsert):
    ran(upsert, "retract", "in/2.csv")
    for change in ((), ("--change",)):  # its file is still in its place, so that it can be shown
        said = ran(upsert, "why", "a", "k=3", *change, code=1).err
        assert "which replaced or withdrew in/2.csv" in said
        assert "no such record has existed" not in said
    time = re.search("--as-of '(.*?)'", said)[1]
    assert re.search(r"k: 3, v: .?c\b", ran(upsert, "why", "a", "k=3", "--as-of", time).out)
    (upsert.folder / "in/2.csv").unlink()
    upsert.write("in/3.csv", csv((4, "d")))
    ran(upsert, "run")
    assert "by the inputs as they are now\n" in ran(upsert, "why", "a", "k=3", code=1).err


def test_all_files_that_are_gone_go_at_once(upsert):
    assert "no file that was read is missing" in ran(upsert, "retract", "--missing", code=0).err
    for name in ("1.csv", "2.csv"):
        (upsert.folder / "in" / name).unlink()
    upsert.write("in/3.csv", csv((4, "d")))
    summary = json.loads(ran(upsert, "retract", "--missing", "-o", "json").out)
    assert summary["withdrawn"] == {"a": ["1.csv", "2.csv"]}
    assert contents(upsert.folder / "out") == {(4, "d"): 1}
    assert "name files to withdraw, or state --missing" in ran(upsert, "retract", code=2).err


def test_a_strict_call_withdraws_nothing_if_a_file_was_not_read(upsert):
    before = files(upsert.folder)
    assert "no run has read this file" in ran(upsert, "retract", "in/2.csv", "in/9.csv", "--strict", code=3).err
    assert files(upsert.folder) == before
    assert "no run has read this file" in ran(upsert, "retract", "in/2.csv", "in/9.csv").err
    assert contents(upsert.folder / "out") == {(1, "a"): 1, (2, "b"): 1}
