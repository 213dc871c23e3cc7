"""Files of outputs that grow, when the process dies at any file operation: what each reader sees, and that the next run makes all whole."""

import shutil
from itertools import count

import pytest

from ddcli.store.log import lineage
from tests.crash.readers import look
from tests.crash.shop import OUTPUTS, Shop
from tests.draws import some
from tests.store.support import Dead, Faulty

FILES = {f"out/{name}/updates-start-1.parquet" for name in OUTPUTS}


@pytest.fixture(autouse=True)
def growing(monkeypatch):
    monkeypatch.setattr(lineage, "APART", 0)


def test_death_at_every_operation_while_files_grow(tmp_path, through):
    shop = Shop.make(tmp_path / "before")
    for step in range(2):
        shop.supply(step)
        shop.run()
    old = look(shop.folder)
    shop.supply(2)
    whole = shop.copy(tmp_path / "whole")
    whole.run()
    new, after = look(whole.folder), whole.settled()
    assert {name for name in after if name.startswith("out/") and name.endswith(".parquet")} == FILES
    assert all(old[reader][name] != new[reader][name] for reader in old for name in OUTPUTS)
    committed = set()
    for at in some(count()):
        each = shop.copy(tmp_path / "shop")
        files = Faulty(at)
        try:
            through(each, files)
        except Dead:
            committed.add(each.number - 2)
            for reader, seen in look(each.folder).items():
                for name, digest in seen.items():
                    assert digest in {old[reader][name], new[reader][name]}, (at, reader, name, files.log[-1])
            each.run()
        assert each.settled() == after, f"dead before operation {at}: {files.log[-1]}"
        shutil.rmtree(each.folder)
        if not files.dead:
            break
    assert committed == {0, 1}
