"""Outputs that are tables: after each run what the input's log holds, through deaths, races and others' writes; each commit once."""

import shutil
from collections import Counter
from contextlib import suppress
from errno import ENOSPC
from itertools import count

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import ddcli.store.targets.delta
from ddcli.errors import EngineError, LockedError, StateError
from ddcli.job.summary import read_runs
from ddcli.provenance.verification import verify
from ddcli.runtime import table_load
from ddcli.runtime.chain import TASK
from ddcli.runtime.table_load import LoadTask, TableLoader
from ddcli.store.log import joint_files
from ddcli.store.state.manifest import read_newest
from ddcli.store.targets.delta import DeltaTarget
from ddcli.store.targets.ducklake import DuckLakeTarget
from ddcli.store.targets.iceberg import IcebergTarget
from tests.draws import chance, many, some
from tests.harness import write_log
from tests.spark.support import Calm, Here, started
from tests.store.support import Dead, Faulty
from tests.tables.followers import COLUMNS, KINDS, Follower, race, small_files

FORMS = [
    ("delta", "table"),
    ("iceberg", "table"),
    ("parquet", "table"),
    ("iceberg", "log"),
    ("delta", "log"),
    ("ducklake", "log"),
    ("ducklake", "table"),
]
"""In an order in which each third has both tables and logs, and packages of both kinds."""

TARGETS = {"delta": DeltaTarget, "iceberg": IcebergTarget, "ducklake": DuckLakeTarget}


@pytest.fixture(autouse=True)
def few_rows_a_file():
    with small_files():
        yield


@pytest.fixture(params=[*some(FORMS)], ids="-".join)
def follower(request, tmp_path):
    """Return a pipeline that has not run yet."""
    return Follower(tmp_path / "shop", *request.param)


def test_random_histories(follower, monkeypatch):
    """Of a log with a file a commit, and of one whose file grows, one after the other."""
    for seed in range(many(1)):
        draw, each = chance("followers", seed), Follower(follower.folder, follower.kind, follower.form)
        for step in range(6):
            monkeypatch.setattr(joint_files, "APART", [0, 64][(seed + step // 3) % 2])
            for _ in range(draw.choice([1, 1, 2])):
                each.supply(draw)
            options = {"engine": draw.choice(["local", "spark"])} if each.kind != "parquet" else {}
            with started(Here(seed)), monkeypatch.context() as patch:
                patch.setattr(table_load, "HEAVY", draw.choice([1, 1 << 40]))
                patch.setattr(table_load, "DRAWN", 4)
                each.run(**options)
            each.check()
            assert not each.run().changed
        if each.kind != "parquet":
            assert len(each.commits()) == len({*each.commits()}) <= 6
        assert not each.leavings()
        shutil.rmtree(each.folder)


@pytest.mark.parametrize("form", ["table", "log"])
def test_tasks_that_write_a_table_fail(tmp_path, monkeypatch, form):
    """Their error is that of the run, and the next run completes the table."""
    each, cluster = Follower(tmp_path / "shop", "delta", form), Here(1)
    monkeypatch.setattr(table_load, "HEAVY", 1)
    each.supply(chance("failing tasks"))
    write = ddcli.store.targets.delta._write
    with started(cluster), monkeypatch.context() as patch:
        patch.setattr(ddcli.store.targets.delta, "_write", full)
        with pytest.raises(EngineError, match="no room is left"):
            each.run(engine="spark")
    assert not DeltaTable.is_deltatable(str(each.path)) or not each.read()
    with started(cluster), monkeypatch.context() as patch:
        patch.setattr(ddcli.store.targets.delta, "_write", write)
        done = cluster.done
        each.run(engine="spark")
    assert cluster.done > done, "tasks have written the table"
    each.check()
    if form == "table":
        write_log(each.folder / "in/999.parquet", [("a", -7, 999, -1)], COLUMNS)
        each.step = 1000
        with started(cluster), pytest.raises(EngineError, match="negative multiplicity"):
            each.run(engine="spark")


@pytest.mark.parametrize(
    ("form", "edge", "times"),
    [("table", 0, 0), ("table", 0, 2), ("table", TASK, 0), ("log", TASK, 0), ("log", TASK, 2)],
)
def test_rows_that_spark_loses_or_doubles_on_the_way_to_a_table_are_missed(tmp_path, monkeypatch, form, edge, times):
    """Chunks of updates, and files to read. The table stays as it was, and the next run completes it."""

    class Losing(Calm):
        def stepped(self, step, part):
            if not isinstance(step, LoadTask):
                return super().stepped(step, part)
            some = [row for row in part if row.edge == edge][:1]
            return super().stepped(
                step, sorted([row for row in part if row not in some] + some * times, key=lambda row: row[:3])
            )

    each = Follower(tmp_path / "shop", "delta", form)
    monkeypatch.setattr(table_load, "HEAVY", 1)
    each.supply(chance("lost rows"))
    with started(Losing()), pytest.raises(EngineError, match="Spark has lost rows"):
        each.run(engine="spark")
    assert not DeltaTable.is_deltatable(str(each.path)) or not each.read()
    with started(Calm()):
        each.run(engine="spark")
    each.check()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("when", ["while they write", "before the commit", "after the commit"])
def test_files_of_tasks_whose_driver_was_killed_are_removed(tmp_path, monkeypatch, kind, when):
    """By the next run, of either engine, though the driver didn't know the names of all: a task may have been done twice, and none been announced."""
    each = Follower(tmp_path / "shop", kind, "table")
    monkeypatch.setattr(table_load, "HEAVY", 1)
    target = TARGETS[kind]
    step = {"while they write": "load", "before the commit": "commit", "after the commit": "commit"}[when]
    of = TableLoader if step == "load" else target
    meant = getattr(of, step)

    def dying(*arguments):
        if step == "load" or when == "after the commit":
            meant(*arguments)
        raise Dead

    for engine in ("spark", "local"):
        each.supply(chance("killed drivers", engine))
        with started(Here(3)), monkeypatch.context() as patch, suppress(Dead):
            patch.setattr(of, step, dying)
            each.run(engine="spark")
        assert each.leavings() or when == "after the commit"
        with started(Here(4)):
            each.run(engine=engine)
        each.check()
        assert not each.leavings()


def full(directory, files, footer, name, rows):
    """Fail as a write does on a full disk."""
    raise EngineError("no room is left", place=str(directory / name))


def test_death_at_any_operation(follower):
    draw, saved = second_run(follower, "deaths")
    files = Faulty()
    follower.run(files)
    for at in draw.sample(files.changes, min(many(4), len(files.changes))):
        follower.restore(saved)
        files = Faulty(at, after=draw.random() < 0.5)
        with suppress(Dead):
            follower.run(files)
        check_the_next_run(follower)


def check_the_record(follower):
    """Look whether the newest record of runs, which `dd explain` shows, is that of the newest commit."""
    state = follower.folder / ".dd/shop"
    assert read_runs(state)[-1].number == read_newest(state).number


def test_a_full_disk_of_a_table(follower):
    """The message says what is committed, and the next run makes up for it."""
    draw, saved = second_run(follower, "full")
    files = Faulty()
    follower.run(files)
    written = [at for at, (operation, path) in enumerate(files.log) if operation == "write" and "lake" in path.parts]
    assert written or follower.kind == "iceberg"
    for at in draw.sample(written, min(1, len(written))):
        follower.restore(saved)
        with pytest.raises(EngineError, match="No space left") as failed:
            follower.run(Faulty(at, OSError(ENOSPC, "No space left on device")))
        assert failed.value.hint.startswith("the run is committed, and the table stays as it was")
        check_the_record(follower)
        check_the_next_run(follower)


@pytest.mark.parametrize("step", ["make", "writer", "adopt", "commit"])
@pytest.mark.parametrize("after", [False, True])
def test_death_around_what_the_package_does(follower, monkeypatch, step, after):
    """Its own operations don't pass through ours."""
    if follower.kind == "parquet":
        return
    kind = TARGETS[follower.kind]
    meant = getattr(kind, step)

    def dying(*arguments):
        if after:
            meant(*arguments)
        raise Dead

    for first in (True, False):
        follower.supply(chance("deaths", first))
        with monkeypatch.context() as patch:
            patch.setattr(kind, step, dying)
            if first or step != "make":
                with pytest.raises(Dead):
                    follower.run()
        check_the_next_run(follower, 1 if first else 2)


def second_run(follower, *what):
    """Return random numbers and the folder as it is before its second run."""
    draw = chance(*what)
    follower.supply(draw)
    follower.run()
    follower.supply(draw)
    return draw, follower.save()


def check_the_next_run(follower, commits=2):
    """Look at a table after a run that may have died, and the next one."""
    follower.run()
    follower.check()
    assert not follower.leavings()
    if follower.kind != "parquet":
        assert len(follower.commits()) == commits


def test_one_death_after_the_other(follower):
    """Runs die while new rows come: what a dead one left is taken in with them, once."""
    for seed in range(many(1)):
        draw = chance("deaths", seed)
        for _ in range(4):
            follower.supply(draw)
            for _ in range(draw.randrange(3)):
                with suppress(Dead):
                    follower.run(Faulty(draw.randrange(60), after=draw.random() < 0.5))
        follower.run()
        follower.check()
    if follower.kind != "parquet":
        assert len(follower.commits()) == len({*follower.commits()})


def test_racing_runs(follower):
    race(follower)
    if follower.kind != "parquet":
        assert len(follower.commits()) == 3


def test_a_copy_of_the_state(follower, tmp_path):
    """A copy that was left behind brings the table to what it knows: a number that the other has used is not taken for its own."""
    draw = chance("copies")
    follower.supply(draw)
    follower.run()
    shutil.copytree(follower.folder / ".dd", tmp_path / "behind")
    follower.supply(draw)
    with suppress(Dead):
        for at in count():  # the announced commit is made, and not known to be
            files = Faulty(at)
            follower.run(files)
            assert files.dead
    follower.run()
    shutil.rmtree(follower.folder / ".dd")
    shutil.move(tmp_path / "behind", follower.folder / ".dd")
    follower.supply(draw)
    follower.run()
    follower.check()


def test_a_table_that_was_removed_is_written_anew(follower):
    draw = chance("removed")
    follower.supply(draw)
    follower.run()
    follower.remove()
    follower.supply(draw)
    follower.run()
    follower.check()
    follower.supply(draw)
    follower.run()
    follower.check()


@pytest.mark.parametrize("option", [{"refresh": frozenset()}, {"rewrite": frozenset({"t"})}])
def test_a_log_that_is_written_anew(follower, option):
    draw = chance("anew")
    for _ in range(2):
        follower.supply(draw)
        follower.run()
    follower.run(**option)
    if follower.form == "table":
        follower.check()
    follower.supply(draw)
    follower.run()
    if follower.form == "table":
        follower.check()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_others_are_refused(tmp_path, kind):
    each = Follower(tmp_path / kind, kind)
    each.path.parent.mkdir(parents=True, exist_ok=True)
    rows = pl.DataFrame({"city": ["x"], "amount": [1]})
    if kind == "iceberg":
        catalog = load_catalog("default", **each.properties)
        catalog.create_namespace("shop")
        catalog.create_table("shop.t", rows.to_arrow().schema).append(rows.to_arrow())
    elif kind == "delta":
        write_deltalake(str(each.path), rows)
    elif kind == "ducklake":  # another state
        each.supply(chance("others before"))
        each.run()
        shutil.rmtree(each.folder / ".dd")
    else:
        rows.write_parquet(each.path)
    before = each.read()
    each.supply(chance("others"))
    for _ in range(2):
        with pytest.raises(StateError, match="that this pipeline has not written"):
            each.run()
    assert each.read() == before
    each.remove()
    each.run()
    each.check()


def test_changes_of_others_to_iceberg_are_refused(tmp_path):
    each, draw = Follower(tmp_path, "iceberg"), chance("others")
    each.supply(draw)
    each.run()
    each.iceberg.append(pl.DataFrame({"city": ["x"], "amount": [1]}).to_arrow())
    each.supply(draw)
    for _ in range(2):
        with pytest.raises(StateError, match="another program has changed the table: it has, beside the output's rows"):
            each.run()


def test_a_lost_race_for_iceberg_is_no_commit(tmp_path, monkeypatch):
    """Another one commits between a run's look at the table and its own commit, which pyiceberg may not make again."""
    each, draw = Follower(tmp_path, "iceberg", "log"), chance("others")
    each.supply(draw)
    each.run()
    each.supply(draw)
    adopt = IcebergTarget.adopt

    def later(target, name, facts):
        adopt(target, name, facts)
        rows = pl.DataFrame([("x", 1, 0, 1)], COLUMNS, orient="row").to_arrow()
        each.iceberg.append(rows.cast(each.iceberg.schema().as_arrow()))

    with monkeypatch.context() as patch:
        patch.setattr(IcebergTarget, "adopt", later)
        with pytest.raises(LockedError, match="another program has committed to the table first"):
            each.run()
    assert len(each.commits()) == 1
    each.run()
    assert each.read() == each.meant() + Counter({("x", 1, 0, 1): 1})
    assert len(each.commits()) == 2


def test_changes_of_others_are_refused(tmp_path):
    each, draw = Follower(tmp_path, "delta"), chance("others")
    each.supply(draw)
    each.run()
    write_deltalake(str(each.path), pl.DataFrame({"city": ["x"], "amount": [1]}), mode="append")
    with pytest.raises(StateError, match="another program has changed the table: it has, beside the output's rows"):
        each.run()
    each.supply(draw)
    with pytest.raises(StateError, match="another program has changed the table"):
        each.run()
    table = DeltaTable(str(each.path))
    table.restore(table.version() - 1)
    each.run()
    each.check()
    DeltaTable(str(each.path)).delete("amount >= 0")
    with pytest.raises(StateError, match="it lacks the file"):
        each.run()


def test_what_changes_no_rows_is_no_change(tmp_path):
    each, draw = Follower(tmp_path, "delta"), chance("upkeep")
    for _ in range(3):
        each.supply(draw)
        each.run()
        table = DeltaTable(str(each.path))
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        each.run()
        each.check()


def test_many_commits_have_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr("ddcli.store.targets.delta.CHECKPOINTS", 2)
    monkeypatch.setattr("ddcli.store.targets.delta.SWEEPS", 4)
    each, draw = Follower(tmp_path, "delta"), chance("checkpoints")
    for _ in range(many(9)):
        each.supply(draw)
        each.run()
        each.check()
    assert [*each.path.glob("_delta_log/*.checkpoint.parquet")]


def test_a_negative_multiplicity_is_reported_until_it_is_gone(follower):
    draw = chance("negative")
    follower.supply(draw)
    follower.run()
    before = follower.read()
    log = follower.folder / "in/900.parquet"
    pl.DataFrame([("z", 1, 900, -2)], ["city", "amount", "time", "diff"], orient="row").write_parquet(log)
    if follower.form == "log":
        follower.run()
        follower.check()
        return
    for _ in range(2):
        with pytest.raises(
            EngineError, match="a negative multiplicity, and a table can't hold it: city = z, amount = 1"
        ):
            follower.run()
        assert follower.read() == before
        check_the_record(follower)
    log = follower.folder / "in/901.parquet"
    pl.DataFrame([("z", 1, 901, 3)], ["city", "amount", "time", "diff"], orient="row").write_parquet(log)
    follower.run()
    follower.check()


def test_verification_finds_what_others_have_changed(follower):
    """A row more, and a value that is another in a file of the table."""
    draw = chance("verified")
    for _ in range(3):
        follower.supply(draw)
        follower.run()
    path = follower.folder / "shop.yaml"
    found = verify(path, (0, 1))
    assert found.same
    assert [*found.tables] == (["t"] if follower.form == "table" else [])
    if follower.form == "log":
        return
    files = [*follower.path.rglob("*.parquet")] if follower.path.is_dir() else [follower.path]
    for file in files:
        frame = pl.read_parquet(file)
        frame.with_columns(city=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("z")).otherwise("city")).write_parquet(
            file
        )
    table = verify(path, (0, 1)).tables["t"]
    assert ("z", -1) in [(record["city"], diff) for record, diff in table.first(100)]
    follower.remove()
    missing = verify(path, (0, 1)).tables["t"]
    assert missing.fault or missing.differing["\0count"].sum() == follower.meant().total()
    assert not missing.same
