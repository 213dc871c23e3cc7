"""Whose a state is: the pipeline file that made it, moved or not; how another gets it, and how it is removed."""

import json
import shutil
from dataclasses import replace

import polars as pl
import pytest

from ddcli.store.state.manifest import manifest_path, read_newest
from tests.harness import ORDER_COLUMNS, ORDERS, contents, files

TOTALS = {("north", 1, 5): 1, ("south", 1, 7): 1}


@pytest.fixture
def ran(orders):
    """Return a shop whose pipeline has run."""
    assert orders("run", "orders.yaml").code == 0
    return orders


@pytest.mark.parametrize(
    "command",
    [["run"], ["run", "--dry-run"], ["plan"], ["explain"], ["query", "totals", "region=north"], ["reset", "-y"]],
)
def test_a_copy_of_a_pipeline_file_does_not_get_its_state(ran, command):
    shutil.copy(ran.folder / "orders.yaml", ran.folder / "copy.yaml")
    before = files(*ran.kept)
    result = ran(command[0], "copy.yaml", *command[1:])
    assert result.code == 4
    assert "copy.yaml: error: the state of 'orders' belongs to another pipeline file, orders.yaml\n" in result.err
    assert "`dd state adopt`" in result.err
    assert files(*ran.kept) == before
    assert ran("run", "orders.yaml").code == 0


def test_a_file_that_was_moved_keeps_its_state(ran):
    (ran.folder / "orders.yaml").rename(ran.folder / "moved.yaml")
    ran.log("orders/2.parquet", [("east", 1, 4, 1)], **ORDER_COLUMNS)
    assert ran("run", "moved.yaml").code == 0
    assert contents(ran.folder / "out/totals") == TOTALS | {("east", 1, 1): 1}
    shutil.copy(ran.folder / "moved.yaml", ran.folder / "orders.yaml")
    assert ran("run", "orders.yaml").code == 4


def test_links_and_moved_folders_are_the_same_file(ran, tmp_path, monkeypatch):
    (ran.folder / "link.yaml").symlink_to("orders.yaml")
    assert ran("run", "link.yaml").code == 0
    (ran.folder / "inner").mkdir()
    for name in ("orders.yaml", ".dd", "out", "orders"):
        (ran.folder / name).rename(ran.folder / "inner" / name)
    assert ran("run", "inner/orders.yaml").code == 0
    shutil.copytree(ran.folder / "inner", ran.folder / "other")
    assert read_newest(ran.folder / "other/.dd/orders").file == "../../orders.yaml"


def test_the_file_of_a_state_that_remembers_none_is_remembered(ran):
    path = manifest_path(ran.folder / ".dd/orders", 1)
    manifest = read_newest(ran.folder / ".dd/orders")
    tree = json.loads(manifest.to_bytes())
    assert tree["file"] == "../../orders.yaml"
    path.write_bytes(replace(manifest, file="").to_bytes())
    ran.log("orders/2.parquet", [("east", 1, 4, 1)], **ORDER_COLUMNS)
    shutil.copy(ran.folder / "orders.yaml", ran.folder / "copy.yaml")
    assert ran("run", "copy.yaml").code == 0
    assert ran("run", "orders.yaml").code == 4


def test_adopt(ran):
    shutil.copy(ran.folder / "orders.yaml", ran.folder / "copy.yaml")
    result = ran("state", "adopt", "copy.yaml", "-o", "json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["before"] == str(ran.folder / "orders.yaml")
    assert ran("run", "orders.yaml").code == 4
    ran.log("orders/2.parquet", [("east", 1, 4, 1)], **ORDER_COLUMNS)
    assert ran("run", "copy.yaml").code == 0
    assert contents(ran.folder / "out/totals") == TOTALS | {("east", 1, 1): 1}
    assert "no pipeline is named" in ran("state", "adopt", "--state", ".dd/orders").err


def test_version_and_name_may_be_left_out(orders):
    orders.write("orders.yaml", ORDERS.replace("dd: 1\nname: orders\n", ""))
    assert orders("run", "orders.yaml").code == 0
    assert (orders.folder / ".dd/orders/manifest").is_dir()
    orders.write("my orders.yaml", ORDERS.replace("dd: 1\nname: orders\n", ""))
    result = orders("run", "my orders.yaml")
    assert result.code == 2
    assert "error: the file's name, 'my orders', can't be the pipeline's" in result.err


def test_reset_shows_asks_and_removes_what_is_ours(ran):
    before = files(*ran.kept)
    result = ran("reset", "orders.yaml", "--outputs")
    assert (result.code, "stdin is not a terminal, so nobody can confirm" in result.err) == (2, True)
    facts = json.loads(ran("reset", "orders.yaml", "--outputs", "--dry-run", "-o", "json").out)
    assert files(*ran.kept) == before
    assert facts["removed"] is False
    assert facts["state"]["files"] + facts["outputs"]["totals"]["files"] == len(before)
    assert facts["state"]["bytes"] + facts["outputs"]["totals"]["bytes"] == sum(map(len, before.values()))
    ran.write("out/totals/mine.txt", "")
    result = ran("reset", "orders.yaml", "--outputs", "--yes")
    assert result.code == 0
    assert "stays: out/totals/mine.txt: `dd` did not write it" in result.out
    assert not (ran.folder / ".dd/orders").exists()
    assert [path.name for path in (ran.folder / "out/totals").iterdir()] == ["mine.txt"]
    assert (ran.folder / "orders/1.parquet").exists()
    assert "nothing to remove" in ran("reset", "orders.yaml", "--outputs", "--yes").err
    assert ran("run", "orders.yaml").code == 0
    assert contents(ran.folder / "out/totals") == TOTALS


def test_reset_without_outputs_leaves_them(ran):
    before = files(ran.folder / "out")
    assert ran("reset", "orders.yaml", "-y").code == 0
    assert files(ran.folder / "out") == before
    result = ran("run", "orders.yaml")
    assert (result.code, "dd reset orders.yaml --outputs" in result.err) == (4, True)
    assert ran("reset", "orders.yaml", "-y", "--outputs").code == 0
    assert ran("run", "orders.yaml").code == 0


def test_a_damaged_state_can_be_reset(ran):
    path = manifest_path(ran.folder / ".dd/orders", 1)
    path.write_bytes(path.read_bytes()[:-9])
    assert ran("run", "orders.yaml").code == 4
    result = ran("reset", "orders.yaml", "-y", "--outputs")
    assert (result.code, "the manifest of the state is damaged" in result.err) == (0, True)
    assert not (ran.folder / "out/totals").exists()
    assert ran("run", "orders.yaml").code == 0
    assert contents(ran.folder / "out/totals") == TOTALS


def test_the_output_of_another_state_is_not_removed(ran):
    ran.write("other.yaml", ORDERS.replace("name: orders", "name: other"))
    before = files(*ran.kept)
    result = ran("reset", "other.yaml", "-y", "--outputs")
    assert (result.code, "belongs to another state" in result.err) == (4, True)
    assert files(*ran.kept) == before


@pytest.mark.parametrize("gone", ["all", "directory", "one", "none"])
def test_rewrite(ran, gone):
    ran.log("orders/2.parquet", [("east", 1, 4, 1)], **ORDER_COLUMNS)
    assert ran("run", "orders.yaml").code == 0
    found = sorted((ran.folder / "out/totals").glob("*.parquet"))
    assert len(found) == 2
    if gone == "directory":
        shutil.rmtree(ran.folder / "out/totals")
    for path in {"all": found, "one": found[:1]}.get(gone, []):
        path.unlink()
    if gone != "none":
        result = ran("run", "orders.yaml")
        assert (result.code, "`dd run --rewrite totals`" in result.err) == (4, True)
    assert ran("run", "orders.yaml", "--rewrite", "totals").code == 0
    (new,) = (ran.folder / "out/totals").glob("*.parquet")
    assert new not in found
    assert contents(ran.folder / "out/totals") == TOTALS | {("east", 1, 1): 1}
    assert pl.read_parquet(new)["diff"].to_list() == [1, 1, 1]
    ran.log("orders/3.parquet", [("east", 1, 6, -1)], **ORDER_COLUMNS)
    assert ran("run", "orders.yaml").code == 0
    assert contents(ran.folder / "out/totals") == TOTALS
    assert ran("state", "verify", "orders.yaml").code == 0


def test_rewrite_of_other_columns_begins_a_log_of_those(ran):
    ran.write("orders.yaml", ORDERS.replace("orders: count(*), ", ""))
    assert ran("run", "orders.yaml", "--apply").code == 4
    assert ran("run", "orders.yaml", "--apply", "--rewrite", "totals").code == 0
    assert contents(ran.folder / "out/totals") == {("north", 5): 1, ("south", 7): 1}


def test_rewrite_knows_its_outputs(ran):
    result = ran("run", "orders.yaml", "--rewrite", "total")
    assert (result.code, "did you mean 'totals'?" in result.err) == (2, True)
