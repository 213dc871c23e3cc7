"""Rows that are forgotten, when the process dies at any file operation, also twice in a row."""

import shutil
from itertools import count

from ddcli.driver.forget import forget
from tests.draws import some
from tests.harness import read_log
from tests.store.support import Dead, Faulty

STEP = 3
"""Every so many operations the process dies: one by one takes half a minute."""


def without(shop):
    return forget(shop.folder / "shop.yaml", "person = 1", ["sales", "people"])


def test_death_at_every_operation(every_stage, tmp_path, through):
    before = every_stage["merge"].shop.copy(tmp_path / "before")
    whole = before.copy(tmp_path / "whole")
    assert without(whole).rewritten
    after = whole.settled()
    assert 1 not in read_log(whole.folder / "out/known")["person"].to_list()
    outcomes = set()
    for at in some(count(step=STEP)):
        shop = before.copy(tmp_path / "shop")
        files = Faulty(at)
        try:
            through(shop, files, without)
        except Dead:
            outcomes.add(shop.number - before.number)
            if shop.number == before.number:
                try:
                    through(shop, Faulty(at // 2), without)
                except Dead:
                    if shop.number == before.number:
                        without(shop)
        assert shop.settled() == after, f"dead before operation {at}: {files.log[-1]}"
        shutil.rmtree(shop.folder)
        if not files.dead:
            break
    assert outcomes == {0, 1}
