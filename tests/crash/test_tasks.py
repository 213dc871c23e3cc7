"""A commit whose outputs tasks have written, in one file or in a folder of them: whoever dies when, readers see what was committed."""

import shutil
from collections import Counter
from functools import partial

import polars as pl
import pytest

import ddcli.runtime.scheduler
import ddcli.runtime.task
import ddcli.sinks.outputs
from ddcli.store.scratch.attempt import Attempt
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import verify_state
from tests.crash.readers import look
from tests.crash.shop import PIPELINE, Shop
from tests.draws import chance, some
from tests.harness import Folder, contents
from tests.spark.support import Calm, assert_all_named, started
from tests.store.support import Dead, Faulty


@pytest.fixture(params=["a file", "a folder"])
def start(request, tmp_path, monkeypatch):
    """Return a shop that has run once, before a run of tasks, each of which writes what it has of an output to a file."""
    monkeypatch.setattr(ddcli.runtime.scheduler, "INLINE", 0)
    monkeypatch.setattr(ddcli.sinks.outputs, "WHOLE", 1 if request.param == "a folder" else 1 << 30)
    shop = Shop.make(tmp_path / "start")
    (shop.folder / "shop.yaml").write_text(PIPELINE.replace("name: shop\n", "name: shop\nshards: 4\n"))
    shop.supply(0)
    shop.run()
    shop.supply(1)
    return Shop(shop.folder, {"engine": "spark"})


@pytest.fixture
def by_tasks(monkeypatch, through):
    """Return a function that has a shop run by tasks, all of whose file operations are the given ones."""

    def run(shop, files):
        with monkeypatch.context() as patch, started(Calm()):
            patch.setattr(ddcli.runtime.task, "Attempt", partial(Attempt, files=files))
            return through(shop, files)

    return run


@pytest.mark.in_turn
def test_death_at_every_operation(start, tmp_path, by_tasks):
    old, whole = look(start.folder), start.copy(tmp_path / "whole")
    by_tasks(whole, files := Faulty())
    new = look(whole.folder)
    assert all(old[reader] != new[reader] for reader in old)
    assert whole.rows() == whole.meant(2)
    folders = [path for path in (whole.folder / "out").glob("*/updates-*") if path.is_dir()]
    assert bool(folders) == (ddcli.sinks.outputs.WHOLE == 1)
    commit = files.log.index(
        next(each for each in files.log if each[0] == "rename" and each[1].parent.name == "manifest")
    )
    for at in some(files.changes):
        shop = start.copy(tmp_path / "shop")
        with pytest.raises(Dead):
            by_tasks(shop, Faulty(at, after=chance(at).random() < 0.5))
        for reader, seen in look(shop.folder).items():
            for name, digest in seen.items():
                expected = {old[reader][name]} if at < commit else {old[reader][name], new[reader][name]}
                assert digest in expected, (at, reader, name, files.log[at])
        if at % 2:
            Shop(shop.folder).run()
        else:
            by_tasks(shop, Faulty())
        assert look(shop.folder) == new
        assert not list(verify_state(shop.state, read_newest(shop.state)))
        shop.settled()
        assert_all_named(shop.state)
        assert not list((shop.folder / "out").rglob("*.dd-tmp"))
        shutil.rmtree(shop.folder)
    assert at > commit


READER = """\
dd: 1
name: reader
inputs: {known: out/known/}
collections:
  sales: {from: known, apply: [{reduce: {by: [city], sales: count(*)}}]}
outputs: {sales: out/sales/}
"""


def test_large_commits_are_read_summed_up_and_removed(start, by_tasks, monkeypatch, capfd):
    """Small commits follow, another pipeline and a consumer read the log, its old updates are summed up, and all of it goes in the end."""
    by_tasks(start, Faulty())
    (start.folder / "reader.yaml").write_text(READER)
    monkeypatch.chdir(start.folder)
    folder, known = Folder(start.folder, capfd), start.folder / "out/known"

    def read():
        """Have the reader and the consumer take in the new updates, and compare what they have with the log."""
        now = contents(known)
        assert folder("run", "reader.yaml").code == 0
        assert folder("feed", "out/known", "--consumer", "mail", "--into", "out/mail").code == 0
        sales = Counter()
        for (_, _, city), count in now.items():
            sales[city] += count
        assert contents(start.folder / "out/sales") == dict.fromkeys(sales.items(), 1)
        mail = pl.read_parquet(start.folder / "out/mail/*.parquet").drop("_position")
        summed = mail.group_by(pl.exclude("diff")).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
        assert {tuple(row[:-1]): row[-1] for row in summed.rows()} == now

    read()
    for step in (2, 3):
        start.supply(step)
        Shop(start.folder).run()
        read()
    assert start.rows() == start.meant(4)
    was = contents(known)
    assert folder("log", "compact", "out/known", "--before", "2").code == 0
    assert not [path for path in known.iterdir() if path.is_dir()]
    assert contents(known) == was
    start.supply(4)
    Shop(start.folder).run()
    read()
    assert not list(verify_state(start.state, read_newest(start.state)))
    start.supply(5)
    by_tasks(start, Faulty())
    assert folder("reset", "shop.yaml", "--outputs", "--yes").code == 0
    assert not (start.folder / "out/spent").exists()
