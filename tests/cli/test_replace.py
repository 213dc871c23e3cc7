"""`changed: replace`, and `dd retract` of a repaired file: the rows of a file that comes again, in one commit with one difference."""

import json
import os
import pickle
import shutil
from collections import Counter

import polars as pl
import pytest

from ddcli.driver import replacement
from ddcli.provenance.explanation import explain
from ddcli.store.log.reader import LogReader
from ddcli.store.state import ledger
from ddcli.store.state.contents import batches_of
from ddcli.store.state.ledger import BOUND, read_keys
from ddcli.store.state.manifest import read_newest
from tests.draws import chance, many
from tests.harness import contents, files, read_log
from tests.spark.support import Here, started

ARRIVAL = """\
name: p
inputs:
  a: {{path: in/, format: {format}, changed: replace, columns: {{k: int64, v: string}}}}
outputs: {{a: out/}}
"""
EVENT = """\
name: p
clock: event
inputs:
  a: {{path: in/, format: {format}, changed: replace, columns: {{k: int64, v: string, time: int64}}}}
outputs: {{a: out/}}
"""
SUMS = """\
name: p
inputs:
  a: {path: in/, format: append, changed: replace, columns: {k: int64, v: int64}}
collections:
  sums: {from: a, apply: [{reduce: {by: [k], s: sum(v)}}]}
outputs: {sums: out/}
"""
UPSERTS = """\
name: p
shards: {shards}
inputs:
  a: {{path: in/, format: upsert, key: [k], changed: replace, columns: {{k: int64, v: "{kind}"}}}}
collections:
  counts: {{from: a, apply: [{{reduce: {{by: [v], n: count(*)}}}}]}}
outputs: {{counts: out/}}
"""
APPEND, UPSERT, SNAPSHOTS = "append", "upsert, key: [k]", "snapshots"


def csv(rows, header="k,v"):
    return f"{header}\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def told_apart(names, name):
    """Return empty lines, so many that no two files have the same content: one with the content of a file that is gone is that file."""
    return "\n" * names.setdefault(name, len(names))


def come_and_go(shop, draw, files, away, written):
    """Remove some of `files` from the input, whose rows stay, and put some that are `away` back as they were; `written` writes one."""
    for name in draw.sample(sorted(files), min(len(files), 2)):
        if name in away and draw.random() < 0.5:
            written(name)
            away.remove(name)
        elif name not in away and draw.random() < 0.3:
            (shop.folder / "in" / name).unlink()
            away.add(name)


def ran(shop, command, *arguments, code=0):
    if command == "state":
        arguments = (arguments[0], "p.yaml", *arguments[1:])
    result = shop(command, *(arguments if command == "state" else ("p.yaml", *arguments)))
    assert result.code == code, result.err
    return result


def commits(shop):
    """Return the number of the state's last commit."""
    return read_newest(shop.folder / ".dd/p").number


class Apart(Here):
    """Gives tasks what they would get on another machine."""

    def run(self, function, common, tasks, about, progress):
        return super().run(function, pickle.loads(pickle.dumps(common)), tasks, about, progress)  # noqa: S301


@pytest.fixture
def days(shop):
    """Return a folder with three days that were read one by one: keys 1 and 2 come on each."""
    shop.write("p.yaml", ARRIVAL.format(format=UPSERT))
    for day in range(3):
        shop.write(f"in/{day}.csv", csv([(1, f"a{day}"), (10 + day, "x"), (20 + day, "y")]))
        ran(shop, "run", "--now", f"2020-01-0{day + 1}")
    return shop


def test_the_log_gets_the_rows_that_differ_in_one_commit(days):
    before = commits(days)
    days.write("in/1.csv", csv([(1, "late"), (11, "x"), (31, "new")]))
    summary = json.loads(ran(days, "run", "-o", "json", "--now", "2020-02-01").out)
    assert (summary["replaced"], summary["withdrawn"]) == ({"a": ["1.csv"]}, {})
    assert commits(days) == before + 1
    last = read_log(days.folder / "out").filter(pl.col("time").dt.month() == 2)
    # The second day keeps its place, so the third still has key 1.
    assert sorted(last.select("k", "v", "diff").iter_rows()) == [(21, "y", -1), (31, "new", 1)]
    assert last["time"].n_unique() == 1
    assert "nothing new" in ran(days, "run").err


def test_files_that_change_and_files_that_come_are_read_by_one_run(days):
    days.write("in/0.csv", csv([(1, "a0")]))
    days.write("in/3.csv", csv([(1, "a3")]))
    err = ran(days, "run").err
    assert "  replaced 0.csv in a\n" in err
    assert "in 2 files" in err
    expected = {(1, "a3"), (11, "x"), (21, "y"), (12, "x"), (22, "y")}
    assert contents(days.folder / "out") == dict.fromkeys(expected, 1)


@pytest.mark.parametrize("searched", [1, 1 << 60], ids=["small", "large"])
def test_a_file_with_keys_costs_its_rows_on_spark_unless_the_input_is_large(days, monkeypatch, searched):
    monkeypatch.setattr(replacement, "SEARCHED", searched)
    days.write("in/1.csv", csv([(1, "late"), (11, "x"), (31, "new")]))
    with started(Apart(1)):
        summary, rows = read(days, "run", "--engine", "spark")
    assert summary.get("rebuilt", {}).keys() == ({"a"} if searched > 1 else set())
    assert (rows or 0) <= 4  # keys 1 and 11 are in both files, 21 and 31 in one
    expected = {(1, "a2"), (10, "x"), (20, "y"), (11, "x"), (31, "new"), (12, "x"), (22, "y")}
    assert contents(days.folder / "out") == dict.fromkeys(expected, 1)


@pytest.mark.parametrize("broken", ["k,v\n1,a\nk,v\n", "k\n1\n"], ids=["header twice", "column lacks"])
def test_nothing_has_happened_if_the_new_file_cannot_be_read(days, broken):
    before, was = files(days.folder / "out"), commits(days)
    days.write("in/1.csv", broken)
    err = ran(days, "run", code=3).err
    assert "in/1.csv" in err
    assert (files(days.folder / "out"), commits(days)) == (before, was)
    ran(days, "retract", "in/1.csv", code=3)
    assert (files(days.folder / "out"), commits(days)) == (before, was)


def test_a_repaired_file_that_is_retracted_counts_from_now_on_in_the_same_commit(days):
    """Without `changed: replace` it is the newest file."""
    days.write("p.yaml", ARRIVAL.format(format=UPSERT).replace(" changed: replace,", ""))
    days.write("in/1.csv", csv([(1, "late"), (11, "x"), (31, "new")]))
    ran(days, "run", code=3)
    ran(days, "retract", "in/1.csv", "--now", "2020-02-01")
    last = read_log(days.folder / "out").filter(pl.col("time").dt.month() == 2)
    changes = [(1, "a2", -1), (1, "late", 1), (21, "y", -1), (31, "new", 1)]
    assert sorted(last.select("k", "v", "diff").iter_rows()) == changes


def test_a_dry_run_and_a_plan_change_nothing(days):
    days.write("in/1.csv", csv([(1, "b")]))
    before = files(days.folder)
    assert "replaced 1.csv" in ran(days, "run", "--dry-run").err
    assert "again   a: 3 files, 46 B, for the rows that differ" in ran(days, "plan").out
    listed = json.loads(ran(days, "inputs", "-o", "json").out)
    assert "the next run replaces its rows" in str(listed)
    assert files(days.folder) == before


def test_a_large_file_of_the_same_size_that_changed_in_the_middle(shop):
    """Its first and last bytes, which a fingerprint is made of, are as they were."""
    shop.write("p.yaml", ARRIVAL.format(format=APPEND))
    rows = [(10000 + row, "x") for row in range(20000)]
    shop.write("in/1.csv", csv(rows))
    ran(shop, "run")
    rows[5000] = (15000, "y")
    path = shop.write("in/1.csv", csv(rows))
    os.utime(path, (1, 1))
    ran(shop, "run")
    log = read_log(shop.folder / "out")
    last = log.filter(pl.col("time") == log["time"].max())
    assert sorted(last.select("k", "v", "diff").iter_rows()) == [(15000, "x", -1), (15000, "y", 1)]


def test_a_pipeline_that_changed_with_a_file_of_its_input(days):
    days.write("in/1.csv", csv([(1, "b")]))
    days.write("p.yaml", ARRIVAL.format(format=UPSERT).replace("outputs:", "collections: {c: {from: a}}\noutputs:"))
    days.write("p.yaml", (days.folder / "p.yaml").read_text().replace("{a: out/}", "{a: out/, c: more/}"))
    err = ran(days, "run", "--apply", code=4).err
    assert "`dd run p.yaml --full-refresh all`" in err
    ran(days, "run", "--full-refresh", "all")
    assert (1, "b") not in contents(days.folder / "out")
    assert contents(days.folder / "out") == contents(days.folder / "more")


@pytest.fixture
def sums(shop):
    """Return a folder with three files that were read, and a sum of their rows."""
    shop.write("p.yaml", SUMS)
    for day in range(3):
        shop.write(f"in/{day}.csv", csv([(day, at) for at in range(10)]))
    ran(shop, "run", "--now", "2020-01-01")
    return shop


def read(shop, *arguments):
    """Return the summary of a run, and how many rows it has read."""
    summary = json.loads(ran(shop, *arguments, "-o", "json").out)
    return summary, summary["inputs"].get("a", {}).get("rows")


def test_a_file_that_comes_again_costs_its_rows_alone(sums):
    sums.write("in/1.csv", csv([(1, at) for at in range(11)]))
    sums.write("in/3.csv", csv([(3, 7)]))
    planned = ran(sums, "plan").out
    assert "again   a: 1 file, 49 B, for the rows that differ" in planned
    summary, rows = read(sums, "run")
    ledger = sum(path.stat().st_size for path in (sums.folder / ".dd/p/ledger").iterdir())
    assert summary["state_bytes"] == json.loads(ran(sums, "state", "ls", "-o", "json").out)["bytes"] > ledger
    assert rows == 10 + 11 + 1
    assert (summary["replaced"], summary["withdrawn"]) == ({"a": ["1.csv"]}, {})
    assert contents(sums.folder / "out") == {(0, 45): 1, (1, 55): 1, (2, 45): 1, (3, 7): 1}
    log = read_log(sums.folder / "out")
    last = log.filter(pl.col("time") == log["time"].max())
    assert sorted(last.select("k", "s", "diff").iter_rows()) == [(1, 45, -1), (1, 55, 1), (3, 7, 1)]
    summary, rows = read(sums, "retract", "in/0.csv")
    assert (rows, summary["withdrawn"]) == (10, {"a": ["0.csv"]})
    (sums.folder / "in/2.csv").unlink()
    summary, rows = read(sums, "retract", "--missing")
    assert (rows, summary["withdrawn"]) == (10, {"a": ["2.csv"]})
    assert contents(sums.folder / "out") == {(1, 55): 1, (3, 7): 1}


def test_a_state_without_copies_reads_the_input_again_once(sums):
    sums.write("p.yaml", SUMS.replace("changed: replace, ", ""))
    sums.write("in/3.csv", csv([(3, 7)]))
    ran(sums, "run")
    assert not [*sums.folder.glob(".dd/p/ledger/*")]
    sums.write("p.yaml", SUMS)
    sums.write("in/1.csv", csv([(1, 1)]))
    summary, rows = read(sums, "run")
    assert (rows, summary["rebuilt"]["sums"]["rows"]) == (None, 2)
    sums.write("in/1.csv", csv([(1, 2)]))
    assert read(sums, "run")[1] == 2
    assert contents(sums.folder / "out") == {(0, 45): 1, (1, 2): 1, (2, 45): 1, (3, 7): 1}


def test_rows_that_are_forgotten_are_in_no_copy(sums):
    sums.write("in/1.csv", csv([(1, at) for at in range(10)] + [(1, 123456789)]))
    ran(sums, "run")
    assert "123456789" in str(copies(sums))
    sums.write("in/1.csv", csv([(1, at) for at in range(10)]))
    ran(sums, "forget", "--where", "v = 123456789")
    assert "123456789" not in str(copies(sums))
    # A file that still has forgotten rows has no copy.
    ran(sums, "forget", "--where", "v = 9")
    assert "in/2.csv" in sums("forget", "p.yaml", "--where", "v = 9").err
    assert copies(sums) == {}
    sums.write("in/2.csv", csv([(2, at) for at in range(9)]))
    for day in (0, 1):
        sums.write(f"in/{day}.csv", csv([(day, at) for at in range(9)]))
    ran(sums, "run")
    assert contents(sums.folder / "out") == {(day, 36): 1 for day in range(3)}
    assert len(copies(sums)) == 3


def copies(shop):
    """Return the copies of files in the state."""
    found = {}
    for path in sorted(shop.folder.glob(".dd/p/ledger/*.parquet")):
        for row in pl.read_parquet(path).iter_rows(named=True):
            found[row["path"]] = row["content"]
    return found


def test_a_copy_of_a_state_has_the_copies_of_files(sums):
    result = sums("state", "export", "p.yaml", ".dd/q")
    assert result.code == 0, result.err
    sums.write("in/1.csv", csv([(1, 1)]))
    shutil.rmtree(sums.folder / ".dd/p")
    (sums.folder / ".dd/q").rename(sums.folder / ".dd/p")
    assert sums("state", "verify", "p.yaml").code == 0
    assert read(sums, "run")[1] == 11
    damaged = next(iter(sums.folder.glob(".dd/p/ledger/*.parquet")))
    damaged.write_bytes(damaged.read_bytes()[:-20] + bytes(20))
    assert damaged.name in sums("state", "verify", "p.yaml").err


def test_a_row_that_is_in_an_older_file_now_gives_way_to_newer_ones(days):
    """The newest row of key 1 among the replaced files stays the same, and moves from the last day to the first."""
    days.write("in/0.csv", csv([(1, "a2")]))
    days.write("in/2.csv", csv([(12, "x")]))
    ran(days, "run")
    assert contents(days.folder / "out") == dict.fromkeys([(1, "a1"), (11, "x"), (21, "y"), (12, "x")], 1)


def test_only_files_that_may_have_a_key_are_read(shop, monkeypatch):
    """Keys are found by their hashes: files whose keys did not change are not read, the newest one first, and what is forgotten has no hash."""
    shop.write("p.yaml", ARRIVAL.format(format=UPSERT))
    for at in range(12):
        keys = [0, 5] if at in (0, 2, 6) else []
        shop.write(f"in/{at}.csv", csv([(key, f"v{at}") for key in [*keys, *range(10 * at + 10, 10 * at + 15)]]))
        if at % 4 == 3:
            ran(shop, "run")
    counts, plain = [], LogReader.read

    def counted(self, part):
        rows = plain(self, part)
        counts.append(rows.frame.height)
        return rows

    monkeypatch.setattr(LogReader, "read", counted)
    shop.write("in/4.csv", csv([(50, "other"), *((key, "v4") for key in range(51, 55))]))
    ran(shop, "run")
    assert sum(counts) == 5 + 5  # before and after
    counts.clear()
    shop.write("in/6.csv", csv([(5, "v6"), *((key, "v6") for key in range(70, 75))]))
    ran(shop, "run")
    assert sum(counts) == 7 + 6 + 7  # and the newest file that has the key still
    assert contents(shop.folder / "out").keys() >= {(0, "v2"), (5, "v6"), (50, "other")}
    ran(shop, "forget", "--where", "k = 33")
    entry = read_newest(shop.folder / ".dd/p").inputs["a"]
    known = read_keys(shop.folder / ".dd/p", entry.keys, entry.files)
    assert "3.csv" not in known


def test_random_histories_of_upserts(shop, monkeypatch):
    """Keys are set and deleted by several files of a run, which come again and are withdrawn: each key has its newest row, in the order in which the files arrived first."""
    for case in range(many(8)):
        draw = chance("replace upserts", case)
        monkeypatch.setattr(ledger, "BOUND", draw.choice([1, 2, 5, BOUND]))
        kind = draw.choice(["int64?", "string?", "float64?"])
        for path in (".dd", "in", "out"):
            shutil.rmtree(shop.folder / path, ignore_errors=True)
        shop.write("p.yaml", UPSERTS.format(kind=kind, shards=draw.randrange(1, 4)))
        files, names, away = {}, {}, set()  # in the order of their arrival

        def rows(draw=draw):
            return [(draw.randrange(5), draw.choice(["", 1, 2])) for _ in range(draw.randrange(1, 6))]

        def written(name, time=0, files=files, names=names):
            os.utime(shop.write(f"in/{name}", csv(files[name]) + told_apart(names, name)), (time, time))

        for step in range(6):
            before = dict(files)
            for at in draw.sample(range(9, 12), draw.randrange(3) if step else 2):
                files[f"{step}-{at}.csv"] = rows()
            ordered = sorted(files.items(), key=lambda each: [int(part) for part in each[0][:-4].split("-")])
            files.clear()
            files.update(ordered)
            for name in draw.sample(sorted(files), min(len(files), 2)):
                files[name] = draw.choice([rows(), files[name][1:], files[name] + rows()])
            for name, content in files.items():
                if content != before.get(name):
                    written(name, step + 1)
                    away.discard(name)
            summary, _ = read(shop, "run")
            assert not summary.get("rebuilt"), (case, step)
            assert missing(shop) == away, (case, step)
            if files and draw.random() < 0.4:
                gone = draw.choice(sorted(files))
                assert not read(shop, "retract", f"in/{gone}")[0].get("rebuilt")
                (shop.folder / "in" / gone).unlink(missing_ok=True)
                del files[gone]
                away.discard(gone)
            come_and_go(shop, draw, files, away, written)
            newest = {k: v for rows in files.values() for k, v in rows}
            wanted = Counter(str(v) for v in newest.values() if v != "")
            found = {str(v).removesuffix(".0"): n for v, n in contents(shop.folder / "out")}
            assert found == wanted, (case, step)


NEWEST = """\
name: p
clock: {clock}
shards: {shards}
inputs:
  a: {{path: in/, {format}, changed: replace, columns: {{{columns}}}}}
  b: {{path: other/, format: "upsert", key: [k], columns: {{k: int64, w: int64{time}}}}}
collections:
  counts: {{from: a, apply: [{{reduce: {{by: [v], n: count(*)}}}}]}}
  pairs: {{sql: "select a.k, v, w from a join b on a.k = b.k"}}
outputs: {{counts: out/, pairs: pairs/}}
"""
NEWEST_FORMATS = {
    "upsert": "format: upsert, key: [k], delete_when: v is null",
    "ordered": "format: upsert, key: [k], order_by: o, delete_when: v is null",
    "debezium": "format: debezium, key: [k], flattened: true, order_by: o",
    "events": "format: debezium, key: [k], order_by: o",
    "snapshots": "format: snapshots",
    "ordered snapshots": "format: snapshots, order_by: o",
}


def newest_rows(kind, event, files):
    """Return the rows that hold, by key or as a list, of files in the order of their arrival: the newest ones."""
    rows = [(row, file) for file, rows in enumerate(files) for row in rows]
    if "snapshots" in kind:
        place = (lambda row, file: row["time"]) if event else lambda row, file: file
        if kind.startswith("ordered") and not event:
            place = lambda row, file: row["o"]  # noqa: E731 - one of three
            tables = [(max(row["o"] for row in rows), file) for file, rows in enumerate(files) if rows]
            greatest, last = max(tables, default=(0, 0))
            return [row for row in files[last] if row["o"] == greatest] if files else []
        newest = max((place(*each) for each in rows), default=None) if event else len(files) - 1
        return [row for row, file in rows if place(row, file) == newest]
    found = {}
    for at, (row, file) in enumerate(rows):
        place = (row["time"] if event else 0, row["o"] if kind != "upsert" else 0, file, at)
        if row["k"] not in found or found[row["k"]][0] <= place:
            found[row["k"]] = (place, row)
    return [row for _, row in found.values() if row["v"] is not None]


def newest_text(kind, event, rows):
    """Return the content of a file of rows, which are deletions where `v` is None."""
    if kind == "events":
        return "".join(json.dumps(event_of(row, event)) + "\n" for row in rows)
    names = ["k", "v", "o", *(["time"] if event else []), *(["__op"] if kind == "debezium" else [])]
    full = [
        {**row, "v": "" if row["v"] is None else row["v"], "__op": "d" if row["v"] is None else "u"} for row in rows
    ]
    return csv([[row[name] for name in names] for row in full], ",".join(names))


def event_of(row, event):
    image = {name: row[name] for name in ("k", "v")}
    sides = {"before": image, "after": None} if row["v"] is None else {"before": None, "after": image}
    return {**sides, "op": "d" if row["v"] is None else "u", "o": row["o"], **({"time": row["time"]} if event else {})}


@pytest.mark.in_turn
@pytest.mark.parametrize("kind", NEWEST_FORMATS)
def test_random_histories_of_the_newest_rows(shop, kind, monkeypatch):
    """Keys are set and deleted, and tables come, by several files of a run, which come again and are withdrawn, under either clock: the newest rows hold, of the files as they are, in the order in which they arrived first. Nothing is computed anew."""
    for case in range(many(4)):
        draw = chance("replace newest", kind, case)
        monkeypatch.setattr(ledger, "BOUND", draw.choice([1, 2, 5, BOUND]))
        event = draw.random() < 0.5
        for path in (".dd", "in", "other", "out", "pairs"):
            shutil.rmtree(shop.folder / path, ignore_errors=True)
        columns = (
            'k: int64, v: "int64?"' + ("" if kind == "events" else ", o: int64") + (", time: int64" if event else "")
        )
        columns += ', __op: "string?"' if kind == "debezium" else ""
        text = NEWEST.format(
            clock="event" if event else "arrival",
            shards=draw.randrange(1, 4),
            format=(NEWEST_FORMATS[kind] if not (event and "snapshots" in kind) else "format: snapshots")
            + ", time: time" * (event and kind in ("debezium", "events")),
            columns=columns,
            time=", time: int64" if event else "",
        )
        shop.write("p.yaml", text)
        shop.write("other/0.csv", csv([(at, at, 0)[: 2 + event] for at in range(0, 5, 2)], "k,w" + ",time" * event))
        files, orders, suffix = {}, iter(draw.sample(range(1000), 1000)), ".jsonl" if kind == "events" else ".csv"
        names, away = {}, set()

        def written(name, time=0, files=files, names=names, kind=kind, event=event):
            text = newest_text(kind, event, files[name]) + told_apart(names, name)
            os.utime(shop.write(f"in/{name}", text), (time, time))

        def rows(time, draw=draw, orders=orders, event=event, kind=kind):
            order = next(orders)  # of a table all rows have the same
            found = []
            for _ in range(draw.randrange(1, 5)):
                value = draw.choice([None, 1, 2])
                o = order if "snapshots" in kind else next(orders)
                found.append({"k": draw.randrange(5), "v": value, "o": o, "time": time})
            # Of a key there is one row at a time of events.
            return list({row["k"]: row for row in found}.values()) if event and kind == "upsert" else found

        for step in range(6):
            before = dict(files)
            for at in draw.sample(range(9, 12), draw.randrange(3) if step else 2):
                files[f"{step}-{at}{suffix}"] = rows(20 * step + at)
            ordered = sorted(files.items(), key=lambda each: [*map(int, each[0].removesuffix(suffix).split("-"))])
            files.clear()
            files.update(ordered)
            for name in draw.sample(sorted(files), min(len(files), 2)):
                first, second = map(int, name.removesuffix(suffix).split("-"))
                files[name] = draw.choice([rows(20 * first + second), files[name][1:] or files[name]])
            for name, content in files.items():
                if content != before.get(name):
                    written(name, step + 1)
                    away.discard(name)
            summary, _ = read(shop, "run", *(["--until", str(20 * step + 20)] if event else []))
            assert not summary.get("rebuilt"), (case, step)
            if files and draw.random() < 0.4:
                gone = draw.choice(sorted(files))
                assert not read(shop, "retract", f"in/{gone}")[0].get("rebuilt")
                (shop.folder / f"in/{gone}").unlink(missing_ok=True)
                del files[gone]
                away.discard(gone)
            come_and_go(shop, draw, files, away, written)
            wanted = newest_rows(kind, event, [*files.values()])
            found = contents(shop.folder / "out")
            assert found == Counter(Counter(row["v"] for row in wanted).items()), (case, step)
            pairs = Counter((row["k"], row["v"], row["k"]) for row in wanted if row["k"] in (0, 2, 4))
            assert contents(shop.folder / "pairs") == pairs, (case, step)


def test_consumed_files_are_not_replaced(shop):
    shop.write("p.yaml", ARRIVAL.format(format="append, consumed: forget"))
    err = shop("check", "p.yaml").err
    assert "inputs.a.changed: files that are `consumed` have no place to be replaced in" in err
    shop.write(
        "p.yaml", ARRIVAL.format(format="append, consumed: forget, missing: retract").replace("changed: replace, ", "")
    )
    err = shop("check", "p.yaml").err
    assert "inputs.a.missing: files that are `consumed` have no place to be missing from" in err


def test_files_that_are_gone_may_take_their_rows_along(sums):
    """And come back with them; but if all are gone, the place may be gone: a person decides that."""
    text = (sums.folder / "p.yaml").read_text().replace("changed: replace", "changed: replace, missing: retract")
    sums.write("p.yaml", text)
    before = contents(sums.folder / "out")
    kept = {path.name: path.read_bytes() for path in (sums.folder / "in").iterdir()}
    first = min(kept)
    (sums.folder / "in" / first).unlink()
    assert "the next run takes out its rows" in sums("inputs", "p.yaml").out
    ran(sums, "run")
    assert contents(sums.folder / "out") != before
    (sums.folder / "in" / first).write_bytes(kept[first])
    ran(sums, "run")
    assert contents(sums.folder / "out") == before
    for name in kept:
        (sums.folder / "in" / name).unlink()
    result = sums("run", "p.yaml")
    assert (result.code, "has vanished" in result.err) == (3, True)
    assert contents(sums.folder / "out") == before
    ran(sums, "retract", "--missing")
    assert contents(sums.folder / "out") == {}


def test_the_rows_of_a_file_that_is_gone_stay(sums):
    """Commands that read the input again read its copy. What comes back is compared with what was read."""
    kept = {path.name: path.read_text() for path in (sums.folder / "in").iterdir()}
    before, (first, second, *_) = contents(sums.folder / "out"), sorted(kept)
    (sums.folder / "in" / first).unlink()
    said = "nothing new since", f"  gone   a: {first} is gone, and its rows stay"
    assert [word in ran(sums, "run").err for word in said] == [True, True]
    assert json.loads(ran(sums, "run", "-o", "json").out)["inputs"]["a"]["gone"] == [first]
    assert "it is gone, and its rows stay" in ran(sums, "inputs", "--select", "missing").out
    sums.write("in/9.csv", csv([(77, 1)]))
    ran(sums, "run")
    assert contents(sums.folder / "out") == {**before, (77, 1): 1}
    ran(sums, "run", "--full-refresh", "all")
    assert contents(sums.folder / "out") == {**before, (77, 1): 1}
    text = (sums.folder / "p.yaml").read_text()
    sums.write("p.yaml", text.replace("sum(v)", "sum(v) + 1"))
    ran(sums, "run", "--apply")
    assert contents(sums.folder / "out") == {(k, s + 1): n for (k, s), n in {**before, (77, 1): 1}.items()}
    sums.write("p.yaml", text)
    ran(sums, "run", "--apply")
    k = kept[first].split()[1].split(",")[0]
    assert f"in/{first}:2" in ran(sums, "why", "a", f"k={k}").out
    ran(sums, "verify", "--all")
    assert "right" in sums("verify", "p.yaml", "--all").out
    sums.write(f"in/{first}", kept[first])
    assert "gone" not in ran(sums, "run").err
    (sums.folder / "in" / first).unlink()
    ran(sums, "run")
    sums.write(f"in/{first}", csv([(88, 8)]))
    ran(sums, "run")
    (sums.folder / "in" / second).unlink()
    now = Counter()
    for name, content in {**kept, first: csv([(88, 8)]), "9.csv": csv([(77, 1)])}.items():
        assert name  # each counts
        for row in content.split()[1:]:
            now[int(row.split(",")[0])] += int(row.split(",")[1])
    assert contents(sums.folder / "out") == dict.fromkeys(now.items(), 1)
    ran(sums, "retract", "--missing")
    for row in kept[second].split()[1:]:
        now[int(row.split(",")[0])] -= int(row.split(",")[1])
    found = dict(contents(sums.folder / "out").keys())
    assert found == {k: s for k, s in now.items() if k in found}
    assert all(now[k] == 0 for k in now.keys() - found.keys())


@pytest.mark.parametrize("path", ["in/", "in/*.csv", "in/1.csv"])
def test_all_files_of_an_input_are_gone(shop, path):
    """Their rows stay, and rows that wait in them count when their times are closed."""
    shop.write("p.yaml", EVENT.format(format=APPEND).replace("in/", f'"{path}"'))
    shop.write("in/1.csv", csv([(1, "a", 1), (2, "b", 5)], "k,v,time"))
    ran(shop, "run", "--until", "3")
    (shop.folder / "in/1.csv").unlink()
    assert "1.csv is gone, and its rows stay" in ran(shop, "run", "--until", "9").err
    assert {row[:2] for row in contents(shop.folder / "out")} == {(1, "a"), (2, "b")}
    ran(shop, "retract", "--missing")
    assert contents(shop.folder / "out") == {}


def test_a_file_that_is_gone_without_a_copy_is_named(sums):
    """It was read before the input had `changed: replace`, or has rows that were forgotten."""
    text = (sums.folder / "p.yaml").read_text()
    sums.write("p.yaml", text.replace(", changed: replace", ""))
    sums.write("in/8.csv", csv([(5, 5)]))
    ran(sums, "run")
    sums.write("p.yaml", text)
    ran(sums, "run")
    before = contents(sums.folder / "out")
    (sums.folder / "in/8.csv").unlink()
    assert "8.csv is gone" in ran(sums, "run").err
    assert "'8.csv' is gone, and the state has no copy of it" in ran(sums, "run", "--full-refresh", "all", code=3).err
    sums.write("in/8.csv", csv([(5, 5)]))
    ran(sums, "run", "--full-refresh", "all")
    (sums.folder / "in/8.csv").unlink()
    assert "still in" not in ran(sums, "forget", "--where", "k = 5").err
    assert contents(sums.folder / "out") == {row: n for row, n in before.items() if row != (5, 5)}
    assert "it is gone: put it back without the rows" in ran(sums, "run", "--full-refresh", "all", code=4).err
    ran(sums, "retract", "in/8.csv")
    ran(sums, "run", "--full-refresh", "all")
    assert contents(sums.folder / "out") == {row: n for row, n in before.items() if row != (5, 5)}


FRESH = 'checks: [{fresh: {"max(to_timestamp(k))": 2h}, of: a, otherwise: warn}]\n'


def now(step):
    """Return the time of a run at which `k` is too old if it is less than the step."""
    return f"1970-01-01T02:00:{step:04.1f}"


def missing(shop):
    """Return the files that are gone, as `dd inputs` lists them."""
    listed = json.loads(shop("inputs", "p.yaml", "-o", "json", "--select", "missing").out)["inputs"]["a"]
    return {file["file"] for file in listed}


def counted(shop):
    """Return the rows of each file that runs have read, as `dd inputs` lists them."""
    listed = json.loads(shop("inputs", "p.yaml", "-o", "json").out)["inputs"]["a"]
    return {file["file"]: file["rows"] for file in listed}


def expected(kind, taken):
    """Return the rows that files have together, in the order in which they arrived first."""
    if kind == APPEND:
        return dict(Counter(tuple(row[:2]) for rows in taken for row in rows))
    if kind == SNAPSHOTS:
        return dict(Counter(tuple(row[:2]) for row in taken[-1])) if taken else {}
    newest = {row[0]: tuple(row[:2]) for rows in taken for row in rows}
    return dict.fromkeys(newest.values(), 1)


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("clock", "kind"),
    [*(("arrival", kind) for kind in (APPEND, UPSERT, SNAPSHOTS)), ("event", APPEND), ("event", UPSERT)],
)
def test_random_histories(shop, clock, kind):
    """Files are added, replaced, touched, withdrawn and removed: the output is that of the files as they are, in the order in which they arrived first."""
    for case in range(many(12)):
        draw = chance("replace", kind, clock, case)
        retracts = draw.random() < 0.5
        missing = ", missing: retract" if retracts else ""
        shop.write("p.yaml", (ARRIVAL if clock == "arrival" else EVENT).format(format=kind + missing) + FRESH)
        for path in [*shop.folder.glob("in/*"), *shop.folder.glob("out/*")]:
            path.unlink()
        if (shop.folder / ".dd/p").exists():
            ran(shop, "reset", "--outputs", "--yes")
        taken, times, names, away = {}, {}, {}, set()

        def written(name, time=0, clock=clock, taken=taken, names=names):
            header = "k,v" if clock == "arrival" else "k,v,time"
            text = csv([row[: header.count(",") + 1] for row in taken[name]], header) + told_apart(names, name)
            os.utime(shop.write(f"in/{name}", text), (time, time))

        def rows(name, draw=draw, times=times):
            count, keys = draw.randrange(1, 5), draw.sample(range(6), 5)
            # Of a key there is one row at a time: each file has a time of its own.
            return [(keys[at], draw.choice("uvw"), times[name]) for at in range(count)]

        for step in range(8):
            for each in range(draw.randrange(1, 3)):
                name = f"{step}-{each}.csv"
                times[name] = 10 * step + each
                taken[name] = rows(name)
            for name in draw.sample(sorted(taken), min(len(taken), draw.randrange(3))):
                taken[name] = rows(name) if draw.random() < 0.8 else list(taken[name])
                (shop.folder / "in" / name).unlink(missing_ok=True)
                away.discard(name)
            for name in taken:
                if name not in away and not (shop.folder / "in" / name).exists():
                    written(name, step + 1)
            if retracts and len(taken) > 1 and draw.random() < 0.4:
                gone = draw.choice(sorted(taken))
                (shop.folder / "in" / gone).unlink()
                del taken[gone]
            closing = ["--until", str(10 * step + 10)] if clock == "event" else []
            on_spark = ["--engine", "spark"] if draw.random() < 0.5 else []
            with started(Apart(f"{kind} {clock} {case}")):
                found = json.loads(ran(shop, "run", *closing, *on_spark, "--now", now(step), "-o", "json").out)
            assert counted(shop) == {name: len(content) for name, content in taken.items()}, (case, step)
            newest = max(k for k, _ in expected(kind, [*taken.values()]))
            assert found["checks"]["a_fresh"]["passed"] == (newest >= step), (case, step)
            if not retracts and draw.random() < 0.3:
                gone = draw.choice(sorted(taken))
                ran(shop, "retract", f"in/{gone}", "--now", now(step + 0.5))
                (shop.folder / "in" / gone).unlink(missing_ok=True)
                del taken[gone]
                away.discard(gone)
            if not retracts:
                come_and_go(shop, draw, taken, away, written)
            at = 10 * step + 11 if clock == "event" else None
            assert contents(shop.folder / "out", until=at) == expected(kind, [*taken.values()]), (case, step)


MANY_OPERATORS = """\
name: p
clock: {clock}
shards: {shards}
{errors}
inputs:
  a: {{path: in/, format: {format}, changed: replace, columns: {{k: int64, v: int64{time}}}}}
  b: {{path: other/, format: append, columns: {{k: int64, w: int64{time}}}}}
collections:
  failing: {{from: a, apply: [{{map: {{k: k, q: "case when v = 3 then 'x' else '1' end::int64"}}}}]}}
  sums: {{from: a, apply: [{{reduce: {{by: [k], s: sum(v), n: count(*), least: min(v)}}}}]}}
  once: {{from: a, apply: [distinct]}}
  pairs: {{sql: "select a.k, v, w from a full join b on a.k = b.k"}}
  first: {{from: a, apply: [{{top_k: {{by: [k], k: 2, order_by: [v]}}}}]}}
  running: {{sql: "select k, v, sum(v) over (partition by k order by v) as r from a"}}
  reached: {{sql: "with recursive r(k, v) as (select k, v from a union select r.k, a.v from r join a on r.v = a.k) select * from r"}}
outputs: {{{outputs}}}
"""


OPERATORS = ["failing", "sums", "once", "pairs", "first", "running", "reached"]


@pytest.mark.in_turn
def test_random_histories_of_many_operators(shop):
    """After each run all outputs, and the failed records, are those of a pipeline that first reads the files as they are now; the rows of other files were not read again."""
    for case in range(many(6)):
        draw = chance("replace operators", case)
        event, fails, shards = draw.random() < 0.5, draw.random() < 0.5, draw.randrange(1, 4)
        names = OPERATORS[not fails :]
        text = MANY_OPERATORS.format(
            clock="event" if event else "arrival",
            time=", time: int64" if event else "",
            format=draw.choice(["append", "updates, negative: error"]),
            shards=shards,
            errors="errors: {quarantine: bad/}" if fails else "",
            outputs=", ".join(f"{name}: out/{name}/" for name in names),
        )
        logs = [*(f"out/{name}" for name in names), *(["bad"] if fails else [])]
        for path in (".dd", "in", "other", "out", "bad"):
            shutil.rmtree(shop.folder / path, ignore_errors=True)
        shop.write("p.yaml", text)
        more = ",time" if event else ""
        shop.write("other/0.csv", csv([(at, at, 0)[: 2 + event] for at in range(0, 8, 2)], "k,w" + more))
        files, names, away = {}, {}, set()

        def row(time, draw=draw, event=event):
            return (draw.randrange(6), draw.randrange(6), time)[: 2 + event]

        def written(name, time=0, place="in", files=files, names=names, more=more):
            text = csv(files[name], "k,v" + more) + told_apart(names, name)
            os.utime(shop.write(f"{place}/{name}", text), (time, time))

        for step in range(6):
            before = dict(files)
            for at in range(draw.randrange(3) if step else 2):
                files[f"{step}{at}.csv"] = [row(step) for _ in range(4)]
            for name in draw.sample(sorted(files), min(len(files), 2)):
                time = draw.choice([int(name[0]), step])
                files[name] = [*files[name][1:], *[row(time)] * draw.randrange(3)]
            changed = {name for name in files if files[name] != before.get(name)}
            for name in changed:
                written(name, step + 1)
            away -= changed
            past = closed(shop, logs)
            on_spark = draw.choice([[], ["--engine", "spark"]])
            with started(Apart(case)):
                summary, read_rows = read(shop, "run", *on_spark)
            assert not summary.get("rebuilt"), (case, step)
            assert (read_rows or 0) <= sum(len(files[name]) + len(before.get(name, ())) for name in changed)
            manifest = read_newest(shop.folder / ".dd/p")
            assert all(file.upper <= manifest.upper for *_, file in batches_of(manifest)), (case, step)
            if files and draw.random() < 0.3:
                gone = draw.choice(sorted(files))
                summary, read_rows = read(shop, "retract", f"in/{gone}")
                assert not summary.get("rebuilt"), (case, step)
                assert read_rows <= len(files.pop(gone))
                (shop.folder / "in" / gone).unlink(missing_ok=True)
                away.discard(gone)
            come_and_go(shop, draw, files, away, written)
            if draw.random() < 0.3:
                ran(shop, "run", "--full-refresh", draw.choice(["all", "sums"]), *on_spark)
            assert all(contents(shop.folder / name, until) == there for name, (until, there) in past.items())
            fresh = shop.folder / "fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            (fresh / "in").mkdir(parents=True)
            for name in files:
                written(name, step + 1, "fresh/in")
            again = text.replace("path: other/", "path: ../other/")
            (fresh / "p.yaml").write_text(again)
            result = shop("run", "fresh/p.yaml")
            assert result.code == 0, result.err
            for name in logs:
                there, anew = (
                    contents(place) if any(place.glob("*.parquet")) else {}
                    for place in (shop.folder / name, fresh / name)
                )
                assert there == anew, (case, step, name)


def closed(shop, logs):
    """Return the first open time, and what each log holds before it."""
    manifest = read_newest(shop.folder / ".dd/p")
    if manifest is None:
        return {}
    ((first,),) = manifest.upper
    until = pl.lit(first) if manifest.cache.get("clock") != "arrival" else pl.from_epoch(pl.lit(first), "us")
    return {
        name: (until, contents(shop.folder / name, until))
        for name in logs
        if any((shop.folder / name).glob("*.parquet"))
    }


@pytest.mark.parametrize("kind", [APPEND, UPSERT])
def test_a_file_under_another_name_is_the_same_file(shop, kind):
    """Nothing is read of it, then or when it comes again with other rows under its new name."""
    shop.write("p.yaml", ARRIVAL.format(format=kind))
    for day in range(3):
        shop.write(f"in/{day}.csv", csv([(1, f"a{day}"), (10 + day, "x")]))
        ran(shop, "run", "--now", f"2020-01-0{day + 1}")
    before = contents(shop.folder / "out")
    (shop.folder / "in/1.csv").rename(shop.folder / "in/one.csv")
    assert "it was read as '1.csv', and is the same" in ran(shop, "inputs").out
    assert "nothing new" in ran(shop, "run").err
    shop.write("in/3.csv", csv([(13, "x")]))
    assert read(shop, "run")[1] == 1
    assert contents(shop.folder / "out") == {**before, (13, "x"): 1}
    assert "as '1.csv'" not in ran(shop, "inputs").out
    shop.write("in/one.csv", csv([(1, "late"), (11, "y")]))
    summary, rows = read(shop, "run")
    assert (summary["replaced"], bool(summary.get("rebuilt"))) == ({"a": ["one.csv"]}, False)
    assert rows == (4 if kind == APPEND else 2)
    wanted = [
        (1, "a2"),
        (10, "x"),
        (11, "y"),
        (12, "x"),
        (13, "x"),
        *([(1, "a0"), (1, "late")] if kind == APPEND else []),
    ]
    assert contents(shop.folder / "out") == dict.fromkeys(wanted, 1)


@pytest.mark.parametrize("keys", ["append", "append, file_name: '{v}.csv'"])
def test_a_renamed_file_is_not_missing(shop, keys):
    """`--missing` withdraws the file that is gone, and reads no other one that has another name but the same rows."""
    in_name = "file_name" in keys
    shop.write("p.yaml", ARRIVAL.format(format=keys))
    for name in "abc":
        shop.write(f"in/{name}.csv", csv([(1,)], "k") if in_name else csv([(1, name)]))
        ran(shop, "run")
    for name in "ab":
        (shop.folder / f"in/{name}.csv").rename(shop.folder / f"in/{name}{name}.csv")
    before = files(shop.folder)
    found = ran(shop, "retract", "--missing", "--dry-run")
    assert "no file that was read is missing" in found.err
    err = ran(shop, "retract", "in/aa.csv", code=3).err
    assert "no run has read this file" in err if in_name else "this file was read as 'a.csv'" in err
    assert in_name or "`dd retract p.yaml in/a.csv`" in err
    assert files(shop.folder) == before
    (shop.folder / "in/c.csv").unlink()
    summary, rows = read(shop, "retract", "--missing")
    gone = ["a.csv", "b.csv", "c.csv"] if in_name else ["c.csv"]
    assert summary["withdrawn"] == {"a": gone}
    assert rows == (5 if in_name else 1)
    assert contents(shop.folder / "out") == {(1, name * 2 if in_name else name): 1 for name in "ab"}
    assert "nothing new" in ran(shop, "run").err


def test_a_column_in_the_name_of_a_renamed_file_changes_its_rows(shop):
    keys = "append, file_name: '{v}.csv'"
    shop.write("p.yaml", ARRIVAL.format(format=keys))
    for name in "ab":
        shop.write(f"in/{name}.csv", csv([(1,), (2,)], "k"))
    ran(shop, "run")
    (shop.folder / "in/b.csv").rename(shop.folder / "in/c.csv")
    assert read(shop, "run")[1] == 4
    assert contents(shop.folder / "out") == dict.fromkeys([(k, v) for k in (1, 2) for v in "ac"], 1)


def test_a_file_whose_new_name_gives_it_another_place_counts_as_gone(shop):
    """Of files that were read together the order of their names decides which row of a key is the newest."""
    shop.write("p.yaml", ARRIVAL.format(format=UPSERT))
    for name in "abc":
        shop.write(f"in/{name}.csv", csv([(1, name)]))
    ran(shop, "run")
    (shop.folder / "in/a.csv").rename(shop.folder / "in/aa.csv")
    assert "nothing new" in ran(shop, "run").err
    (shop.folder / "in/b.csv").rename(shop.folder / "in/d.csv")
    assert "b.csv is gone, and its rows stay" in ran(shop, "run").err
    assert contents(shop.folder / "out") == {(1, "b"): 1}  # by the new file
    ran(shop, "retract", "in/d.csv")
    assert contents(shop.folder / "out") == {(1, "c"): 1}


def test_a_newer_file_with_the_content_of_one_that_is_gone_is_another(shop):
    """Its row of the key is the newest one."""
    shop.write("p.yaml", ARRIVAL.format(format=UPSERT + ", missing: retract"))
    for at, name in enumerate("ab"):
        os.utime(shop.write(f"in/{name}.csv", csv([(1, name)])), (at, at))
        ran(shop, "run", "--now", f"2020-01-0{at + 1}")
    (shop.folder / "in/a.csv").unlink()
    os.utime(shop.write("in/c.csv", csv([(1, "a")])), (9, 9))
    ran(shop, "run")
    assert contents(shop.folder / "out") == {(1, "a"): 1}


def test_only_files_of_some_age_are_replaced(sums):
    """The ledger has no others; one that is older is refused, and `dd retract` replaces it."""
    ran(sums, "reset", "--outputs", "--yes")
    sums.write("p.yaml", SUMS.replace("changed: replace", "changed: {replace: 90 days}"))
    os.utime(sums.folder / "in/0.csv", (1e9, 1e9))
    ran(sums, "run")
    assert sorted(copies(sums)) == ["1.csv", "2.csv"]
    sums.write("in/1.csv", csv([(1, 1)]))
    assert read(sums, "run")[1] == 11
    sums.write("in/0.csv", csv([(0, 1)]))
    assert "older than the files that `changed` replaces" in sums("inputs", "p.yaml").out
    err = ran(sums, "run", code=3).err
    assert "bytes and has 8, and it is older than the files that `changed` replaces" in err
    ran(sums, "retract", "in/0.csv")
    assert contents(sums.folder / "out") == {(0, 1): 1, (1, 1): 1, (2, 45): 1}
    sums.write("in/0.csv", csv([(0, 2)]))  # its copy was written just now
    assert read(sums, "run")[1] == 2


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("clock", "kind"),
    [*(("arrival", kind) for kind in (APPEND, UPSERT, SNAPSHOTS)), ("event", APPEND), ("event", UPSERT)],
)
def test_an_explanation_has_the_files_that_there_were(shop, clock, kind):
    """As of each run a record is explained by the rows that files had then; each row names the runs with which it came and went."""
    for case in range(many(2)):
        draw = chance("why replaced", kind, clock, case)
        for path in (".dd", "in", "out"):
            shutil.rmtree(shop.folder / path, ignore_errors=True)
        shop.write("p.yaml", (ARRIVAL if clock == "arrival" else EVENT).format(format=kind))
        taken, past, header = {}, [], "k,v" if clock == "arrival" else "k,v,time"
        for step in range(4):
            names = [f"{step}.csv", *draw.sample(sorted(taken), min(len(taken), draw.randrange(1, 3)))]
            for name in names:
                taken[name] = [
                    (k, draw.choice("uv"), 10 * int(name[0])) for k in draw.sample(range(3), draw.randrange(1, 3))
                ]
                rows = [row[: header.count(",") + 1] for row in taken[name]]
                os.utime(shop.write(f"in/{name}", csv(rows, header)), (step + 1, step + 1))
            run = f"2020-01-0{step + 1}"
            ran(shop, "run", "--now", run, *(["--until", str(10 * step)] if clock == "event" else []))
            if step and draw.random() < 0.3:
                gone = draw.choice(sorted(taken))
                ran(shop, "retract", f"in/{gone}", "--now", f"{run} 12:00")
                (shop.folder / "in" / gone).unlink()
                del taken[gone]
            past.append((f"2020-01-0{step + 1} 23:00", dict(taken)))
        there = {at: expected(kind, [*then.values()]) for at, then in past}
        if clock == "event":  # what the log holds, before and after corrections
            times = (10 * step + more for step in range(3) for more in range(2))
            there = {str(at): contents(shop.folder / "out", until=at + 1) for at in times}
        for at, held in there.items():
            for k in range(3):
                found = explain(shop.folder / "p.yaml", "a", {"k": k}, at=at)
                records = {each.record[:2]: each.count for each in found.explained}
                assert records == {row: n for row, n in held.items() if row[0] == k}, (case, at, k)
                assert all(each.checked for each in found.explained)
                for place in (place for places in found.places.values() for place in places):
                    assert "/dd-" not in place.file
                    if clock == "arrival":
                        _check_runs(place, at, past)


def _check_runs(place, at, past):
    """Check that a row went with the first run whose file lacks it."""
    name, line = place.file.rsplit("/", 1)[-1].rsplit(":", 1)
    versions = [then.get(name) for _, then in past]
    now = next(number for number, (time, _) in enumerate(past) if time == at)
    row = versions[now][int(line) - 2]
    rest = [row in (version or ()) for version in versions]
    went = next((number for number in range(now, len(past)) if not rest[number]), None)
    assert (place.went is None) == (went is None), (place, versions)
    if place.went is not None:
        assert place.went.startswith(past[went][0][:10]), (place, versions)


def test_a_record_that_went_with_a_file_names_the_run(days):
    days.write("in/1.csv", csv([(1, "a1"), (11, "x")]))
    ran(days, "run", "--now", "2020-01-09")
    result = days("why", "p.yaml", "a", "k=21")
    assert result.code == 1
    assert "there was one until the run of 2020-01-09 00:00:00, which replaced or withdrew in/1.csv" in result.err
    before = ran(days, "why", "a", "k=21", "--as-of", "2020-01-08").out
    assert "in/1.csv:4, came with the run of 2020-01-02 00:00:00, went with that of 2020-01-09 00:00:00" in before
    result = days("why", "p.yaml", "a", "k=21", "--change")
    named = "changed at 2020-01-09 00:00:00 with the run of 2020-01-09 00:00:00, which replaced or withdrew in/1.csv"
    assert (result.code, f"{named}: in/1.csv:4 went" in result.err) == (1, True)
    days.write("in/1.csv", csv([(11, "other"), (1, "a1")]))
    ran(days, "run", "--now", "2020-01-10")
    assert "in/1.csv:3 went and in/1.csv:2 came" in days("why", "p.yaml", "a", "k=11", "--change").err
    days.write("in/1.csv", csv([(1, "a1"), (11, "x")]))
    ran(days, "run", "--now", "2020-01-11")
    # Copies of replaced files are no part of what is read: the state forgets rows in them, too.
    ran(days, "forget", "--where", "k = 21")
    assert "\n21," not in str(copies(days))
    assert "no such record has existed" not in days("why", "p.yaml", "a", "k=21").out


def test_a_total_of_many_rows_names_the_rows_that_a_file_changed(shop):
    """Also where the tree would show only the first few rows of the group."""
    pipeline = (
        "name: p\ninputs: {a: {path: in/, format: append, changed: replace, columns: {k: int64, v: int64}}}\n"
        "collections: {t: {sql: 'select k, sum(v) as v from a group by k'}}\noutputs: {t: out/}\n"
    )
    shop.write("p.yaml", pipeline)
    shop.write("in/1.csv", csv([(1, n) for n in range(100)], "k,v"))
    ran(shop, "run", "--now", "2020-01-01")
    shop.write("in/1.csv", csv([(1, 777 if n == 50 else n) for n in range(100)], "k,v"))
    ran(shop, "run", "--now", "2020-01-02")
    assert "in/1.csv:52 went and in/1.csv:52 came" in shop("why", "p.yaml", "t", "k=1", "--change").err


@pytest.mark.parametrize("kind", [SNAPSHOTS, "upsert, key: [k], order_by: o"])
def test_a_replacement_that_reads_the_whole_input_is_one_commit_with_new_files(shop, kind):
    """And if a new file can't be read, nothing has happened."""
    shop.write("p.yaml", ARRIVAL.format(format=kind).replace("v: string", "v: string, o: int64"))
    shop.write("in/0.csv", csv([(1, "a", 0), (2, "a", 0)], "k,v,o"))
    shop.write("in/1.csv", csv([(1, "b", 1), (2, "b", 1)], "k,v,o"))
    ran(shop, "run", "--now", "2020-01-01")
    before, was = files(shop.folder / "out"), commits(shop)
    shop.write("in/1.csv", csv([(1, "c", 1), (2, "c", 1)], "k,v,o"))
    shop.write("in/2.csv", "k,v,o\n3\n")
    assert shop("run", "p.yaml").code == 3
    assert (files(shop.folder / "out"), commits(shop)) == (before, was)
    shop.write("in/2.csv", csv([(3, "d", 2)], "k,v,o"))
    ran(shop, "run")
    wanted = [(3, "d")] if kind == SNAPSHOTS else [(1, "c"), (2, "c"), (3, "d")]
    assert {row[:2] for row in contents(shop.folder / "out")} == {*wanted}


def test_a_comparison_of_two_times_names_the_files_that_were_replaced(days):
    days.write("in/1.csv", csv([(1, "a1"), (11, "x")]))
    ran(days, "run", "--now", "2020-01-09")
    result = days("diff", "out", "--from", "2020-01-08", "--to", "2020-01-09")
    assert (result.code, "note: the run of 2020-01-09 00:00:00 replaced or withdrew 1.csv of a\n" in result.out) == (
        1,
        True,
    )
    assert "replaced or withdrew" not in days("diff", "out", "--from", "2020-01-02", "--to", "2020-01-08").out


@pytest.mark.parametrize("gone", [False, True])
def test_commands_about_the_rows_that_were_read_refuse_a_file_that_has_changed(shop, gone):
    """Before a run has taken that in, its rows are as the state has them: they are neither wrong nor an effect of another file."""
    shop.write(
        "p.yaml",
        "name: p\ninputs: {a: {path: in/, format: upsert, key: [k], changed: replace, missing: retract, columns: {k: int64, v: int64}}}\n"
        "outputs: {a: out/}\n",
    )
    for name in (1, 2):
        shop.write(f"in/{name}.csv", f"k,v\n{name},1\n")
    shop.write("fix.csv", "k,v\n3,1\n")
    shop.write("s.yaml", "s: {set: {a: {v: v + 1}}}")
    assert shop("run", "p.yaml").code == 0
    if gone:
        (shop.folder / "in/1.csv").unlink()
    else:
        shop.write("in/1.csv", "k,v\n1,22\n")
    against = "diff --against .dd/p p.yaml"
    for call in (
        "verify p.yaml --all",
        "verify p.yaml --slice 1/1",
        "run p.yaml --scenarios s.yaml",
        f"{against} --without in/2.csv",
    ):
        refused = shop(*call.split())
        assert (refused.code, "in/1.csv: error: a file that was already read has changed" in refused.err) == (3, True)
        assert "hint: run the pipeline first" in refused.err
    added = shop(*f"{against} --with a+=fix.csv -o jsonl".split())
    assert json.loads(added.out)["row"] == {"k": 3, "v": 1}
    assert shop("run", "p.yaml").code == 0
    assert shop("verify", "p.yaml", "--all").code == 0
