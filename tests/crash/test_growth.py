"""Files of outputs that grow, or are summed up, when the process dies at any file operation: what each reader sees, and that the next run makes all whole."""

import shutil

import pytest

from ddcli.sinks.log_compaction import compact
from ddcli.sources.change_log import read_log
from ddcli.store.log import joint_files
from tests.crash.readers import look
from tests.crash.shop import OUTPUTS, Shop
from tests.draws import some
from tests.store.support import Dead, Faulty

FILES = {f"out/{name}/updates-start-1.parquet" for name in OUTPUTS}


@pytest.fixture
def growing(monkeypatch):
    monkeypatch.setattr(joint_files, "APART", 0)


@pytest.mark.usefixtures("growing")
def test_death_at_every_operation_while_files_grow(tmp_path, through):
    shop = Shop.make(tmp_path / "before")
    for step in range(2):
        shop.supply(step)
        shop.run()
    old = look(shop.folder)
    shop.supply(2)
    whole = shop.copy(tmp_path / "whole")
    through(whole, done := Faulty())
    new, after = look(whole.folder), whole.settled()
    assert {name for name in after if name.startswith("out/") and name.endswith(".parquet")} == FILES
    assert all(old[reader][name] != new[reader][name] for reader in old for name in OUTPUTS)
    committed = set()
    for at in some(done.changes):
        each = shop.copy(tmp_path / "shop")
        files = Faulty(at)
        with pytest.raises(Dead):
            through(each, files)
        committed.add(each.number - 2)
        for reader, seen in look(each.folder).items():
            for name, digest in seen.items():
                assert digest in {old[reader][name], new[reader][name]}, (at, reader, name, files.log[-1])
        each.run()
        assert each.settled() == after, f"dead before operation {at}: {files.log[-1]}"
        shutil.rmtree(each.folder)
    assert committed == {0, 1}


def test_death_at_every_operation_of_a_summing_up(tmp_path, through):
    """`dd log` shows the same contents all the while, whichever files are there."""
    shop = Shop.make(tmp_path / "before")
    for step in range(3):
        shop.supply(step)
        shop.run()
    meant = {name: held(shop, name) for name in OUTPUTS}
    whole = shop.copy(tmp_path / "whole")
    files = Faulty()
    through(whole, files, sum_up)
    after = whole.settled()
    logs = [name for name in after if name.startswith("out/") and name.endswith(".parquet")]
    assert [name.split("-", 1)[1] for name in logs] == ["start-3-summed4.parquet"] * 2
    committed, together = set(), 0
    for at in some(files.changes):
        each = shop.copy(tmp_path / "shop")
        files = Faulty(at)
        with pytest.raises(Dead):
            through(each, files, sum_up)
        committed.add(each.number - 3)
        assert {name: held(each, name) for name in OUTPUTS} == meant, (at, files.log[-1])
        together += any(len([*(each.folder / "out" / name).glob("*.parquet")]) > 3 for name in OUTPUTS)
        if each.number == 3:
            sum_up(each)
        assert each.settled() == after, f"dead before operation {at}: {files.log[-1]}"
        shutil.rmtree(each.folder)
    assert committed == {0, 1}
    assert together, "the file that stands for others appears before these go"


def sum_up(shop):
    done = compact(str(shop.folder / "shop.yaml"), shop.folder)
    assert {each.output: each.horizon for each in done} == dict.fromkeys(OUTPUTS, "2")


def held(shop, name):
    return read_log(shop.folder / "out" / name, as_of="latest").rows()
