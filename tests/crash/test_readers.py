"""What readers of the outputs see while runs commit and die: contents that were committed, and never a part of them."""

import random
import shutil

import pytest

import ddcli.sinks.outputs
from ddcli.job.sizes import BASE
from ddcli.store.state.contents import unpublished
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.upkeep import verify_state
from tests.crash.readers import contents, look, looping
from tests.crash.shop import PIPELINE, Shop, changed
from tests.draws import EFFORT, WHOLE, many, some
from tests.store.support import Dead, Faulty

KILLS = max(5, many(6))


@pytest.fixture(autouse=True)
def parts(monkeypatch):
    """Have each shard's updates be written by themselves, however few."""
    monkeypatch.setattr(ddcli.sinks.outputs, "LARGE", 1)


def sharded(folder):
    shop = Shop.make(folder)
    (folder / "shop.yaml").write_text(PIPELINE.replace("name: shop\n", "name: shop\nshards: 3\n"))
    return shop


def before(folder, case):
    """Return a shop that has run once, and what is done to it next."""
    shop = sharded(folder)
    shop.supply(0)
    shop.run()
    if case == "apply":
        shop = changed(shop)
        (folder / "shop.yaml").write_text(
            (folder / "shop.yaml").read_text().replace("name: shop\n", "name: shop\nshards: 3\n")
        )
        return shop
    shop.supply(1)
    return Shop(folder, {"memory": BASE}) if case == "out of core" else shop


@pytest.mark.in_turn
@pytest.mark.parametrize("case", ["in memory", "out of core", "apply"])
def test_death_after_the_commit(case, tmp_path, through):
    """From the commit on: what `verify` says of it, what each reader sees, and that the next run makes it whole."""
    start = before(tmp_path / "start", case)
    old = look(start.folder)
    whole = start.copy(tmp_path / "whole")
    through(whole, files := Faulty())
    new = look(whole.folder)
    assert all(old[reader] != new[reader] for reader in old)
    commit = files.log.index(
        next(each for each in files.log if each[0] == "rename" and each[1].parent.name == "manifest")
    )
    mixed = 0
    for at in some(range(commit, len(files.log) - 1)):
        shop = start.copy(tmp_path / "shop")
        with pytest.raises(Dead):
            through(shop, Faulty(at))
        for reader, seen in look(shop.folder).items():
            for name, digest in seen.items():
                assert digest in {old[reader][name], new[reader][name]}, (at, reader, name, files.log[at])
            mixed += reader == "duckdb" and seen not in (old[reader], new[reader])
        manifest = read_newest(shop.state)
        unfinished = len(unpublished(shop.state, manifest))
        told = [error.problem for error in verify_state(shop.state, manifest)]
        assert told == ["the last commit isn't fully published"] * unfinished
        shop.run()
        assert look(shop.folder) == new
        shutil.rmtree(shop.folder)
    assert mixed or case == "apply" or EFFORT < WHOLE, "outputs become new one after the other"


def test_a_log_shows_what_its_progress_covers(tmp_path, through):
    """Death after the files and before the progress: `dd log` shows the last commit, and says that there is more."""
    start = before(tmp_path / "start", "in memory")
    old = look(start.folder)["dd log"]
    whole = start.copy(tmp_path / "whole")
    through(whole, files := Faulty())
    log = enumerate(files.log)
    renames = [at for at, (operation, path) in log if operation == "rename" and path.parent.parent.name == "out"]
    assert len(renames) == 4, "two files and their progress"
    with pytest.raises(Dead):
        through(start, Faulty(renames[2]))
    seen = look(start.folder)
    assert seen["dd log"] == old
    assert seen["duckdb"] == look(whole.folder)["duckdb"]


def test_kills_while_others_read(tmp_path, nursery):
    """Run `DD_EFFORT=30 pytest tests/crash/test_readers.py -k kills` for many."""
    draw = random.Random(KILLS)
    shop = sharded(tmp_path / "shop")
    shop.supply(0)
    usual = nursery.run(shop.folder, {"large": 1})[0]["seconds"]
    steps, killed = 1, 0
    with looping(shop.folder) as found:
        while killed < KILLS:
            shop.supply(steps)
            steps += 1
            (end,) = nursery.run(shop.folder, {"large": 1, "kill": usual * draw.uniform(0.5, 1.2)})
            assert end["code"] in {0, -9}, end
            killed += end["code"] == -9
            usual = usual * 1.1 if end["code"] else max(usual / 1.2, end["seconds"])
        assert nursery.run(shop.folder, {"large": 1})[0]["code"] == 0
    rows = shop.meant(steps)
    assert shop.rows() == rows
    committed = [contents(rows, before) for before in range(steps + 1)]
    for reader, seen in found.items():
        assert seen["looks"] > 0
        for name, digests in seen["seen"].items():
            assert set(digests) <= {each[name] for each in committed}, reader
    if KILLS >= 100:
        assert min(len(seen["seen"]["known"]) for seen in found.values()) > KILLS / 10
        print({reader: (seen["looks"], len(seen["seen"]["known"])) for reader, seen in found.items()}, killed, steps)
