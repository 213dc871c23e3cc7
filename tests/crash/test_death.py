"""A run that dies at any file operation, or at several one after the other: the next one makes all as if nothing had been."""

import random
import shutil

import pytest

from tests.crash.nursery import IDENTITY
from tests.draws import chance, some
from tests.store.support import Dead, Faulty


@pytest.mark.in_turn
def test_death_at_every_operation(stage, tmp_path, through):
    through(stage.shop.copy(tmp_path / "whole"), whole := Faulty())
    committed = set()
    for at in some(whole.changes):
        shop = stage.shop.copy(tmp_path / "shop")
        files = Faulty(at)
        with pytest.raises(Dead):
            through(shop, files)
        committed.add(shop.number - stage.step)
        shop.run()
        assert shop.settled() == stage.after, f"dead before operation {at}: {files.log[-1]}"
        shutil.rmtree(shop.folder)
    assert committed == {0, 1}
    assert at > 25


@pytest.mark.parametrize("seed", [*some(range(4))])
def test_one_death_after_the_other(stage, tmp_path, through, seed):
    draw = random.Random(seed)
    shop = stage.shop.copy(tmp_path / "shop")
    deaths = []
    while True:
        files = Faulty(draw.choice([draw.randrange(120), draw.randrange(10)]), after=draw.random() < 0.5)
        try:
            through(shop, files)
        except Dead:
            deaths.append(files.log[-1])
        else:
            break
    assert shop.settled() == stage.after, deaths


@pytest.mark.in_turn
def test_a_process_that_exits(stage, tmp_path, nursery):
    for at in chance(stage.step).sample((3, 12, 17, 20, 23), 2):
        shop = stage.shop.copy(tmp_path / str(at))
        assert nursery.run(shop.folder, {"options": shop.options, "die_at": at, "identity": IDENTITY})[0]["code"] == 9
        assert nursery.run(shop.folder, {"options": shop.options, "identity": IDENTITY})[0]["code"] == 0
        assert shop.settled() == stage.after, at
