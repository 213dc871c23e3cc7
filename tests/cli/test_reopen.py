"""`dd state reopen`: which times are open again, what becomes of files and readers, and what is refused."""

import datetime as dt
import json
from collections import Counter
from itertools import count, product

import polars as pl
import pytest

import ddcli.store.state.directory
from ddcli.driver.run import run
from ddcli.expressions.types import Type
from ddcli.sources.change_log import read_log
from ddcli.store.log.writer import beyond
from ddcli.store.state.directory import read_holds
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import progress_bytes
from tests import draws
from tests.draws import many, some
from tests.harness import Folder, contents, files
from tests.store.support import Dead, Faulty

LOG = {"k": pl.String, "time": pl.Int64, "diff": pl.Int64}
COUNTS = """\
name: p
clock: event
inputs: {a: {path: in/}}
collections: {n: {from: a, apply: [{reduce: {by: [k], n: count(*)}}]}}
outputs: {n: out/}
"""
DAYS = """\
name: p
clock: event
inputs: {a: {path: in/, format: append, time: day, max_ahead: none, columns: {day: date, k: string}}}
outputs: {a: out/}
"""
EXPORTER = COUNTS.replace("apply: [", "apply: [{arrange: {by: [k], export: by_k}}, ")
IMPORTER = """\
name: q
inputs: {a: {import: {state: .dd/p/, arrangement: by_k}}}
collections: {n: {from: a, apply: [{reduce: {by: [k], n: count(*)}}]}}
outputs: {n: theirs/}
"""


def ran(shop, *arguments, code=0):
    result = shop(*arguments)
    assert result.code == code, result.err
    return result


def reopen(shop, time, *options, name="p", code=0):
    return ran(shop, "state", "reopen", f"{name}.yaml", "--from", time, *options, code=code)


@pytest.fixture
def counts(shop):
    """Return a folder in which the times before 8 are closed."""
    shop.write("p.yaml", COUNTS)
    shop.log("in/1.parquet", [("x", 0, 1), ("y", 1, 1)], **LOG)
    ran(shop, "run", "p.yaml")
    shop.log("in/2.parquet", [("x", 2, 1), ("z", 7, 1)], **LOG)
    ran(shop, "run", "p.yaml")
    return shop


@pytest.fixture
def days(shop):
    """Return a folder in which a row has closed all times before 2204."""
    shop.write("p.yaml", DAYS)
    shop.write("in/1.csv", "day,k\n2024-06-01,x\n")
    shop.write("in/2.csv", "day,k\n2024-06-02,y\n2204-06-02,z\n")
    ran(shop, "run", "p.yaml")
    shop.write("in/3.csv", "day,k\n2024-06-04,x\n")
    shop.write("in/4.csv", "day,k\n2024-06-03,x\n")
    err = ran(shop, "run", "p.yaml", code=3).err
    assert "to open closed times again, `dd state reopen p.yaml --from 2024-06-03`" in err
    return shop


def test_a_row_of_a_far_day_closes_the_times_before_no_more(days):
    ran(days, "retract", "p.yaml", "in/2.csv")
    err = reopen(days, "2024-06-02").err
    assert "p: times from 2024-06-02 until 2204-06-03 are open again" in err
    days.write("in/2.csv", "day,k\n2024-06-02,y\n2024-06-04,z\n")
    assert "times from 2024-06-02 until 2024-06-05" in ran(days, "run", "p.yaml").err
    assert contents(days.folder / "out") == {("x",): 3, ("y",): 1, ("z",): 1}
    assert read_log(days.folder / "out", as_of="2024-06-03").rows() == [("x", 2), ("y", 1)]
    assert "nothing new" in ran(days, "run", "p.yaml").err
    assert "all as written" in ran(days, "state", "verify", "p.yaml").out


def test_a_file_that_is_withdrawn_afterwards_closes_nothing_either(days):
    (days.folder / "in/3.csv").unlink()
    (days.folder / "in/4.csv").unlink()
    reopen(days, "2024-06-02")
    days.write("in/2.csv", "day,k\n2024-06-02,y\n2024-06-04,z\n")
    ran(days, "retract", "p.yaml", "in/2.csv")
    assert "times from 2024-06-02 until 2024-06-05" in ran(days, "run", "p.yaml").err
    assert contents(days.folder / "out") == {("x",): 1, ("y",): 1, ("z",): 1}


def test_no_file_of_an_output_is_written_twice_however_often_times_are_opened(counts):
    before = {}
    for again in range(3):
        reopen(counts, again)
        counts.log(f"in/{again}-more.parquet", [("x", again, 1), ("z", 7, 1)], **LOG)
        ran(counts, "run", "p.yaml")
        now = {path: data for path, data in files(counts.folder / "out").items() if path.suffix == ".parquet"}
        assert before.items() <= now.items()
        assert len(now) - len(before) >= 2
        before = now
        assert json.loads((counts.folder / "out/_progress.json").read_text())["owner"]["reopenings"] == again + 1
    assert contents(counts.folder / "out") == {("x", 5): 1, ("y", 1): 1, ("z", 4): 1}
    assert contents(counts.folder / "out", 2) == {("x", 3): 1, ("y", 1): 1}


def test_an_output_may_be_begun_anew(counts):
    done = json.loads(reopen(counts, 2, "--rewrite", "n", "-o", "json").out)
    assert (done["reopened"], done["lower"], done["upper"], done["rebuilt"]["n"]["rows"]) == ("2", "8", "2", 2)
    (name,) = (path.name for path in (counts.folder / "out").glob("*.parquet"))
    assert name == "updates-8-2-reopened1.parquet"
    assert contents(counts.folder / "out") == {("x", 1): 1, ("y", 1): 1}
    ran(counts, "run", "p.yaml")
    assert contents(counts.folder / "out") == {("x", 2): 1, ("y", 1): 1, ("z", 1): 1}


def test_what_is_open_already_and_what_is_only_tried_changes_nothing(counts):
    before = files(*counts.kept)
    assert "nothing new (times before 8 are closed)" in reopen(counts, 8).err
    assert "dry run" in reopen(counts, 3, "--dry-run").err
    assert files(*counts.kept) == before


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        (
            COUNTS.replace("count(*)", "count(*) + 1"),
            "the pipeline has changed since its state was made: it is reopened",
        ),
        (COUNTS.replace("name: p", "name: other"), "there is no state here"),
    ],
)
def test_a_state_is_reopened_as_it_was_made(counts, pipeline, said):
    counts.write("p.yaml", pipeline)
    assert said in reopen(counts, 2, code=4).err


ARRIVALS = """\
name: p
inputs:
  a: {path: a/, format: upsert, key: [k], columns: {k: int64, v: int64, day: "datetime[us]"}}
  b: {path: b/, format: append, columns: {k: int64, w: int64}}
collections:
  recent: {from: a, apply: [{temporal_filter: {from: day, until: "day + interval '3' day"}}]}
  joined: {sql: "select a.k, sum(a.v + b.w) as s, count(*) as n from a join b on a.k = b.k group by a.k"}
outputs: {recent: recent/, joined: joined/}
"""


def arrivals(shop, name, chance):
    """Write some files for a run."""
    for at in range(chance.randint(0, 2)):
        rows = "".join(
            f"{chance.randrange(4)},{chance.randrange(9)},2024-01-{chance.randint(1, 20):02} 00:00:00\n"
            for _ in range(3)
        )
        shop.write(f"a/{name}-{at}.csv", f"k,v,day\n{rows}")
        shop.write(f"b/{name}-{at}.csv", f"k,w\n{chance.randrange(4)},{chance.randrange(9)}\n")


def test_runs_are_taken_back_under_the_clock_of_arrivals(shop, tmp_path):
    """The files that they took in come with the next run, as if they had waited; the contents at earlier times are as they were."""
    for case in range(many(20)):
        chance = draws.chance("arrivals", case)
        taken_back, apart = (Folder(tmp_path / f"{case}-{name}", shop.capture) for name in ("one", "other"))
        days, first = sorted(chance.sample(range(2, 22), 5)), chance.randrange(1, 5)
        for folder in (taken_back, apart):
            folder.write("p.yaml", ARRIVALS)
            folder.write("a/0.csv", "k,v,day\n")
            folder.write("b/0.csv", "k,w\n")
        for number, day in enumerate(days[:-1]):
            state = chance.getstate()
            for folder in (taken_back, apart):
                chance.setstate(state)
                arrivals(folder, number, chance)
            for folder in (taken_back, apart) if number < first else (taken_back,):
                ran(folder, "run", folder.folder / "p.yaml", "--now", f"2024-01-{day:02}")
        start = f"2024-01-{days[first] if first < len(days) - 1 else days[-1] - 1:02}"
        ran(taken_back, "state", "reopen", taken_back.folder / "p.yaml", "--from", start)
        for folder in (taken_back, apart):
            ran(folder, "run", folder.folder / "p.yaml", "--now", f"2024-01-{days[-1]:02}")
        for output, day in product(("recent", "joined"), range(1, 23)):
            moment = dt.datetime(2024, 1, day)  # noqa: DTZ001 - times have no zone
            logs = [each.folder / output for each in (taken_back, apart)]
            kept = [contents(log, until=moment) if [*log.glob("*.parquet")] else {} for log in logs]
            assert kept[0] == kept[1], (case, output, day)


def test_an_archived_file_is_not_taken_back(shop):
    shop.write(
        "p.yaml",
        "name: p\ninputs: {a: {path: in/, format: append, consumed: {archive: old/}, columns: {k: string}}}\noutputs: {a: out/}\n",
    )
    shop.write("in/1.csv", "k\nx\n")
    ran(shop, "run", "p.yaml")
    before = contents(shop.folder / "out")
    assert "no longer in its place" in reopen(shop, "2024-01-01", code=3).err
    assert contents(shop.folder / "out") == before


def test_files_that_are_gone_can_not_be_read_again(counts):
    counts.write("p.yaml", COUNTS.replace("in/}", "in/, consumed: forget}"))
    ran(counts, "run", "p.yaml")
    (counts.folder / "in/1.parquet").unlink()
    assert "can't be read again: a file of it is gone" in reopen(counts, 2, code=3).err


def test_a_reader_of_the_output_gets_late_rows_and_is_reopened_in_turn(counts):
    counts.write("q.yaml", "name: q\ninputs: {n: {path: out/}}\noutputs: {n: theirs/}\n")
    ran(counts, "run", "q.yaml")
    reopen(counts, 2)
    counts.log("in/3.parquet", [("y", 3, 1)], **LOG)
    ran(counts, "run", "p.yaml")
    assert "--from 2`" in ran(counts, "run", "q.yaml", code=3).err
    reopen(counts, 2, name="q")
    ran(counts, "run", "q.yaml")
    assert (
        contents(counts.folder / "theirs") == contents(counts.folder / "out") == {("x", 2): 1, ("y", 2): 1, ("z", 1): 1}
    )
    for time in range(9):
        assert contents(counts.folder / "theirs", time) == contents(counts.folder / "out", time)


@pytest.fixture
def both(counts):
    """Return a folder whose pipeline exports what another one has imported."""
    counts.write("p.yaml", EXPORTER)
    ran(counts, "run", "p.yaml", "--apply")
    counts.write("q.yaml", IMPORTER)
    ran(counts, "run", "q.yaml")
    return counts


def release(shop):
    (hold,) = read_holds(shop.folder / ".dd/p")
    ran(shop, "state", "release", "p.yaml", "--reader", hold.reader)


def test_an_importer_is_reopened_after_what_it_imports(both):
    assert "reopen this state, and then its own from the same time" in reopen(both, 2, code=4).err
    assert (
        "which has closed the times before 8, and no longer keeps those apart" in reopen(both, 2, name="q", code=4).err
    )
    release(both)
    reopen(both, 2)
    for options in ([], ["--full-refresh", "all"]):
        err = ran(both, "run", "q.yaml", *options, code=4).err
        assert "hint: reopen this pipeline from there too: `dd state reopen q.yaml --from 2`" in err
    reopen(both, 2, name="q")
    both.log("in/3.parquet", [("y", 3, 1)], **LOG)
    ran(both, "run", "p.yaml")
    ran(both, "run", "q.yaml")
    for time in range(3, 10):
        assert contents(both.folder / "theirs", time) == contents(both.folder / "out", time)


@pytest.mark.parametrize("how", ["reopened", "withdrawn"])
def test_an_importer_learns_that_something_was_taken_back_though_its_frontier_is_the_same(both, how):
    release(both)
    if how == "reopened":
        reopen(both, 2)
        both.log("in/3.parquet", [("y", 3, 1)], **LOG)
        ran(both, "run", "p.yaml")
    else:
        ran(both, "retract", "p.yaml", "in/1.parquet")
    assert "was rebuilt since: something in it was taken back" in ran(both, "run", "q.yaml", code=4).err
    ran(both, "run", "q.yaml", "--full-refresh", "all")
    assert contents(both.folder / "theirs") == contents(both.folder / "out")


def test_an_importer_learns_that_files_were_others_as_all_was_computed_anew(both):
    both.log("in/1.parquet", [("x", 0, 1), ("new", 1, 1)], **LOG)
    ran(both, "run", "p.yaml", "--full-refresh", "all")
    assert "was rebuilt since" in ran(both, "run", "q.yaml", code=4).err
    ran(both, "run", "q.yaml", "--full-refresh", "all")
    assert contents(both.folder / "theirs") == contents(both.folder / "out")
    ran(both, "run", "p.yaml", "--full-refresh", "all")  # of the same files: what was read of it is right
    assert "nothing new" in ran(both, "run", "q.yaml").err


def test_an_importer_closes_no_times_that_its_exporter_has_open(both):
    assert "which has closed the times before 8 only" in ran(both, "run", "q.yaml", "--until", "9", code=2).err


def test_death_at_every_operation_of_a_reopening(counts, monkeypatch):
    """Readers see the log before or after it, whatever of it is there by then; and repeated it is done, once."""
    out, state = counts.folder / "out", counts.folder / ".dd/p"
    counts.log("in/3.parquet", [("x", 7, -1), ("w", 6, 1)], **LOG)
    before = contents(out)
    seen = set()
    for at in some(count()):
        number, faulty = read_newest(state).number, Faulty(at)
        with monkeypatch.context() as patch:
            patch.setattr(ddcli.store.state.directory, "Files", lambda faulty=faulty: faulty)
            try:
                run(counts.folder / "p.yaml", reopen="2")
            except Dead:
                log = {row[:-1]: row[-1] for row in read_log(out, as_of="latest").rows()}
                assert log in (before, {("x", 1): 1, ("y", 1): 1})
                seen.add(read_newest(state).number - number)
        run(counts.folder / "p.yaml", reopen="2")
        assert read_newest(state).number == number + 1
        assert contents(out) == {("x", 1): 1, ("y", 1): 1}
        run(counts.folder / "p.yaml")
        before = contents(out)
        assert before == {("w", 1): 1, ("x", 1): 1, ("y", 1): 1, ("z", 1): 1}
        if not faulty.dead:
            break
    assert seen == {0, 1}


def test_of_a_commit_that_is_not_published_wholly_no_file_is_read():
    kinds = {"time": Type("int64")}
    names = [
        "updates-start-3.parquet", "updates-3-8.parquet", "updates-8-3-reopened1.parquet", "updates-3-8-again1.parquet",
        "updates-8-9-again1.parquet", "updates-8-8-change7.parquet", "updates-9-2-reopened2.parquet",
    ]  # fmt: skip
    assert beyond(names[:3], ((8,),), kinds) == {names[2]}
    assert beyond(names[:3], ((3,),), kinds, 1) == set()
    assert beyond(names[:4], ((3,),), kinds, 1) == {names[3]}
    assert beyond(names[:6], ((8,),), kinds, 1) == {names[4]}
    assert beyond(names, ((9,),), kinds, 1) == {names[6]}
    assert beyond(names, ((2,),), kinds, 2) == set()


def test_a_time_of_several_coordinates(shop):
    """What is open is at or after the given time in one coordinate; at every time the log holds what its rows say, however often times were opened."""
    shop.write("p.yaml", COUNTS.replace("in/}", "in/, time: [day, version]}"))
    columns = {"k": pl.String, "day": pl.Int64, "version": pl.Int64, "diff": pl.Int64}
    rows = [("xyz"[(day + version) % 3], day, version, 1) for day, version in product(range(4), range(3))]
    shop.log("in/1.parquet", rows[::2], **columns)
    ran(shop, "run", "p.yaml", "--until", "3,3")
    reopen(shop, "2,1")
    shop.log("in/2.parquet", [row for row in rows[1::2] if row[1] >= 2 or row[2] >= 1], **columns)
    ran(shop, "run", "p.yaml", "--until", "3,2")
    reopen(shop, "1,2")
    ran(shop, "run", "p.yaml", "--until", "4,3")
    taken = [row for at, row in enumerate(rows) if at % 2 == 0 or row[1] >= 2 or row[2] >= 1]
    log = pl.read_parquet(shop.folder / "out/*.parquet")
    for day, version in product(range(4), range(3)):
        there = log.filter((pl.col("day") <= day) & (pl.col("version") <= version))
        found = {row[:2]: row[2] for row in there.group_by("k", "n").agg(pl.col("diff").sum()).rows() if row[2]}
        assert found == dict.fromkeys(Counter(k for k, d, v, _ in taken if d <= day and v <= version).items(), 1)


def test_a_progress_that_somebody_wrote_is_no_reason_to_fail(shop):
    assert progress_bytes(((3,),)) == b'{"upper": [[3]]}\n'
    shop.log("log/updates-start-3.parquet", [("x", 0, 1)], **LOG)
    shop.write("log/_progress.json", '{"upper": [[3]], "owner": {"state": "s", "path": "p", "reopenings": "many"}}')
    assert read_log(shop.folder / "log", as_of="latest").rows() == [("x", 1)]
