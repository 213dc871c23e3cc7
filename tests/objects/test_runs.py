"""Pipelines whose state, inputs and outputs are in an object store do as those in files do."""

import sys
from collections import Counter
from contextlib import closing, contextmanager, nullcontext
from datetime import date, timedelta
from functools import partial
from itertools import combinations

import polars as pl
import pytest

import ddcli.runtime.scheduler
import ddcli.runtime.task
import ddcli.sinks.outputs
import ddcli.store.files.buckets
import ddcli.store.files.objects
import ddcli.store.state.directory
import ddcli.store.state.manifest
from ddcli.cli.main import main
from ddcli.driver.run import run
from ddcli.engine.jit.settings import cache_dir
from ddcli.errors import EngineError, LockedError, SpecErrors, StateError, UsageError
from ddcli.job.sizes import BASE, SparkOptions
from ddcli.provenance.explanation import explain
from ddcli.runtime.placement import Placement
from ddcli.runtime.spark import doctor
from ddcli.sources.change_log import read_log
from ddcli.store.files.buckets import SETTINGS
from ddcli.store.files.gate import TEMPORARY, Files
from ddcli.store.files.lock import take_lock
from ddcli.store.files.objects import ObjectPath
from ddcli.store.log.joint_files import JointFile
from ddcli.store.scratch.attempt import Attempt
from ddcli.store.state.contents import batch_files
from ddcli.store.state.directory import Hold, holding, read_holds, release, write_hold
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import verify_state
from ddcli.version import install_command
from tests.crash.shop import OUTPUTS, Shop
from tests.draws import EFFORT, WHOLE, some
from tests.harness import write_log
from tests.objects.conftest import refusing
from tests.objects.shop import Remote
from tests.spark.support import Calm, Elsewhere, Here, started
from tests.store.support import Dead, Faulty

PARTS = ("in", "out", "state")
ADDRESS = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID"),
    "gs": ("GOOGLE_BASE_URL", "GOOGLE_APPLICATION_CREDENTIALS"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_ACCOUNT_KEY"),
}
"""The setting with the address of each store, and the first one that a message names with its credentials."""
CLOUDS = pytest.mark.parametrize("bucket", ["gs", "az"], indirect=True)


def make(tmp_path, bucket, parts=PARTS):
    return Remote(Shop.make(tmp_path / "remote"), bucket, frozenset(parts))


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "parts", [*some(parts for size in (1, 2, 3) for parts in combinations(PARTS, size))], ids="+".join
)
def test_runs_in_an_object_store_write_what_those_in_files_write(tmp_path, bucket, parts):
    same_runs(tmp_path, bucket, parts)


@pytest.mark.in_turn
@CLOUDS
def test_runs_in_the_stores_of_google_and_azure(tmp_path, bucket):
    same_runs(tmp_path, bucket, PARTS)


def same_runs(tmp_path, bucket, parts):
    here, there = Shop.make(tmp_path / "here"), make(tmp_path, bucket, parts)
    for step in range(4):
        here.supply(step)
        there.supply(step)
        assert there.run().changed
        assert not there.run().changed
        here.run()
        assert there.rows() == here.rows()
    assert there.rows() == here.meant(4)
    manifest = read_newest(there.state)
    assert manifest.number == 4
    assert not list(verify_state(there.state, manifest))
    if len(parts) == 3:
        mine = [name.removeprefix(".dd/shop/") for name in here.files()]
        theirs = [name.removeprefix("state/") for name in there.names()]
        assert sorted(theirs) == sorted(mine)
        assert sorted(path.name for path in there.local.folder.iterdir()) == ["in", "shop.yaml"]


def test_a_run_reads_the_manifest_once(tmp_path, bucket, monkeypatch):
    """And one that a new process makes, with or without new rows; it looks twice which is the newest: before it takes the lock, and after that."""
    there = make(tmp_path, bucket)
    asked = Counter()
    obstore = ddcli.store.files.objects.library()

    class Counted:
        def __getattr__(self, name):
            return partial(self.count, name)

        def count(self, name, *given, **options):
            if any(isinstance(each, str) and each.startswith("state/manifest") for each in given):
                asked[name] += 1
            return getattr(obstore, name)(*given, **options)

    there.supply(0)
    there.run()
    there.supply(1)
    monkeypatch.setattr(ddcli.store.files.objects, "library", Counted)
    for changed in (True, False):
        asked.clear()
        ddcli.store.state.manifest._LATELY.clear()
        assert there.run().changed == changed
        assert asked["get"] == 1
        assert asked["list_with_delimiter"] <= (4 if changed else 1), "two of them sweep leavings away"


@pytest.mark.parametrize("tasks", [False, True])
def test_lookups_fetch_only_the_row_groups_that_they_need(tmp_path, bucket, monkeypatch, tasks):
    """150 000 people are in some row groups; a sale to one of them needs one, and the footers. A batch's file takes two requests: one for its end, one for all columns of the pages."""
    there = make(tmp_path, bucket)
    fetched, looks = [], Counter()
    errors, get = ObjectPath._errors, ObjectPath.read_ranges

    def counted(path, ranges):
        if path.is_relative_to(there.state):
            fetched.extend(end - start for start, end in ranges)
        return get(path, ranges)

    def looked(path):
        looks[path] += path.parent.name == "bundles" or path.is_relative_to(there.state / "arrangements")
        return errors(path)

    monkeypatch.setattr(ObjectPath, "read_ranges", counted)
    monkeypatch.setattr(ObjectPath, "_errors", looked)
    folder = there.local.folder
    for step, sales in enumerate([[(at, at % 7, 0, 1) for at in range(150_000)], [(50_000, 1, 1, 1)]]):
        people = [(at, "Rome" if at % 2 else "Oslo", 0, 1) for at in range(150_000)] if not step else []
        for name, rows, columns in (("sales", sales, ["person", "amount"]), ("people", people, ["person", "city"])):
            if rows:
                write_log(folder / f"in/{name}/{step}.parquet", rows, [*columns, "time", "diff"])
                there.place(f"in/{name}/{step}.parquet").put((folder / f"in/{name}/{step}.parquet").read_bytes())
        before = {path for path, _ in there.state.below()} if step else set()
        fetched.clear()
        looks.clear()
        with started(Calm()) if tasks else nullcontext():
            there.run(engine="spark" if tasks else "local")
    batches = [entry for entry in read_newest(there.state).arrangements.values() for entry in entry.shards[0]]
    assert tasks or sum(fetched) < sum(entry.size for entry in batches) / 2  # a bundle is fetched in blocks
    assert 0 < sum(looks[path] for path in before) <= 2 * len(batches), looks


def test_a_run_with_nothing_new_asks_the_store_few_questions(tmp_path, bucket, monkeypatch):
    """Each takes some 30 ms of a store that is elsewhere: of a directory one, of a file that waits for its name one."""
    there = make(tmp_path, bucket)
    there.supply(0)
    there.run()
    asked, errors = [], ObjectPath._errors

    def counted(path):
        asked.append(path.relative_to(bucket).inner)
        return errors(path)

    monkeypatch.setattr(ObjectPath, "_errors", counted)
    assert not there.run().changed
    often = Counter(asked)
    assert often["state"] == 1
    assert [often[f"out/{name}"] for name in OUTPUTS] == [2, 2], "is it a directory, and which files has it"
    assert {count for path, count in often.items() if path.endswith(".dd-tmp")} == {1}
    assert len(asked) < 20


def test_what_is_put_away_for_a_while_is_put_away_here(tmp_path, bucket, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = make(tmp_path, bucket)
    for step in range(3):
        there.supply(step)
        there.run(memory=BASE)  # nothing fits beside what a run needs anyway
    assert there.rows() == there.local.meant(3)
    assert [path.name for path in tmp_path.iterdir()] == ["remote"]
    assert not any("spill" in name for name in there.names())


def test_tasks_meet_in_the_bucket(tmp_path, bucket):
    """What they send each other and what they write is there, and nothing that doesn't count is left."""
    there = make(tmp_path, bucket)
    with started(Here(7)):
        for step in range(4):
            there.supply(step)
            there.run(engine="local" if step == 2 else "spark")
    assert there.rows() == there.local.meant(4)
    assert not any("spill" in name or "dd-tmp" in name for name in there.names())
    manifest = read_newest(there.state)
    named = {path.name for path, _ in batch_files(there.state, manifest)}
    assert {path.name for part in ("arrangements", "bundles") for path, _ in (there.state / part).below()} == named


@pytest.mark.parametrize("rows", [1, 2, 1000])
@pytest.mark.parametrize(
    "columns",
    [
        {"k": pl.lit(1), "v": pl.lit(5)},
        {"k": pl.col("i") % 3, "v": pl.lit(None, pl.Int64)},
        {"k": pl.lit(True), "v": pl.lit(2.5)},
        {"k": pl.lit(""), "v": pl.lit("a")},
        {"k": pl.col("i"), "v": pl.col("i").cast(pl.String)},
        {"k": pl.lit(None, pl.String), "v": pl.lit(date(2024, 1, 1))},
    ],
    ids=["constant", "nulls", "boolean", "empty text", "texts", "null key"],
)
def test_tasks_send_rows_of_every_shape_through_the_bucket(tmp_path, bucket, rows, columns):
    """A part whose lanes are all constant has no bytes."""
    (tmp_path / "in").mkdir()
    frame = pl.DataFrame({"i": range(rows)}).select(**columns).with_columns(time=0, diff=1)
    frame.write_parquet(tmp_path / "in/0.parquet")
    path = tmp_path / "p.yaml"
    path.write_text(
        f"name: shapes\nshards: 3\nstate: {bucket}/state\ninputs: {{a: in/}}\n"
        "collections: {sums: {from: a, apply: [{reduce: {by: [k], n: count(*), m: max(v)}}]}}\noutputs: {sums: out/}\n"
    )
    with started(Here(3)):
        run(path, engine="spark")
    found = pl.read_parquet(tmp_path / "out/*.parquet").drop("time", "diff")
    wanted = frame.group_by("k").agg(n=pl.len().cast(pl.Int64), m=pl.col("v").max())
    assert sorted(found.rows(), key=str) == sorted(wanted.rows(), key=str)


@pytest.mark.in_turn(9)
def test_tasks_on_other_machines_get_the_address_and_credentials_of_the_store(tmp_path, bucket):
    there = make(tmp_path, bucket)
    there.supply(0)
    with started(Elsewhere(tmp_path, lacking=SETTINGS)):
        there.run(engine="spark")
    assert there.rows() == there.local.meant(1)


def test_a_commit_is_one_object_of_an_output(tmp_path, bucket, monkeypatch):
    """Shards write parts of it, tasks objects whose row groups are put together."""
    monkeypatch.setattr(ddcli.sinks.outputs, "LARGE", 1)
    monkeypatch.setattr(ddcli.runtime.scheduler, "INLINE", 0)
    there, joined = make(tmp_path, bucket), []
    path = there.local.folder / "shop.yaml"
    path.write_text(path.read_text().replace("name: shop\n", "name: shop\nshards: 3\n"))
    add, add_file = JointFile.add, JointFile.add_file
    monkeypatch.setattr(JointFile, "add", lambda *given: joined.append("part") or add(*given))
    monkeypatch.setattr(JointFile, "add_file", lambda *given: joined.append("object") or add_file(*given))
    with started(Here(7)):
        for step, options in enumerate([{}, *[{"engine": "spark"}] * 2, {"memory": BASE}]):
            there.supply(step)
            there.run(**options)
    assert set(joined) == {"part", "object"}
    assert there.rows() == there.local.meant(4)
    found = [name for name in there.names() if "updates-" in name and "known" in name]
    assert found == [f"out/known/updates-{span}.parquet" for span in ("1-2", "2-3", "3-4", "start-1")]
    assert not any("dd-tmp" in name for name in there.names())
    assert not list(verify_state(there.state, read_newest(there.state)))


@pytest.mark.usefixtures("no_large_copies")
def test_a_large_object_is_copied_in_blocks(bucket):
    """A store copies no object of more than 5 GB by itself."""
    data = bytes(range(256)) * 1000
    (bucket / "from").put(data)
    (bucket / "from").replace(bucket / "to")
    assert (bucket / "to").read_bytes() == data
    assert not (bucket / "from").is_file()


def test_two_states_of_one_output(tmp_path, bucket):
    shop = make(tmp_path, bucket)
    shop.supply(0)
    with (
        open_lock(shop.place("out/known"), bucket / "other"),
        pytest.raises(LockedError, match="is being written from"),
    ):
        shop.run()
    assert shop.run().changed
    with pytest.raises(StateError, match="'known' belongs to another state"):
        shop.run(state=bucket / "other")


@contextmanager
def open_lock(place, writer):
    lock = take_lock(place, Files(), writer=writer)
    try:
        yield
    finally:
        lock.release()


def test_tasks_of_this_machine_meet_here(tmp_path, bucket, monkeypatch):
    """As a loop's do that doesn't fit in memory."""
    there, put = make(tmp_path, bucket), []
    plain = ObjectPath.put
    monkeypatch.setattr(
        ObjectPath, "put", lambda self, *given, **more: put.append(str(self)) or plain(self, *given, **more)
    )
    monkeypatch.setattr(Placement, "spreads", lambda *_: True)
    for step in range(3):
        there.supply(step)
        there.run(engine="local")
    assert there.rows() == there.local.meant(3)
    assert put
    assert not any("spill" in name for name in put)


def test_what_a_reader_in_another_pipeline_holds_stays(tmp_path, bucket):
    there = make(tmp_path, bucket)
    there.supply(0)
    there.run()
    hold = Hold("reader", "elsewhere", (), ((1,),), ((1,),), manifest=1)
    with holding(there.state, Files()):
        write_hold(there.state, hold, Files())
    assert read_holds(there.state) == (hold,)
    assert not (there.state / "holds/LOCK").exists()
    assert release(there.state, "reader", Files()) == hold
    assert read_holds(there.state) == ()


EXPORTER = """\
name: exporter
state: '{bucket}/exporter/'
inputs: {{people: {{path: in/people/, time: time, diff: diff}}}}
collections: {{cities: {{from: people, apply: [{{arrange: {{by: [person], export: cities}}}}]}}}}
outputs: {{cities: '{bucket}/cities/'}}
"""
IMPORTER = """\
name: importer
state: '{bucket}/importer/'
inputs:
  sales: {{path: in/sales/, time: time, diff: diff}}
  cities: {{import: {{state: '{bucket}/exporter/', arrangement: cities}}}}
collections: {{found: {{from: sales, apply: [{{join: {{with: cities, on: [person]}}}}]}}}}
outputs: {{found: '{bucket}/found/'}}
"""


@pytest.mark.parametrize("tasks", [False, True])
def test_an_arrangement_is_imported_from_a_bucket(tmp_path, bucket, monkeypatch, tasks):
    """Its files take a few requests each: their ends, and the pages of the keys."""
    looks, errors = Counter(), ObjectPath._errors
    count = 100_000

    def looked(path):
        looks[path] += "exporter" in path.parts and path.suffix in {".parquet", ".tar"}
        return errors(path)

    monkeypatch.setattr(ObjectPath, "_errors", looked)
    for name, text in (("exporter", EXPORTER), ("importer", IMPORTER)):
        (tmp_path / f"{name}.yaml").write_text(text.format(bucket=bucket))
    meant = Counter()
    for step in range(3):
        people = [(at, at % 7 + 10 * step, step, 1) for at in range(step, count, 1 + 999 * (step > 0))]
        sales = [(at, step, 1) for at in range(0, count, 50_000)]
        for name, rows, columns in (("people", people, ["person", "city"]), ("sales", sales, ["person"])):
            write_log(tmp_path / f"in/{name}/{step}.parquet", rows, [*columns, "time", "diff"])
        with started(Calm()) if tasks else nullcontext():
            run(tmp_path / "exporter.yaml", engine="spark" if tasks else "local")
            looks.clear()
            run(tmp_path / "importer.yaml", engine="spark" if tasks else "local")
    manifest = read_newest(bucket / "exporter")
    files = [entry for each in manifest.arrangements.values() for entry in each.files]
    assert 0 < looks.total() <= 3 * len(files)
    cities = [(at, at % 7 + 10 * step) for step in range(3) for at in range(step, count, 1 + 999 * (step > 0))]
    meant = Counter((at, city) for at, city in cities for _ in range(3) if at % 50_000 == 0)
    found = Counter()
    for *row, _, diff in read_log(f"{bucket}/found/").select("person", "city", "time", "diff").rows():
        found[tuple(row)] += diff
    assert found == meant


def test_death_at_every_operation(tmp_path, bucket, monkeypatch):
    deaths(tmp_path, bucket, monkeypatch, 1)


@CLOUDS
def test_deaths_in_the_stores_of_google_and_azure(tmp_path, bucket, monkeypatch):
    deaths(tmp_path, bucket, monkeypatch, 5)


def deaths(tmp_path, bucket, monkeypatch, every):
    before = make(tmp_path, bucket / "before")
    before.supply(0)
    before.run()
    before.supply(1)
    meant, committed = before.local.meant(2), set()

    def through(shop, files):
        with monkeypatch.context() as patch:
            patch.setattr(ddcli.store.state.directory, "Files", lambda: files)
            shop.run()

    def again(to):
        """Return a run's objects made anew: in Azure a copy has another tag."""
        shop = Remote(before.local, to, before.parts)
        shop.supply(0)
        shop.run()
        shop.supply(1)
        return shop

    copy = before.copier() if every == 1 else again
    through(whole := copy(bucket / "whole"), counted := Faulty())
    whole.settle()
    names = whole.names()
    for at in some(counted.changes[:: 2 * every]):  # the server is slow, and tests/crash tries all of them with files
        shop = copy(bucket / str(at))
        with pytest.raises(Dead):
            through(shop, Faulty(at))
        committed.add(shop.number)
        shop.run()
        shop.settle()
        assert shop.number == 2, counted.log[at]
        assert shop.rows() == meant, counted.log[at]
        assert shop.names() == names, counted.log[at]
    assert every > 1 or (committed == {1, 2} and at > 12)


@pytest.mark.in_turn
@pytest.mark.parametrize("whole", [*some([pytest.param(1 << 30, id="a file"), pytest.param(1, id="a folder")])])
def test_death_of_a_run_of_tasks(tmp_path, bucket, monkeypatch, whole):
    """Who goes by the log's progress sees the commit or not; who lists a log by a glob, too, where the commit is one object."""
    monkeypatch.setattr(ddcli.runtime.scheduler, "INLINE", 0)
    monkeypatch.setattr(ddcli.sinks.outputs, "WHOLE", whole)
    before = make(tmp_path, bucket / "before")
    path = before.local.folder / "shop.yaml"
    path.write_text(path.read_text().replace("name: shop\n", "name: shop\nshards: 3\n"))
    for step in range(2):
        before.supply(step)
        before.run() if not step else None
    copy, expected = before.copier(), [before.local.meant(step) for step in (1, 2)]

    def through(shop, files):
        with monkeypatch.context() as patch, started(Calm()):
            patch.setattr(ddcli.store.state.directory, "Files", lambda: files)
            patch.setattr(ddcli.runtime.task, "Attempt", partial(Attempt, files=files))
            shop.run(engine="spark")

    def read(shop):
        logs = {name: read_log(shop.place(f"out/{name}"), consolidate=True) for name in OUTPUTS}
        return {name: Counter({row[:-1]: row[-1] for row in log.rows()}) for name, log in logs.items()}

    through(after := copy(bucket / "whole"), counted := Faulty())
    assert after.rows() == read(after) == expected[1]
    assert any("/updates-1-2/" in name for name in after.names()) == (whole == 1)
    committed = set()
    for at in some(counted.changes[::2]):
        shop = copy(bucket / str(at))
        with pytest.raises(Dead):
            through(shop, Faulty(at))
        committed.add(shop.number)
        seen = read(shop)
        for name, records in seen.items():
            assert records in [each[name] for each in expected[: shop.number]], counted.log[at]
        if whole > 1:
            assert all(records in [each[name] for each in expected] for name, records in shop.rows().items())
        shop.run()
        shop.settle()
        assert shop.rows() == read(shop) == expected[1], counted.log[at]
        assert not any(name.endswith(TEMPORARY) for name in shop.names())
        assert not list(verify_state(shop.state, read_newest(shop.state)))
    assert committed == {1, 2} or EFFORT < WHOLE


@pytest.mark.in_turn
def test_tasks_of_a_run_share_what_they_fetch_of_bundles(tmp_path, bucket, monkeypatch):
    """Lookups and merges of all arrangements read the same few bundles: each range is fetched once in a process, and again to empty a bundle; none is asked for its size."""
    shop = make(tmp_path, bucket)  # with one shard, which two passes share, so that its files are merged in the end
    asked, read_ranges, head = Counter(), ObjectPath.read_ranges, ObjectPath.head

    def fetched(path, ranges):
        if path.parent.name == "bundles":
            asked.update((path, each) for each in ranges)
        return read_ranges(path, ranges)

    def looked(path):
        assert path.parent.name != "bundles"
        return head(path)

    monkeypatch.setattr(ObjectPath, "read_ranges", fetched)
    monkeypatch.setattr(ObjectPath, "head", looked)
    for step in range(3):
        shop.supply(step)
        asked.clear()
        with started(Calm()):
            shop.run(engine="spark")
        assert max(asked.values(), default=0) <= 2
        assert bool(asked) == (step > 0)
    assert shop.rows() == shop.local.meant(3)


# --- what is refused --------------------------------------------------------------------------------------------


def test_outputs_without_their_state_ask_what_to_do(tmp_path, bucket):
    shop = make(tmp_path, bucket)
    shop.supply(0)
    shop.run()
    for path, _ in list(shop.state.below()):
        path.unlink()
    with pytest.raises(StateError, match="the state that it was written from is missing") as caught:
        shop.run()
    assert f"put the state back at '{bucket}/state'" in caught.value.hint


def test_a_damaged_object_of_the_state_is_named(tmp_path, bucket):
    shop = make(tmp_path, bucket)
    shop.supply(0)
    shop.run()
    batches = [path for path, _ in (shop.state / "arrangements").below()]
    for path in batches:
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.put(bytes(data))
    assert {error.place for error in verify_state(shop.state, read_newest(shop.state))} == set(map(str, batches))
    shop.supply(1)
    with pytest.raises(StateError, match="damaged") as caught:
        shop.run()
    assert caught.value.place in set(map(str, batches))


def test_an_output_within_an_input_is_refused(tmp_path, bucket):
    shop = make(tmp_path, bucket)
    path = shop.local.folder / "shop.yaml"
    path.write_text(path.read_text().replace("/out/known/", "/in/sales/known/").replace("/out/spent/", "/state/spent/"))
    shop.supply(0)
    with pytest.raises(SpecErrors) as caught:
        shop.run()
    assert "writes into" in str(caught.value)
    assert "directory of the state contain each other" in str(caught.value)


def test_the_state_may_be_named_on_the_command_line(tmp_path, bucket, monkeypatch):
    shop = make(tmp_path, bucket, ["in", "out"])
    shop.supply(0)
    monkeypatch.chdir(tmp_path)
    main(["run", str(shop.local.folder / "shop.yaml"), "--state", f"{bucket}/elsewhere"])
    assert read_newest(bucket / "elsewhere").number == 1
    assert not (tmp_path / "s3:").exists()


def test_the_doctor_has_executors_look_into_a_store_with_the_settings_of_this_process(tmp_path, bucket, monkeypatch):
    """Which they may lack, as those of a run do."""
    monkeypatch.setattr(doctor, "start", lambda *_: Elsewhere(tmp_path, lacking=SETTINGS))
    monkeypatch.setattr(doctor, "java_home", lambda _: None)
    monkeypatch.setattr(doctor, "ROUNDS", 1)  # each task is a process that imports all
    for paths in ({}, {"input 'orders'": bucket / "in"}):
        checks = {each.name: each for each in doctor.checks(SparkOptions(), bucket / "state", cache_dir(), paths)}
        assert all(check.ok for check in checks.values())
        assert ("paths" in checks) == bool(paths)


def test_a_store_out_of_reach_is_an_error_of_the_system(tmp_path, bucket, monkeypatch):
    monkeypatch.setattr(ddcli.store.files.buckets, "PATIENCE", timedelta(seconds=0.2))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    shop = make(tmp_path, ObjectPath.parse("s3://nowhere"))
    with pytest.raises(EngineError, match="can't be reached") as caught:
        shop.run()
    assert caught.value.exit_code == 5
    assert caught.value.place.startswith("s3://nowhere/")
    assert "AWS_ENDPOINT_URL" in caught.value.hint


@pytest.mark.parametrize("bucket", ["s3"], indirect=True)
def test_an_address_without_tls_is_named_with_the_setting_that_allows_it(tmp_path, bucket, monkeypatch):
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(ddcli.store.files.buckets, "PATIENCE", timedelta(seconds=0.2))
    with pytest.raises(EngineError) as caught:
        ObjectPath.parse("s3://without-tls/x").read_bytes()
    assert "set AWS_ALLOW_HTTP=true" in caught.value.hint


@pytest.mark.parametrize("way", ["at once", "piece by piece", "read", "remove"])
def test_a_store_that_refuses_is_named_with_what_to_check(bucket, monkeypatch, way):
    """Also where a library raises an error of the system that has no number."""
    path = bucket / "x.parquet"
    setting, credentials = ADDRESS[str(path)[:2]]
    with refusing() as address:
        monkeypatch.setenv(setting, address)

        def piece_by_piece():
            with closing(path.appender()) as file:
                file.write(b"some")

        do = {"at once": lambda: path.put(b"some"), "piece by piece": piece_by_piece}
        do |= {"read": path.read_bytes, "remove": path.unlink}
        with pytest.raises(EngineError, match=r"the object store refuses.*403 Forbidden") as caught:
            do[way]()
    assert caught.value.place == str(path)
    assert f"credentials ({credentials}" in caught.value.hint


def test_without_the_package_a_line_says_what_to_install(tmp_path, bucket, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    shop = make(tmp_path, bucket)
    with pytest.raises(UsageError, match="need the package obstore") as caught:
        shop.run()
    assert caught.value.hint == install_command("s3")


def test_other_schemes_are_refused(tmp_path, bucket):
    shop = make(tmp_path, bucket)
    path = shop.local.folder / "shop.yaml"
    path.write_text(path.read_text().replace(f"{str(bucket)[:2]}://", "ftp://"))
    with pytest.raises(UsageError, match=r"'ftp://.*' is not a path of an object store"):
        run(path)


def test_an_object_that_comes_again_costs_its_rows_alone(tmp_path, bucket):
    """The state, with its copies of objects, is in the store, too."""
    text = """\
state: {bucket}/state/
inputs: {{a: {{path: {bucket}/in/, format: append, changed: replace, columns: {{k: int64, v: int64}}}}}}
collections: {{sums: {{from: a, apply: [{{reduce: {{by: [k], s: sum(v)}}}}]}}}}
outputs: {{sums: {bucket}/out/}}
"""
    path = tmp_path / "p.yaml"
    path.write_text(text.format(bucket=bucket))
    for day in range(3):
        (bucket / f"in/{day}.csv").put(f"k,v\n{day},1\n{day},2\n".encode())
    run(path, now="2020-01-01")
    (bucket / "in/1.csv").put(b"k,v\n1,5\n")
    (bucket / "in/3.csv").put(b"k,v\n3,7\n")
    made = run(path, now="2020-01-02")
    assert (made.inputs["a"].rows, made.replaced) == (4, {"a": ["1.csv"]})
    for at, record, rows in (("2020-01-01 12:00", (1, 3), [":2", ":3"]), ("2020-01-02 12:00", (1, 5), [":2"])):
        found = explain(path, "sums", {"k": 1}, at=at)
        assert [each.record[:2] for each in found.explained] == [record]
        places = sorted(place.file for some in found.places.values() for place in some)
        assert places == [f"{bucket}/in/1.csv{row}" for row in rows]
    assert run(path, withdraw=[bucket / "in/0.csv"]).inputs["a"].rows == 2
    found = read_log(str(bucket / "out"), as_of="latest")
    assert sorted(found.select("k", "s", "diff").iter_rows()) == [(1, 5, 1), (2, 3, 1), (3, 7, 1)]
    (bucket / "in/2.csv").unlink()
    assert run(path, refresh=frozenset()).rebuilt["sums"].rows == 0
    assert run(path).inputs["a"].gone == ("2.csv",)
    (bucket / "in/2.csv").put(b"k,v\n2,4\n")
    assert run(path).replaced == {"a": ["2.csv"]}
    found = read_log(str(bucket / "out"), as_of="latest")
    assert sorted(found.select("k", "s", "diff").iter_rows()) == [(1, 5, 1), (2, 4, 1), (3, 7, 1)]
    assert not [*verify_state(bucket / "state", read_newest(bucket / "state"))]
