"""An output that is written from the beginning, and a state that is removed, when the process dies at any file operation."""

import shutil
from itertools import count

import pytest

import ddcli.store.state.removal
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.removal import find_removal, remove
from tests.crash.shop import OUTPUTS
from tests.draws import some
from tests.store.support import LOCKS, Dead, Faulty

REWRITE = {"rewrite": frozenset({"spent"})}


@pytest.mark.in_turn
@pytest.mark.parametrize("gone", [False, True])
def test_death_at_every_operation_of_a_rewriting(every_stage, tmp_path, through, gone):
    before = every_stage["merge"].shop.copy(tmp_path / "before")
    if gone:
        min((before.folder / "out/spent").glob("*.parquet")).unlink()
    whole = before.copy(tmp_path / "whole")
    through(whole, files := Faulty(), rewritten)
    after, number = whole.settled(), before.number
    logs = [name for name in after if name.startswith("out/spent/updates-")]
    assert len(logs) == 2  # the contents so far, and what the run has found new
    committed = set()
    for at in some(files.changes):
        shop = before.copy(tmp_path / "shop")
        with pytest.raises(Dead):
            through(shop, Faulty(at), rewritten)
        committed.add(shop.number - number)
        shop.run(**(REWRITE if shop.number == number else {}))
        assert shop.settled() == after, f"dead before operation {at}: {files.log[at]}"
        shutil.rmtree(shop.folder)
    assert committed == {0, 1, 2}


def rewritten(shop):
    shop.run(**REWRITE)


def test_death_at_every_operation_of_a_removal(every_stage, tmp_path, monkeypatch):
    before = every_stage["merge"].shop
    for at in some(count()):
        shop = before.copy(tmp_path / "shop")
        files = Faulty(at)
        with monkeypatch.context() as patch:
            patch.setattr(ddcli.store.state.removal, "Files", lambda: files)  # noqa: B023 - called in here
            try:
                reset(shop)
            except Dead:
                assert (shop.folder / "in/sales/0.parquet").exists()
        if files.dead:
            reset(shop)
        assert not shop.state.exists()
        left = [path for path in (shop.folder / "out").rglob("*") if path.is_file()]
        assert not left or (files.dead and {path.name for path in left} <= LOCKS)
        shop.run()
        assert shop.number == 1
        shutil.rmtree(shop.folder)
        if not files.dead:
            break
    assert at > 10


def reset(shop):
    outputs = {name: shop.folder / "out" / name for name in OUTPUTS}

    def find():
        return find_removal(shop.state, read_newest(shop.state), outputs)

    remove(find(), find)
