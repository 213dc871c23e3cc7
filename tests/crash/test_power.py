"""The power goes at any moment of a run: what had been flushed is there, of the rest anything may be; the next run is right."""

import shutil

import pytest

from tests.crash.disk import Disk, Recorder
from tests.crash.shop import Shop
from tests.draws import chance, many, some

SAMPLES = max(1, many(1))


@pytest.mark.in_turn
def test_the_power_goes_at_every_moment(stage, tmp_path, through):
    recorded = stage.shop.copy(tmp_path / "recorded")
    disk, files = Disk(recorded.folder), Recorder()
    through(recorded, files)
    draw, committed, lost, tried = chance(stage.step), False, 0, set(some(range(len(files.log) + 1)))
    for at, operation in enumerate([None, *files.log]):
        if operation:
            disk.do(operation)
            committed |= operation.name == "sync directory" and operation.path == recorded.state / "manifest"
        for _ in range(SAMPLES if at in tried else 0):
            shop = Shop(tmp_path / "shop", stage.shop.options)
            shutil.copytree(stage.shop.folder / "in", shop.folder / "in")  # with their modification times
            disk.root.write(shop.folder, draw)
            restore_times(stage.shop, shop)
            number = shop.number
            assert number in {stage.step + committed, stage.step + 1}, f"after operation {at}: {operation}"
            lost += shop.files() != recorded.files()
            shop.run()
            assert shop.settled() == stage.after, f"after operation {at}: {operation}"
            shutil.rmtree(shop.folder)
    assert committed
    assert lost > SAMPLES * len(tried) / 2


def restore_times(source, target):
    """Give inputs the modification times that they had: a run looks at them."""
    for path in (source.folder / "in").rglob("*.parquet"):
        shutil.copystat(path, target.folder / path.relative_to(source.folder))
