"""`dd state`: what it says of a state is what is there, what is damaged is named, and what it changes is committed like a run."""

import json
import os
import re
import shutil
from dataclasses import replace

import duckdb
import polars as pl
import pytest

from ddcli.cli.state import command
from ddcli.store.files.gate import TEMPORARY, Files
from ddcli.store.files.lock import Lock
from ddcli.store.state.branches import export_state
from ddcli.store.state.directory import Hold, holding, write_hold
from ddcli.store.state.manifest import manifest_path, read_newest
from ddcli.store.state.upkeep import compact_state, verify
from tests.harness import ORDER_COLUMNS, contents, files, write_log
from tests.store.support import LOCKS

NEEDED = {
    "export": ["copy"],
    "show": ["-a", "x"],
    "release": ["--reader", "x"],
    "reshard": ["--shards", 2],
    "reopen": ["--from", 2],
}
"""What commands can't do without."""


@pytest.fixture
def ran(orders):
    """Return a shop whose pipeline has run three times, with little that is new after the first."""
    orders.log("orders/2.parquet", [(f"region {at}", at, 2, 1) for at in range(40)], **ORDER_COLUMNS)
    assert orders("run", "orders.yaml").code == 0
    for at in (3, 4):
        orders.log(
            f"orders/{at}.parquet", [("east", at, at, 1), ("south", 7, at, 1 if at == 3 else -1)], **ORDER_COLUMNS
        )
        assert orders("run", "orders.yaml").code == 0
    return orders


def batches(ran):
    return sorted((ran.folder / ".dd/orders/arrangements").rglob("*.parquet"))


def asked(ran, *arguments, code=0):
    """Return what a command says as JSON."""
    result = ran("state", *arguments, "-o", "json")
    assert result.code == code, result.err
    return json.loads(result.out)


def test_ls_says_what_is_there(ran):
    facts = asked(ran, "ls", "orders.yaml")
    assert list(facts) == [
        "name",
        "state",
        "manifest",
        "upper",
        "rows",
        "bytes",
        "arrangements",
        "outputs",
        "holds",
        "consumers",
        "aside",
    ]
    assert (facts["name"], facts["manifest"], facts["upper"]) == ("orders", 3, "5")
    assert facts["state"] == str(ran.folder / ".dd/orders")
    assert facts["bytes"] == sum(path.stat().st_size for path in batches(ran))
    assert facts["rows"] == sum(duckdb.sql(f"select count(*) from '{path}'").fetchall()[0][0] for path in batches(ran))
    (totals,) = (one for one in facts["arrangements"] if one["key"] == ["region"])
    assert totals["of"] == "totals"
    assert asked(ran, "show", "orders.yaml", "-a", "totals")["name"] == totals["name"]
    assert list(totals) == ["name", "of", "key", "columns", "rows", "bytes", "shards", "batches", "since", "upper"]
    assert (totals["since"], totals["upper"], totals["shards"]) == ("5", "5", 1)
    (output,) = facts["outputs"]
    logs = list((ran.folder / "out/totals").glob("*.parquet"))
    assert output == {
        "name": "totals",
        "path": str(ran.folder / "out/totals"),
        "files": len(logs),
        "rows": sum(pl.read_parquet(path).height for path in logs),
        "bytes": sum(path.stat().st_size for path in logs),
    }
    assert facts["holds"] == []
    text = ran("state", "ls", "orders.yaml").out
    assert text.startswith("orders: times before 5 are closed; ")
    assert totals["name"] in text
    assert re.search(r"^totals +out/totals ", text, re.MULTILINE), "the path is as it is called from here"
    assert ran("state", "ls", "--state", ".dd/orders").out == text


def held(ran, time):
    """Make a hold of a reader on all arrangements, that has taken what is before a time."""
    directory = ran.folder / ".dd/orders"
    names = tuple(read_newest(directory).arrangements)
    hold = Hold("report-1", "/elsewhere", names, ((time,),), ((time,),), 2)
    with holding(directory, Files()):
        write_hold(directory, hold, Files())
    return {"reader": "report-1", "state": "/elsewhere", "arrangements": list(names)}


def test_ls_says_who_holds_what(ran):
    hold = held(ran, 3)
    assert asked(ran, "ls", "orders.yaml")["holds"] == [
        hold | {"since": "3", "through": "3", "manifest": 2, "passed": []}
    ]
    assert ran("state", "ls", "orders.yaml").out.endswith("\nheld by   since  taken\nreport-1  3      3\n")


def test_a_hold_may_be_released(ran):
    hold = held(ran, 3)
    wrong = ran("state", "release", "orders.yaml", "--reader", "report-2")
    assert wrong.code == 2
    assert "hint: did you mean 'report-1'?" in wrong.err
    released = asked(ran, "release", "orders.yaml", "--reader", "report-1")
    assert released == {"released": hold | {"since": [[3]], "through": [[3]], "manifest": 2}}
    assert asked(ran, "ls", "orders.yaml")["holds"] == []


def test_show_lists_the_batches_of_one_arrangement(ran):
    (name, *_) = (one["name"] for one in asked(ran, "ls", "orders.yaml")["arrangements"])
    facts = asked(ran, "show", "orders.yaml", "-a", name[:6])
    assert facts["name"] == name
    entry = read_newest(ran.folder / ".dd/orders").arrangements[name]
    assert [one["file"] for one in facts["files"]] == [file.name for shard in entry.shards for file in shard]
    assert list(facts["files"][0]) == ["shard", "file", "run", "rows", "bytes", "lower", "upper", "since"]
    assert facts["files"][0]["lower"] == "the beginning"
    text = ran("state", "show", "orders.yaml", "-a", name).out
    assert all(one["file"] in text for one in facts["files"])
    wrong = ran("state", "show", "orders.yaml", "-a", name[:-1] + "?")
    assert wrong.code == 2
    assert f"hint: did you mean '{name}'?" in wrong.err


def test_verify_names_every_bad_file(ran):
    good = asked(ran, "verify", "orders.yaml")
    assert list(good) == ["manifest", "files", "bytes", "bad", "strange"]
    assert (good["manifest"], good["bad"]) == (3, [])
    logs = sorted((ran.folder / "out/totals").glob("*.parquet"))
    assert good["files"] == len(batches(ran)) + len(logs)
    assert ran("state", "verify", "orders.yaml").out.endswith(": all as written\n")
    batch = batches(ran)[0]
    data = bytearray(batch.read_bytes())
    data[50] ^= 1
    batch.write_bytes(data)
    logs[-1].unlink()
    bad = asked(ran, "verify", "orders.yaml", code=4)["bad"]
    assert {one["file"] for one in bad} == {str(batch), str(logs[-1])}
    assert all(one["hint"] for one in bad)
    told = ran("state", "verify", "--state", ".dd/orders")
    assert told.code == 4
    assert told.out.endswith(": 2 bad\n")
    assert f"{batch.relative_to(ran.folder)}: error: the file is damaged" in told.err.splitlines()[0]
    assert f"\n{logs[-1].relative_to(ran.folder)}: error: the file can't be read" in told.err


def test_a_damaged_manifest_is_named(ran):
    path = ran.folder / ".dd/orders/manifest/000000003.json"
    path.write_bytes(path.read_bytes()[:-20])
    for name in ("ls", "verify", "compact", "gc", "reshard", "export"):
        result = ran("state", name, "orders.yaml", *NEEDED.get(name, ()))
        assert result.code == 4
        assert result.err.startswith(f"{path.relative_to(ran.folder)}: error: the manifest of the state is damaged")


def test_compact_leaves_one_batch_a_shard_that_says_the_same(ran):
    before = asked(ran, "ls", "orders.yaml")
    result = asked(ran, "compact", "orders.yaml")
    assert result["before"] == {
        "rows": before["rows"],
        "bytes": before["bytes"],
        "batches": sum(one["batches"] for one in before["arrangements"]),
    }
    after = asked(ran, "ls", "orders.yaml")
    assert after["manifest"] == 4
    assert {one["batches"] for one in after["arrangements"]} == {1}
    assert result["after"]["rows"] == after["rows"] <= before["rows"]
    assert not asked(ran, "verify", "orders.yaml")["bad"]
    assert len(batches(ran)) == result["after"]["batches"]
    # Again there is nothing to do, and nothing is done.
    kept = files(*ran.kept)
    again = ran("state", "compact", "orders.yaml")
    assert again.out.endswith(": nothing to compact\n")
    assert files(*ran.kept) == kept
    ran.log("orders/5.parquet", [("north", 5, 5, -1), ("west", 1, 5, 1)], **ORDER_COLUMNS)
    assert ran("run", "orders.yaml").code == 0
    expected = {(f"region {at}", 1, at): 1 for at in range(40)}
    expected |= {("east", 2, 7): 1, ("south", 1, 7): 1, ("west", 1, 1): 1}
    assert contents(ran.folder / "out/totals") == expected


def test_reshard_deals_what_is_kept_to_more_shards_or_fewer(ran):
    before = asked(ran, "ls", "orders.yaml")
    result = asked(ran, "reshard", "orders.yaml", "--shards", 3)
    assert list(result) == ["shards", "arrangements", "before", "after"]
    assert result["arrangements"] == len(before["arrangements"])
    assert (result["shards"], result["before"]["rows"], result["after"]["rows"]) == (3, before["rows"], before["rows"])
    after = asked(ran, "ls", "orders.yaml")
    assert after["manifest"] == before["manifest"] + 1
    assert {one["shards"] for one in after["arrangements"]} == {3}
    assert not asked(ran, "verify", "orders.yaml")["bad"]
    assert len(batches(ran)) == result["after"]["batches"]
    kept = files(*ran.kept)
    assert ran("state", "reshard", "orders.yaml", "--shards", 3).out.endswith(": nothing to reshard\n")
    assert files(*ran.kept) == kept
    ran.log("orders/5.parquet", [("north", 5, 5, -1), ("west", 1, 5, 1)], **ORDER_COLUMNS)
    assert ran("run", "orders.yaml").code == 0
    text = ran("state", "reshard", "orders.yaml", "--shards", 1)
    assert "resharding " in text.err
    assert " -> " in text.out
    ran.log("orders/6.parquet", [("west", 2, 6, 1)], **ORDER_COLUMNS)
    assert ran("run", "orders.yaml").code == 0
    expected = {(f"region {at}", 1, at): 1 for at in range(40)}
    expected |= {("east", 2, 7): 1, ("south", 1, 7): 1, ("west", 2, 3): 1}
    assert contents(ran.folder / "out/totals") == expected
    assert {one["shards"] for one in asked(ran, "ls", "orders.yaml")["arrangements"]} == {1}


def test_a_reshard_refuses_rows_that_are_in_no_shard_of_their_own(ran):
    """Distributed by other lanes than runs use, they would never be found again."""
    assert ran("state", "reshard", "orders.yaml", "--shards", 2).code == 0
    state = ran.folder / ".dd/orders"
    manifest = read_newest(state)
    swapped = {name: replace(entry, shards=entry.shards[::-1]) for name, entry in manifest.arrangements.items()}
    for name in swapped:
        (place := state / "arrangements" / name / "0").rename(place.with_name("2"))
        place.with_name("1").rename(place)
        place.with_name("2").rename(place.with_name("1"))
    manifest_path(state, manifest.number).write_bytes(replace(manifest, arrangements=swapped).to_bytes())
    kept = files(*ran.kept)
    result = ran("state", "reshard", "orders.yaml", "--shards", 4)
    assert result.code == 4
    assert "error: the batch has rows of another shard" in result.err
    assert files(*ran.kept) == kept


def test_compact_leaves_what_a_reader_has_not_taken(ran):
    held(ran, 0)
    before = batches(ran)
    assert len(before) > 1
    ran("state", "compact", "orders.yaml")
    assert batches(ran) == before
    ran("state", "release", "orders.yaml", "--reader", "report-1")
    ran("state", "compact", "orders.yaml")
    assert len(batches(ran)) < len(before)


def test_what_others_have_put_into_a_state_is_left_alone_and_named(ran):
    """Neither a name that is none of ours in a directory of ours, nor a directory or link of its own."""
    state = ran.folder / ".dd/orders"
    assert asked(ran, "verify", "orders.yaml")["strange"] == []
    strange = ["arrangements/music", "arrangements/note.txt", "link", "mine", "spill/letter.txt"]
    (state / "spill").mkdir()
    (state / "spill/letter.txt").write_text("mine")
    (state / "spill/000007").write_text("what a run that died has left")
    (state / "arrangements/note.txt").write_text("mine")
    (state / "arrangements/music").symlink_to(ran.folder)
    (state / "link").symlink_to("mine")
    (state / "mine/deep").mkdir(parents=True)
    expected = [str(state / name) for name in strange]
    assert asked(ran, "verify", "orders.yaml")["strange"] == expected
    collected = asked(ran, "gc", "orders.yaml")
    assert collected["strange"] == expected
    assert [found["file"] for found in collected["removed"]] == [str(state / "spill/000007")]
    told = ran("state", "gc", "orders.yaml").err.splitlines()
    assert told == [
        *(f".dd/orders/{name}: note: left alone, as `dd` did not write it" for name in strange),
        "removed 0 files, 0 B",
    ]
    assert (state / "spill/letter.txt").read_text() == "mine"


def test_an_export_is_a_state_that_a_run_goes_on_from(ran):
    facts = asked(ran, "ls", "orders.yaml")
    assert list(found := asked(ran, "export", "orders.yaml", "copy/of/it")) == ["copy", "manifest", "files", "bytes"]
    copy = ran.folder / "copy/of/it"
    named = {path.relative_to(ran.folder / ".dd/orders"): path.read_bytes() for path in batches(ran)}
    there = {path.relative_to(copy): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert {
        path: data for path, data in there.items() if path.parent.name != "manifest" and path.name not in LOCKS
    } == named
    assert sorted(path.name for path in there.keys() - named.keys()) == ["000000003.json", "LOCK"]
    assert found == {"copy": str(copy), "manifest": 3, "files": len(named), "bytes": facts["bytes"]}
    assert asked(ran, "ls", "orders.yaml", "--state", copy) == facts | {"state": str(copy)}
    assert not asked(ran, "verify", "--state", copy)["bad"]
    # Both go on, each with the outputs of its own folder.
    other = shutil.copytree(ran.folder, ran.folder.with_name("other"), ignore=shutil.ignore_patterns(".dd"))
    for folder in (ran.folder, other):
        write_log(folder / "orders/5.parquet", [("north", 5, 5, -1), ("west", 1, 5, 1)], ORDER_COLUMNS)
    assert ran("run", "orders.yaml").code == 0
    assert ran("run", other / "orders.yaml", "--state", other / "copy/of/it").code == 0
    assert contents(other / "out/totals") == contents(ran.folder / "out/totals")
    assert ("west", 1, 1) in contents(other / "out/totals")
    after = asked(ran, "verify", "--state", other / "copy/of/it")
    assert (after["manifest"], after["bad"]) == (4, [])
    assert asked(ran, "ls", "--state", other / "copy/of/it")["outputs"][0]["path"] == str(other / "out/totals")


def test_an_export_goes_where_nothing_is(ran):
    full = ran("state", "export", "orders.yaml", "orders")
    assert full.code == 2
    assert full.err.startswith("orders: error: the target is neither new nor an empty directory")
    assert ran("state", "export", "orders.yaml", "orders.yaml").code == 2
    assert ran("state", "export", "orders.yaml", "copy", "other").code == 2
    (ran.folder / "empty").mkdir()
    told = ran("state", "export", "--state", ".dd/orders", "empty")
    assert told.out.endswith(" -> empty\n")
    assert not asked(ran, "verify", "--state", "empty")["bad"]


def test_an_export_of_a_damaged_file_names_it_and_leaves_nothing(ran):
    batch = batches(ran)[-1]
    for damage in (lambda data: data[:-1] + b"?", lambda data: data[:-1], lambda _: None):
        data = batch.read_bytes()
        bad = damage(data)
        batch.write_bytes(bad) if bad else batch.unlink()
        result = ran("state", "export", "orders.yaml", "copy/of/it")
        assert result.code == 4
        assert result.err.startswith(f"{batch.relative_to(ran.folder)}: error: ")
        assert not (ran.folder / "copy").exists()
        batch.write_bytes(data)


@pytest.mark.parametrize("at", [0, 1])
def test_an_export_goes_on_by_the_newer_manifest_when_a_commit_drops_what_it_copies(ran, at):
    directory, copy = ran.folder / ".dd/orders", ran.folder / "copy"
    older = batches(ran)
    assert len(older) > 1
    copied = []

    class Meanwhile(Files):
        """Has a run commit, and the batches merged, while the first batch is written, or the last."""

        def do(self, operation, path, action):
            if operation == "write" and path.suffix == ".parquet":
                copied.append(path)
                if len(copied) == (1, len(older))[at]:
                    ran.log("orders/5.parquet", [("south", 8, 5, 1), ("east", 8, 5, 1)], **ORDER_COLUMNS)
                    assert ran("run", "orders.yaml").code == 0
                    compact_state(directory)
            return super().do(operation, path, action)

    manifest, size = export_state(directory, copy, files=Meanwhile())
    assert not set(older) & set(batches(ran))
    assert manifest.number == (5, 3)[at]
    assert len(list(copy.rglob("*.parquet"))) == size.batches == len(manifest.files)
    assert [path.name for path in (copy / "manifest").iterdir()] == [f"{manifest.number:09d}.json"]
    assert not verify(copy)[2]


def test_gc_removes_what_no_manifest_names(ran):
    assert asked(ran, "gc", "orders.yaml") == {"removed": [], "bytes": 0, "strange": []}
    leaving = batches(ran)[0].with_name("000000009-0000.parquet")
    leaving.write_bytes(b"x" * 1000)
    half = ran.folder / f"out/totals/.updates-5-6.parquet.000000004{TEMPORARY}"
    half.write_bytes(b"y")
    kept = [path for path in files(*ran.kept) if path not in {leaving, half}]
    found = asked(ran, "gc", "orders.yaml")
    assert found["bytes"] == 1001
    assert {one["file"]: one["bytes"] for one in found["removed"]} == {str(leaving): 1000, str(half): 1}
    assert list(files(*ran.kept)) == kept


def test_unlock_says_who_holds_the_lock(ran):
    assert asked(ran, "unlock", "orders.yaml") == {"locked": False, "holder": None, "forced": False}
    assert ran("state", "unlock", "orders.yaml").out == "free: no process holds the lock\n"
    lock = Lock(ran.folder / ".dd/orders", Files())
    try:
        told = ran("state", "unlock", "orders.yaml")
        assert told.code == 75
        assert f"in use by process {os.getpid()} on " in told.err
        assert asked(ran, "unlock", "orders.yaml", code=75)["locked"]
        for name in ("compact", "gc", "reshard"):
            assert ran("state", name, "orders.yaml", *NEEDED.get(name, ())).code == 75
        assert ran("state", "ls", "orders.yaml").code == 0
        assert ran("state", "verify", "orders.yaml").code == 0
        assert ran("state", "unlock", "orders.yaml", "--force").out.startswith("taken away: the state is in use by")
        assert ran("state", "gc", "orders.yaml").code == 0
    finally:
        lock.release()


@pytest.mark.parametrize("name", sorted(command.commands))
def test_wrong_use_and_a_state_that_is_not_there(orders, name):
    """Without a name the pipeline is the only one of the directory, where no file changes hands."""
    more = NEEDED.get(name, ())
    if name not in {"adopt", "export", "reopen"}:
        assert orders("state", name, *more).err == orders("state", name, "orders.yaml", *more).err
        orders.write("others.yaml", (orders.folder / "orders.yaml").read_text())
    nothing = orders("state", name, *more)
    assert nothing.code == 2
    assert "hint: name " in nothing.err
    missing = orders("state", name, "orders.yaml", *more)
    assert missing.code == 4
    assert ".dd/orders: error: there is no state here" in missing.err
    assert not any(path.exists() for path in orders.kept)


@pytest.mark.parametrize("name", sorted(command.commands))
def test_each_command_has_help_with_an_example(orders, name):
    text = orders("state", name, "--help").out
    assert f"\n    dd state {name} pipelines/airborne.yaml" in text
    assert "JSON: {" in text


def test_what_is_kept_stays_in_proportion_to_what_is_live(orders):
    """Many runs, each of which replaces a few records of one size of collection."""
    rows = {}
    for at in range(40):
        name = f"region {at % 20}"
        changes = [(name, rows[name], at, -1)] if name in rows else []
        rows[name] = at
        orders.log(f"orders/{at + 1}.parquet", [*changes, (name, at, at, 1)], **ORDER_COLUMNS)
        assert orders("run", "orders.yaml", "-q").code == 0
    facts = asked(orders, "ls", "orders.yaml")
    assert all(one["rows"] <= 2 * 20 for one in facts["arrangements"])
    assert all(one["batches"] <= 4 for one in facts["arrangements"])
    assert contents(orders.folder / "out/totals") == {(name, 1, amount): 1 for name, amount in rows.items()}


def test_a_run_on_a_damaged_state_names_the_file_or_does_what_it_should(ran):
    ran.log("orders/5.parquet", [("east", 3, 5, -1), ("region 7", 7, 5, -1)], **ORDER_COLUMNS)
    whole = {path: path.read_bytes() for path in batches(ran)}
    before, named = files(*ran.kept), set()
    for path, data in whole.items():
        for at in range(3, len(data), len(data) // 8):
            path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
            result = ran("run", "orders.yaml", "--dry-run")
            assert result.code in {0, 4}
            if result.code:
                assert f"{path.relative_to(ran.folder)}: error: the file is damaged" in result.err
                assert "hint: " in result.err
                named.add(path)
            path.write_bytes(data)
    assert named
    assert files(*ran.kept) == before
    assert ran("run", "orders.yaml").code == 0
    assert ("region 7", 1, 7) not in contents(ran.folder / "out/totals")


def test_what_has_one_group_of_all_rows_has_no_column_of_ours_as_its_key(shop):
    shop.write("in/1.csv", "id,g\n1,a\n2,b\n")
    columns = "columns: {id: int64, g: string}"
    sums = "{sql: 'select count(*) as n, (select max(g) from t) as g from t'}"
    shop.write(
        "p.yaml",
        f"inputs: {{t: {{path: in/, format: append, {columns}}}}}\ncollections: {{c: {sums}}}\noutputs: {{c: out/}}\n",
    )
    assert shop("run", "p.yaml", "-q").code == 0
    facts = asked(shop, "ls", "p.yaml")["arrangements"]
    assert [] in [one["key"] for one in facts]
    assert {"standing record of t (c)"} & {one["of"] for one in facts}
    text = shop("state", "ls", "p.yaml").out
    assert "  all " in text
    assert not re.search(r"\$all|#one|standingrecord", json.dumps([one["key"] for one in facts]) + text)
    (alone,) = {one["name"] for one in facts if one["of"] == "standing record of t (c)"}
    assert "\n  key      all\n" in shop("state", "show", "p.yaml", "-a", alone).out
