"""Arrangements that one pipeline exports and another imports: no copy, exactly what is new, and holds."""

import errno
import json
import os
import shutil
from dataclasses import replace

import pytest

from ddcli.store.files.gate import Files
from ddcli.store.files.lock import Lock
from ddcli.store.state.contents import batch_files
from ddcli.store.state.directory import read_holds, write_hold
from ddcli.store.state.manifest import manifest_numbers, read_newest
from ddcli.store.state.shared_arrangements import reading
from tests.harness import ORDER_COLUMNS, contents, files

EXPORTER = """\
dd: 1
name: orders
inputs:
  orders: orders/
collections:
  by_region: {from: orders, apply: [{arrange: {by: [region], export: by_region}}]}
  totals: {from: by_region, apply: [{reduce: {by: [region], amount: sum(amount)}}]}
outputs:
  totals: out/totals/
"""
IMPORTER = """\
dd: 1
name: pairs
inputs: {shared: {import: {state: .dd/orders/, arrangement: by_region}}}
collections: {pairs: {from: shared, apply: [{join: {with: shared, as: other, on: [region]}}]}}
outputs: {pairs: out/pairs/}
"""


@pytest.fixture
def both(shop):
    """Return a shop with an exporter that has run, and an importer that has not."""
    shop.write("orders.yaml", EXPORTER)
    shop.write("pairs.yaml", IMPORTER)
    shop.log(
        "orders/1.parquet",
        [("north", 10, 0, 1), ("north", 5, 1, 1), ("south", 7, 1, 1), ("north", 10, 2, -1)],
        **ORDER_COLUMNS,
    )
    ran(shop, "orders.yaml")
    return shop


def ran(shop, name, *options):
    result = shop("run", name, "-o", "json", *options)
    assert result.code == 0, result.err
    return json.loads(result.out)


def batches(shop, name):
    return list(files(shop.folder / f".dd/{name}/arrangements"))


def holds(shop):
    return read_holds(shop.folder / ".dd/orders")


def test_an_import_begins_with_what_there_is_and_goes_on_with_what_is_new(both):
    done = ran(both, "pairs.yaml")
    assert done["upper"] == "3"
    assert contents(both.folder / "out/pairs") == {("north", 5, 5): 1, ("south", 7, 7): 1}
    assert ran(both, "pairs.yaml")["changed"] is False
    both.log("orders/2.parquet", [("south", 1, 3, 1), ("south", 2, 5, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    done = ran(both, "pairs.yaml")
    assert (done["lower"], done["upper"], done["inputs"]["shared"]["rows"]) == ("3", "6", 2)
    assert contents(both.folder / "out/pairs", until=5) == {
        ("north", 5, 5): 1, ("south", 7, 7): 1, ("south", 1, 1): 1, ("south", 1, 7): 1, ("south", 7, 1): 1,
    }  # fmt: skip
    assert len(contents(both.folder / "out/pairs")) == 10


def test_the_importer_keeps_no_copy(both):
    ran(both, "pairs.yaml")
    assert batches(both, "pairs") == []
    assert read_newest(both.folder / ".dd/pairs").arrangements == {}


def test_runs_of_the_exporter_between_are_taken_all_at_once_each_at_its_time(both):
    ran(both, "pairs.yaml")
    for time in range(3, 8):
        both.log(
            f"orders/{time}.parquet",
            [("south", time, time, 1), ("north", 5, time, 1 if time % 2 else -1)],
            **ORDER_COLUMNS,
        )
        ran(both, "orders.yaml")
    ran(both, "pairs.yaml")
    assert contents(both.folder / "out/pairs", until=4)["south", 3, 7] == 1
    assert ("south", 4, 7) not in contents(both.folder / "out/pairs", until=4)
    assert contents(both.folder / "out/pairs", until=6)["north", 5, 5] == 4
    (hold,) = holds(both)
    assert (hold.since, hold.through, hold.manifest) == (((8,),), ((8,),), None)


def test_a_hold_keeps_the_exporters_past_until_it_moves_on(both):
    ran(both, "pairs.yaml")
    (hold,) = holds(both)
    assert hold.reader.startswith("pairs-")
    assert hold.since == ((3,),)
    both.log("orders/2.parquet", [("south", 1, 3, 1), ("south", 2, 5, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    manifest = read_newest(both.folder / ".dd/orders")
    entry = manifest.arrangements[manifest.exports["by_region"]]
    assert entry.since == ((3,),)
    assert [file.rows for shard in entry.shards for file in shard] == [2, 2]


def test_what_is_not_exported(both):
    both.write("pairs.yaml", IMPORTER.replace("arrangement: by_region", "arrangement: by_regio"))
    result = both("run", "pairs.yaml")
    assert result.code == 3
    assert "exports no 'by_regio'" in result.err
    assert "did you mean 'by_region'?" in result.err
    both.write("pairs.yaml", IMPORTER.replace(".dd/orders/", ".dd/order/"))
    result = both("run", "pairs.yaml")
    assert result.code == 3
    assert "no state" in result.err


def test_a_released_hold_is_noticed_and_a_full_refresh_begins_anew(both):
    ran(both, "pairs.yaml")
    (hold,) = holds(both)
    result = both("state", "release", "orders.yaml", "--reader", hold.reader)
    assert result.code == 0, result.err
    assert holds(both) == ()
    both.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    assert both("state", "compact", "orders.yaml").code == 0
    for _ in range(2):
        result = both("run", "pairs.yaml")
        assert result.code == 4
        assert "hold" in result.err
        assert "--full-refresh all" in result.err
    ran(both, "pairs.yaml", "--full-refresh", "all")
    assert contents(both.folder / "out/pairs")["south", 1, 7] == 1


def test_holds_are_listed(both):
    ran(both, "pairs.yaml")
    result = both("state", "ls", "orders.yaml", "-o", "json")
    assert result.code == 0, result.err
    (hold,) = json.loads(result.out)["holds"]
    assert (hold["since"], hold["through"]) == ("3", "3")


def test_an_export_more_rebuilds_nothing_else(shop):
    shop.write("orders.yaml", EXPORTER.replace(", export: by_region", ""))
    shop.log("orders/1.parquet", [("north", 10, 0, 1), ("north", 5, 1, 1)], **ORDER_COLUMNS)
    ran(shop, "orders.yaml")
    kept = {*read_newest(shop.folder / ".dd/orders").arrangements}
    shop.write("orders.yaml", EXPORTER)
    ran(shop, "orders.yaml")
    manifest = read_newest(shop.folder / ".dd/orders")
    assert {*manifest.arrangements} == kept | {manifest.exports["by_region"]}
    shop.write("pairs.yaml", IMPORTER)
    ran(shop, "pairs.yaml")
    assert len(contents(shop.folder / "out/pairs")) == 4


def test_no_file_vanishes_under_a_reader_while_the_exporter_runs_and_compacts(both):
    ran(both, "pairs.yaml")
    state = both.folder / ".dd/orders"
    wanted = {"shared": (state, "by_region")}
    with reading("pairs", both.folder / ".dd/pairs", wanted, "fail") as shared:
        there = [path for path, _ in batch_files(state, shared["shared"].manifest)]
        for time in (3, 4, 5):
            both.log(f"orders/{time}.parquet", [("south", time, time, 1)], **ORDER_COLUMNS)
            ran(both, "orders.yaml")
            assert both("state", "compact", "orders.yaml").code == 0
        assert all(path.exists() for path in there)
        assert manifest_numbers(state)[0] == shared["shared"].manifest.number
    ran(both, "pairs.yaml")
    for time in (6, 7):
        both.log(f"orders/{time}.parquet", [("south", time, time, 1)], **ORDER_COLUMNS)
        ran(both, "orders.yaml")
    assert len(manifest_numbers(state)) == 1
    assert both("state", "compact", "orders.yaml").code == 0
    assert not all(path.exists() for path in there)


def test_an_importer_whose_first_run_meets_one_of_the_exporter_is_told_to_wait(both):
    lock = Lock(both.folder / ".dd/orders", Files())
    assert both("run", "pairs.yaml").code == 75
    lock.release()
    ran(both, "pairs.yaml")
    lock = Lock(both.folder / ".dd/orders", Files())  # from now on they do not meet
    both.write("pairs.yaml", IMPORTER + "  # the same\n")
    ran(both, "pairs.yaml")
    lock.release()


def test_a_run_that_fails_leaves_its_hold_where_it_was(both):
    both.write("pairs.yaml", IMPORTER.replace("on: [region]}}]", "on: [region]}}, {filter: 8 / (amount - 1) > 0}]"))
    ran(both, "pairs.yaml")
    both.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    assert both("run", "pairs.yaml").code == 3
    (hold,) = holds(both)
    assert (hold.since, hold.manifest) == (((3,),), None)
    both.log("orders/3.parquet", [("south", 1, 4, -1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    assert both("run", "pairs.yaml").code == 3
    both.write("pairs.yaml", IMPORTER)
    ran(both, "pairs.yaml", "--apply")
    assert contents(both.folder / "out/pairs", until=4)["south", 1, 7] == 1
    assert ("south", 1, 7) not in contents(both.folder / "out/pairs")


def test_a_first_run_that_fails_holds_nothing(both):
    """It has taken nothing: the exporter would keep files and times for a reader that may never come."""
    both.write("pairs.yaml", IMPORTER.replace("on: [region]}}]", "on: [region]}}, {filter: 8 / (amount - 7) > 0}]"))
    for _ in range(2):
        assert both("run", "pairs.yaml").code == 3
        assert holds(both) == ()
    both.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    assert both("state", "compact", "orders.yaml").code == 0
    both.write("pairs.yaml", IMPORTER)
    ran(both, "pairs.yaml")
    assert len(holds(both)) == 1
    assert contents(both.folder / "out/pairs")["south", 1, 7] == 1


def test_an_import_more_that_fails_first_is_held_no_longer(both):
    both.log("more/1.parquet", [("east", 1, 0, 1)], **ORDER_COLUMNS)
    own = IMPORTER.replace("shared: {import: {state: .dd/orders/, arrangement: by_region}}", "shared: more/")
    both.write("pairs.yaml", own)
    ran(both, "pairs.yaml")
    added = own.replace("inputs: {", "inputs: {other: {import: {state: .dd/orders/, arrangement: by_region}}, ")
    joined = added.replace(
        "with: shared, as: other, on: [region]}}",
        "with: other, on: [region], as: o}}, {filter: 8 / (o.amount - 7) > 0}",
    )
    both.write("pairs.yaml", joined.replace("from: shared", "from: other"))
    assert both("run", "pairs.yaml", "--apply").code != 0
    assert holds(both) == ()


def test_an_export_that_is_another_one_now_is_noticed(both):
    ran(both, "pairs.yaml")
    both.write("orders.yaml", EXPORTER.replace("apply: [{arrange", "apply: [{filter: amount > 5}, {arrange"))
    ran(both, "orders.yaml", "--apply")
    result = both("run", "pairs.yaml")
    assert result.code == 4
    assert "is another one now" in result.err
    ran(both, "pairs.yaml", "--full-refresh", "all")
    assert contents(both.folder / "out/pairs") == {("south", 7, 7): 1}


def test_a_changed_importer_is_rebuilt_from_the_arrangement(both):
    ran(both, "pairs.yaml")
    both.write("pairs.yaml", IMPORTER.replace("on: [region]}}]", "on: [region]}}, {filter: amount > 5}]"))
    assert both("run", "pairs.yaml").code == 4
    ran(both, "pairs.yaml", "--apply")
    assert contents(both.folder / "out/pairs") == {("south", 7, 7): 1}
    assert batches(both, "pairs") == []


COUNTED = """\
dd: 1
name: counted
inputs: {shared: {import: {state: .dd/orders/, arrangement: by_region}}}
collections: {counted: {from: shared, apply: [{reduce: {by: [region], n: count(*), amount: sum(amount)}}]}}
outputs: {counted: out/counted/}
"""


@pytest.fixture
def lagging(both):
    """Return a shop whose importer has run twice, and whose exporter has committed once more since."""
    both.write("counted.yaml", COUNTED)
    ran(both, "counted.yaml")
    for time in (3, 4):
        both.log(f"orders/{time}.parquet", [("south", time, time, 1)], **ORDER_COLUMNS)
        ran(both, "orders.yaml")
        if time == 3:
            ran(both, "counted.yaml")
    return both


@pytest.mark.parametrize(
    ("before", "after", "options", "north"),
    [
        ("sum(amount)", "max(amount)", ["--apply"], 5),
        ("sum(amount)", "sum(amount)", ["--full-refresh", "counted"], 5),
        ("sum(amount)", "sum(amount)", ["--full-refresh", "all"], 5),
        ("outputs: {", "outputs: {again: {from: counted, path: out/again/}, ", [], 5),
    ],
)
def test_an_importer_that_lags_is_built_with_all_that_it_has_taken(lagging, before, after, options, north):
    """The exporter has advanced the times of rows that were taken to the frontier of the importer's hold."""
    lagging.write("counted.yaml", COUNTED.replace(before, after))
    ran(lagging, "counted.yaml", *options)
    south = 7 if "max" in after else 7 + 3 + 4
    for place in lagging.folder.glob("out/[ca]*"):
        assert contents(place) == {("north", 1, north): 1, ("south", 3, south): 1}


def test_the_rebuilt_past_of_an_importer_that_lags_is_that_of_its_last_run(lagging):
    """Not that of the exporter, and not empty: a reader between the two commits finds what was there."""
    ran(lagging, "counted.yaml", "--full-refresh", "all")
    assert contents(lagging.folder / "out/counted", until=4) == {("north", 1, 5): 1, ("south", 2, 10): 1}


def test_a_question_about_an_importer_that_lags_is_one_about_its_last_run(lagging):
    result = lagging("why", "counted.yaml", "counted", "region=south", "-o", "json")
    assert result.code == 0, result.err
    (found,) = json.loads(result.out)["records"]
    assert (found["record"], found["checked"]) == ({"region": "south", "n": 2, "amount": 10}, True)
    result = lagging("sql", "--from", "counted.yaml", "select region, amount + 0 as a from counted", "-o", "csv")
    assert sorted(result.out.split()) == ["north,5", "region,a", "south,10"]
    result = lagging("why", "counted.yaml", "counted", "region=south", "--as-of", "2")
    assert result.code == 2
    assert "no longer keeps times before 4 apart" in result.err


def test_an_arrangement_that_is_built_anew_is_refused_by_an_importer_that_lags(lagging):
    """Its rows no longer have times that decide which were taken."""
    ran(lagging, "orders.yaml", "--full-refresh", "all")
    result = lagging("run", "counted.yaml")
    assert result.code == 4
    assert "was rebuilt" in result.err
    ran(lagging, "counted.yaml", "--full-refresh", "all")
    assert contents(lagging.folder / "out/counted")["south", 3, 14] == 1


def test_an_arrangement_that_is_built_anew_goes_on_for_an_importer_that_has_read_all(lagging):
    ran(lagging, "counted.yaml")
    ran(lagging, "orders.yaml", "--full-refresh", "all")
    assert ran(lagging, "counted.yaml")["changed"] is False
    lagging.log("orders/5.parquet", [("south", 5, 5, 1)], **ORDER_COLUMNS)
    ran(lagging, "orders.yaml")
    ran(lagging, "counted.yaml")
    assert contents(lagging.folder / "out/counted")["south", 4, 19] == 1


def test_an_arrangement_that_was_another_one_for_a_while_is_refused(lagging):
    ran(lagging, "counted.yaml")
    for text in (EXPORTER.replace("apply: [{arrange", "apply: [{filter: amount > 5}, {arrange"), EXPORTER):
        lagging.write("orders.yaml", text)
        ran(lagging, "orders.yaml", "--apply")
    assert lagging("run", "counted.yaml").code == 4
    ran(lagging, "counted.yaml", "--full-refresh", "all")
    assert contents(lagging.folder / "out/counted")["south", 3, 14] == 1


@pytest.mark.parametrize("time", [4, 5, 6])
def test_an_exporter_that_was_restored_from_an_older_copy_is_refused(both, time):
    """It goes on with other rows, whose times the importer may have taken."""
    both.write("counted.yaml", COUNTED)
    ran(both, "counted.yaml")
    copies = [(both.folder / name, both.folder / "copy" / name) for name in (".dd/orders", "out/totals", "orders")]
    for place, copy in copies:
        shutil.copytree(place, copy)
    both.log("orders/2.parquet", [("south", 100, 4, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    ran(both, "counted.yaml")
    for place, copy in copies:
        shutil.rmtree(place)
        shutil.copytree(copy, place)
    both.log("orders/2.parquet", [("south", 1, time, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    for command in (["run", "counted.yaml"], ["why", "counted.yaml", "counted", "region=south"]):
        result = both(*command)
        assert result.code == 4
        assert "restored" in result.err
    ran(both, "counted.yaml", "--full-refresh", "all")
    assert contents(both.folder / "out/counted")["south", 2, 8] == 1


def test_an_importer_that_was_restored_from_an_older_copy_is_refused(lagging):
    places = [(lagging.folder / name, lagging.folder / "copy" / name) for name in (".dd/counted", "out/counted")]
    for place, copy in places:
        shutil.copytree(place, copy)
    ran(lagging, "counted.yaml")
    for place, copy in places:
        shutil.rmtree(place)
        shutil.copytree(copy, place)
    assert lagging("run", "counted.yaml").code == 4
    ran(lagging, "counted.yaml", "--full-refresh", "all")
    assert contents(lagging.folder / "out/counted")["south", 3, 14] == 1


def test_a_run_lets_go_of_what_a_killed_one_was_reading(both):
    """Also one with nothing new: the files that a killed one reads would stay for ever, and no row could be forgotten."""
    ran(both, "pairs.yaml")
    state = both.folder / ".dd/orders"
    (hold,) = holds(both)
    number = read_newest(state).number
    write_hold(state, replace(hold, manifest=number), Files())
    refused = both("forget", "orders.yaml", "--where", "region = 'north'")
    assert refused.code == 4
    assert "if it was killed, run it again" in refused.err
    assert ran(both, "pairs.yaml")["changed"] is False
    assert holds(both) == (hold,)
    assert both("forget", "orders.yaml", "--where", "region = 'north'").code == 0


def test_a_plan_and_a_dry_run_hold_nothing(both):
    found = json.loads(both("plan", "pairs.yaml", "-o", "json").out)
    assert (found["work"], found["upper"], found["inputs"]["shared"]["rows"]) == (True, "3", 2)
    assert ran(both, "pairs.yaml", "-n")["outputs"]["pairs"]["rows"] == 2
    assert holds(both) == ()
    assert not (both.folder / ".dd/pairs").exists()
    ran(both, "pairs.yaml")
    both.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    found = json.loads(both("plan", "pairs.yaml", "-o", "json").out)
    assert (found["lower"], found["upper"], found["inputs"]["shared"]["rows"]) == ("3", "4", 1)


def test_times_that_differ_are_refused(both):
    both.write("pairs.yaml", IMPORTER.replace("arrangement: by_region}", "arrangement: by_region}, time: [x, y]"))
    result = both("run", "pairs.yaml")
    assert result.code == 3
    assert "times of 1 coordinates" in result.err


def test_explain_names_what_is_made_of_an_imported_arrangement(both):
    tree = json.loads(both("explain", "pairs.yaml", "-o", "json").out)
    named = [(each["kind"], each["names"]) for each in tree["operators"]]
    assert named == [("input", ["shared"]), ("arrange", []), ("join", ["pairs"]), ("output", ["pairs"])]


@pytest.mark.parametrize("command", ["run", "forget"])
def test_an_error_after_the_commit_says_that_the_run_is_committed(both, tmp_path_factory, monkeypatch, command):
    """Whichever file can't be written: the hold of a reader as well, which is written when all else is done."""
    ran(both, "pairs.yaml")
    both.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    ran(both, "orders.yaml")
    if command == "forget":
        both.write("pairs.yaml", FORGETTING)
        both.log("own/1.parquet", [("south", 1, 3, 1), ("north", 2, 3, 1)], **ORDER_COLUMNS)
        ran(both, "pairs.yaml", "--apply")
    folder, state, do = both.folder, both.folder / ".dd/pairs", Files.do
    whole = tmp_path_factory.mktemp("whole")
    shutil.copytree(folder, whole, dirs_exist_ok=True)
    arguments = (
        ["run", "pairs.yaml"]
        if command == "run"
        else ["forget", "pairs.yaml", "--input", "own", "--where", "region = 'south'"]
    )
    seen = set()
    for at in range(400):
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(whole, folder, dirs_exist_ok=True)
        before, count = read_newest(state).number, 0

        def fails(self, operation, path, action, at=at):
            nonlocal count
            count += 1
            if count == at + 1:
                action = failing
            return do(self, operation, path, action)

        with monkeypatch.context() as patch:
            patch.setattr(Files, "do", fails)
            result = both(*arguments)
        if count <= at:
            break
        committed = read_newest(state).number > before
        if result.code == 0:  # a record for people, a mark that isn't needed
            continue
        assert result.code == 5, result.err
        assert ("the run is committed" in result.err) == committed, result.err
        assert ("nothing of this run is visible" in result.err) != committed, result.err
        seen.add(committed)
    assert seen == {True, False}
    assert at > 20


def failing():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FORGETTING = IMPORTER.replace("inputs: {", "inputs: {own: own/, ").replace("outputs: {", "outputs: {own: out/own/, ")
