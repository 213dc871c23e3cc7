"""Outputs that are tables: after each run what the input's log holds, through deaths, races and others' writes; each commit once."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from ddcli.errors import EngineError, StateError
from tests.draws import chance, many, some
from tests.store.support import Dead, Faulty
from tests.tables.followers import KINDS, Follower, small_files

FORMS = [*((kind, "table") for kind in KINDS), ("delta", "log")]


@pytest.fixture(autouse=True)
def few_rows_a_file():
    with small_files():
        yield


@pytest.fixture(params=FORMS, ids="-".join)
def follower(request, tmp_path):
    """Return a pipeline that has not run yet."""
    return Follower(tmp_path / "shop", *request.param)


def test_random_histories(follower, tmp_path):
    for seed in range(many(6)):
        draw, each = chance("followers", seed), follower.copy(tmp_path / str(seed))
        for _ in range(8):
            for _ in range(draw.choice([1, 1, 2])):
                each.supply(draw)
            each.run()
            each.check()
            assert not each.run().changed
        if each.kind == "delta":
            assert len(each.commits()) == len({*each.commits()}) <= 8
            assert not each.leavings()


def test_death_at_every_operation(follower, tmp_path):
    draw = chance("deaths")
    follower.supply(draw)
    follower.run()
    follower.supply(draw)
    for after in (False, True):
        for at in some(count()):
            each, files = follower.copy(tmp_path / "dead"), Faulty(at, after=after)
            with suppress(Dead):
                each.run(files)
            each.run()
            each.check()
            assert not each.leavings(), files.log[-1]
            if each.kind == "delta":
                assert len(each.commits()) == 2
            shutil.rmtree(each.folder)
            if not files.dead:
                break
        assert at > 25


def test_one_death_after_the_other(follower):
    """Runs die while new rows come: what a dead one left is taken in with them, once."""
    for seed in range(many(3)):
        draw = chance("deaths", seed)
        for _ in range(4):
            follower.supply(draw)
            for _ in range(draw.randrange(3)):
                with suppress(Dead):
                    follower.run(Faulty(draw.randrange(60), after=draw.random() < 0.5))
        follower.run()
        follower.check()
    if follower.kind == "delta":
        assert len(follower.commits()) == len({*follower.commits()})


def test_racing_runs(follower):
    draw = chance("races")
    for _ in range(3):
        follower.supply(draw)
        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(follower.run, if_locked="wait") for _ in range(2)]:
                done.result()
        follower.check()
    if follower.kind == "delta":
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
    shutil.rmtree(follower.path.parent)
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


def test_rows_of_others_are_refused(tmp_path):
    for kind in KINDS:
        each = Follower(tmp_path / kind, kind)
        each.path.parent.mkdir()
        rows = pl.DataFrame({"city": ["x"], "amount": [1]})
        write_deltalake(str(each.path), rows) if kind == "delta" else rows.write_parquet(each.path)
        before = each.read()
        each.supply(chance("others"))
        with pytest.raises(StateError, match="that this pipeline has not written"):
            each.run()
        with pytest.raises(StateError, match="that this pipeline has not written"):
            each.run()
        assert each.read() == before
        shutil.rmtree(each.path.parent)
        each.run()
        each.check()


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
    log = follower.folder / "in/901.parquet"
    pl.DataFrame([("z", 1, 901, 3)], ["city", "amount", "time", "diff"], orient="row").write_parquet(log)
    follower.run()
    follower.check()
