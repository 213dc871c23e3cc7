"""Rows that are forgotten where inputs, state and outputs are in an object store."""

from ddcli.driver.forget import forget
from tests.crash.shop import RUNS, Shop
from tests.objects.shop import Remote


def test_nothing_is_left_in_any_object(tmp_path, bucket):
    there, here = Remote(Shop.make(tmp_path / "remote"), bucket), Shop.make(tmp_path / "here")
    for step in range(RUNS):
        for shop in (there, here):
            shop.supply(step)
            shop.run()
    before = {str(path) for path, _ in bucket.below()}
    found = forget(there.local.folder / "shop.yaml", "person = 1", ["sales", "people"])
    forget(here.folder / "shop.yaml", "person = 1", ["sales", "people"])
    assert found.rewritten
    assert there.rows() == here.rows()
    assert not [row for row in there.rows()["known"] if row[0] == 1]
    left = {str(path) for path, _ in bucket.below()}
    assert not [name for name in left if "dd-tmp" in name]
    assert before - left
    assert not forget(there.local.folder / "shop.yaml", "person = 1", ["sales", "people"]).rewritten
