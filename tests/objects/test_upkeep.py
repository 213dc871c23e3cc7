"""What `dd state` does to a state in a directory it does to one in an object store."""

import json
from contextlib import nullcontext

import pytest

from ddcli.cli.main import main
from ddcli.commands.branch import begin, merge
from ddcli.driver.run import run
from ddcli.spec.file import branch_file
from ddcli.store.state.manifest import read_newest
from tests.crash.shop import Shop
from tests.objects.test_runs import make


def asked(capfd, *arguments, code=0):
    """Return what a `dd state` command says as JSON."""
    capfd.readouterr()
    with pytest.raises(SystemExit) if code else nullcontext():
        main(["state", *map(str, arguments), "-o", "json"])
    return json.loads(capfd.readouterr().out)


def test_a_state_in_an_object_store_is_seen_checked_and_compacted(tmp_path, bucket, capfd):
    shop = make(tmp_path, bucket)
    for step in range(3):
        shop.supply(step)
        shop.run()
    before = asked(capfd, "ls", "--state", shop.state)
    assert before["state"] == str(shop.state)
    good = asked(capfd, "verify", shop.local.folder / "shop.yaml")
    assert not good["bad"]
    sizes = asked(capfd, "compact", "--state", shop.state)
    assert sizes["before"]["rows"] == before["rows"]
    assert all(one["batches"] <= one["shards"] for one in asked(capfd, "ls", "--state", shop.state)["arrangements"])
    asked(capfd, "reshard", "--state", shop.state, "--shards", 2)
    assert {one["shards"] for one in asked(capfd, "ls", "--state", shop.state)["arrangements"]} == {2}
    assert not asked(capfd, "verify", "--state", shop.state)["bad"]
    assert asked(capfd, "unlock", "--state", shop.state) == {"locked": False, "holder": None, "forced": False}
    name, entry = next(iter(read_newest(shop.state).arrangements.items()))
    shard, (first, *_) = next((shard, each) for shard, each in enumerate(entry.shards) if each)
    leaving = shop.state / "arrangements" / name / str(shard) / "000000077-0000.parquet"
    leaving.put(b"x")
    assert asked(capfd, "gc", "--state", shop.state)["bytes"] == 1
    batch = leaving.with_name(first.name)
    batch.put(b"x" * first.size)
    assert [one["file"] for one in asked(capfd, "verify", "--state", shop.state, code=4)["bad"]] == [str(batch)]


def test_a_state_is_copied_out_of_an_object_store_and_into_one(tmp_path, bucket, capfd):
    shop, here = make(tmp_path, bucket), Shop.make(tmp_path / "here")
    shop.supply(0)
    shop.run()
    for source, copy in ((shop.state, tmp_path / "copy"), (tmp_path / "copy", bucket / "backups/shop")):
        found = asked(capfd, "export", "--state", source, copy)
        assert found["copy"] == str(copy)
        pipeline = shop.local.folder / "shop.yaml"  # a copy remembers none
        seen = asked(capfd, "ls", pipeline, "--state", copy)
        assert seen == asked(capfd, "ls", pipeline) | {"state": str(copy)}
        assert not asked(capfd, "verify", "--state", copy)["bad"]
    with pytest.raises(SystemExit, match="2"):
        main(["state", "export", "--state", str(shop.state), str(bucket / "backups")])
    shop.supply(1)
    shop.run(state=bucket / "backups/shop")
    assert asked(capfd, "verify", "--state", bucket / "backups/shop")["manifest"] == 2
    here.supply(0)
    here.supply(1)
    assert shop.rows() == here.meant(2)


def test_a_branch_of_a_state_in_an_object_store(tmp_path, bucket, capfd):
    """It copies no batch, goes on by itself while main compacts, and a merge of what it has read is a run of main."""
    shop = make(tmp_path, bucket)
    shop.supply(0)
    shop.run()
    pipeline = shop.local.folder / "shop.yaml"
    begin("q4", pipeline)
    batches = [path for path, _ in (shop.state / "branches").below() if "arrangements" in path.parts]
    assert batches == []
    shop.supply(1)
    run(branch_file(pipeline, "q4"))
    asked(capfd, "compact", "--state", shop.state)
    shop.run()
    expected = shop.rows()
    main(["diff", f"{bucket}/out/spent", f"{bucket}/out/spent@q4"])  # they are the same: it returns
    assert not asked(capfd, "verify", branch_file(pipeline, "q4"))["bad"]
    assert merge("q4", pipeline)[1] == []
    assert shop.rows() == expected
    assert [*(shop.state / "branches").below()] == []
