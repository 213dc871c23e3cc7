"""The secret that values are hashed under: states of before, values whose hashes meet, states with different secrets."""

import tarfile
from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

from ddcli.driver import execute
from ddcli.engine import pool as pool_module
from ddcli.engine.columns import NULL
from ddcli.engine.secret import PUBLIC
from ddcli.job.sizes import Sizes
from ddcli.runtime import placement
from ddcli.sources import imported
from ddcli.store.state.directory import State
from ddcli.store.state.holds import reader_name
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import output_paths
from ddcli.store.state.upkeep import rekey
from tests.flooding import meeting
from tests.harness import ROOT, contents, read_log, write_log

BEFORE = ROOT / "tests/cli/format3.tar.xz"
"""Made by commit e798213, which wrote format 3: `shop.yaml` and `pairs.yaml` after two runs each, and a file of orders to come."""
OUTPUTS = ("first", "items", "all_items", "pairs")
SECRET, OTHER, THIRD = (bytes([byte]) * 16 for byte in b"abc")


def updates(folder: Path) -> dict[str, Counter[str]]:
    """Return what the outputs of the shop say."""
    return {name: Counter(map(str, read_log(folder / "out" / name).rows())) for name in OUTPUTS}


def unpack(folder: Path, *, states: bool) -> None:
    with tarfile.open(BEFORE) as archive:
        members = [one for one in archive if states or not one.name.startswith(("./state", "./out"))]
        archive.extractall(folder, members, filter="data")
    for path in folder.glob("state/shop/holds/*.json"):  # a reader is known by its place
        reader = reader_name("pairs", folder / "state/pairs")
        path.with_name(f"{reader}.json").write_text(path.read_text().replace(path.stem, reader))
        path.unlink()


def run(shop, *names, options=()):
    for name in names:
        result = shop("run", name, *options)
        assert result.code == 0, result.err


def opened(folder: Path, name: str) -> State:
    directory = folder / "state" / name
    return State.open(directory, output_paths(directory, read_newest(directory)))


@pytest.fixture(scope="module")
def computed():
    """Keep what is computed once for all tests: what the outputs of the shop are to say in the end."""
    return {}


@pytest.fixture
def before(shop, computed):
    """Return the shop that an older version left, and what all its outputs are to say in the end, computed from nothing."""
    unpack(shop.folder, states=True)
    if not computed:
        computed |= compute(shop, shop.folder / "fresh")
    return shop, dict(computed)


def compute(shop, fresh):
    """Return what the outputs of the shop say when the same runs are made from nothing."""
    unpack(fresh, states=False)
    late = (fresh / "orders/2.csv").rename(fresh / "2.csv")
    for step in (None, late, fresh / "later.csv"):
        if step:
            step.rename(fresh / "orders" / step.name)
        run(shop, fresh / "shop.yaml", fresh / "pairs.yaml")
    own, of_importer = secrets_of(fresh)
    assert len(own) == 16
    assert own == of_importer, "what is imported is read as it lies"
    return updates(fresh)


def secrets_of(folder: Path) -> list[bytes]:
    return [read_newest(folder / "state" / name).secret_bytes for name in ("shop", "pairs")]


def test_a_state_of_before_goes_on(before):
    shop, expected = before
    (shop.folder / "later.csv").rename(shop.folder / "orders/later.csv")
    run(shop, "shop.yaml", "pairs.yaml")
    assert updates(shop.folder) == expected
    assert secrets_of(shop.folder) == [PUBLIC, PUBLIC]


@pytest.mark.parametrize("whose", [("shop",), ("pairs",), ("shop", "pairs")], ids="+".join)
def test_a_state_of_before_gets_a_secret_when_it_is_compacted(before, whose):
    """Each side of an import may have one without the other."""
    shop, expected = before
    for name in whose:
        assert shop("state", "compact", f"{name}.yaml").code == 0
    (shop.folder / "later.csv").rename(shop.folder / "orders/later.csv")
    run(shop, "shop.yaml", "pairs.yaml")
    assert updates(shop.folder) == expected
    assert [secret != PUBLIC for secret in secrets_of(shop.folder)] == ["shop" in whose, "pairs" in whose]
    for name in ("shop", "pairs"):
        assert shop("state", "verify", f"{name}.yaml").code == 0


def test_a_state_of_before_gets_a_secret_when_nothing_of_it_is_kept(before):
    shop, expected = before
    run(shop, "shop.yaml", options=("--full-refresh", "all"))
    (shop.folder / "later.csv").rename(shop.folder / "orders/later.csv")
    run(shop, "shop.yaml")
    del expected["pairs"]
    found = updates(shop.folder)
    assert {name: found[name] for name in expected} == expected
    assert secrets_of(shop.folder)[0] != PUBLIC


@pytest.fixture(params=["memory", "threads", "out of core", "tasks"])
def way(request, monkeypatch):
    """Have runs step in memory, in one thread or two, or out of core, in one piece or task by task."""
    cut = {
        "memory": Sizes(2, 2, 1),
        "threads": Sizes(2, 4, 2),
        "out of core": Sizes(2, 4, 2, 20, 100),
        "tasks": Sizes(2, 2, 1, 20, 100),
    }
    monkeypatch.setattr(placement, "sizes", lambda *_, **__: cut[request.param])
    if request.param == "tasks":
        monkeypatch.setattr(placement.Choosing, "spreads", lambda *_: True)


def test_a_secret_may_change_between_any_two_runs(before, way):
    """Rows are in other places then, not others."""
    shop, expected = before
    for name, secret in (("shop", SECRET), ("pairs", OTHER), ("shop", THIRD)):
        with opened(shop.folder, name) as state:
            rekey(state, secret)
    (shop.folder / "later.csv").rename(shop.folder / "orders/later.csv")
    run(shop, "shop.yaml", "pairs.yaml")
    assert updates(shop.folder) == expected
    assert secrets_of(shop.folder) == [THIRD, OTHER]
    found = shop("query", "shop.yaml", "by_person", "person=p3", "-o", "jsonl")
    assert found.code == 0, found.err
    assert len(found.out.splitlines()) > 1


# --- collisions ---------------------------------------------------------------------------------------------------


PIPELINE = """\
dd: 1
name: sales
state: state/sales
inputs:
  sales: {path: sales/, time: time}
collections:
  totals: {from: sales, apply: [{reduce: {by: [name], amount: sum(amount)}}]}
outputs:
  totals: out/totals/
"""
COLUMNS = {"name": pl.String, "amount": pl.Int64, "time": pl.Int64}


def sell(shop, time, *sales):
    write_log(shop.folder / f"sales/{time}.parquet", [(name, amount, time) for name, amount in sales], COLUMNS)


@pytest.fixture
def secrets(monkeypatch):
    """Have new states begin with these secrets, one after the other."""
    given = [PUBLIC, SECRET, OTHER]
    following = count()
    for module in (execute, imported):
        monkeypatch.setattr(module, "new_secret", lambda: given[next(following)])
    return given


@pytest.mark.parametrize("seed", range(3))
def test_texts_with_one_public_hash_stop_no_pipeline_that_has_none_but_that(shop, secrets, seed):
    """As in a state of before: the first run that meets both gives the state a secret, and is done."""
    one, other = meeting(Random(seed))
    shop.write("sales.yaml", PIPELINE)
    sell(shop, 1, (one, 1), ("x", 10))
    run(shop, "sales.yaml")
    assert read_newest(shop.folder / "state/sales").secret_bytes == PUBLIC
    sell(shop, 2, (other, 2), (one, 4))
    result = shop("run", "sales.yaml")
    assert result.code == 0, result.err
    assert "the run begins again under another secret" in result.err
    assert contents(shop.folder / "out/totals") == {(one, 5): 1, (other, 2): 1, ("x", 10): 1}
    assert read_newest(shop.folder / "state/sales").secret_bytes == SECRET
    sell(shop, 3, (other, 2), (one, 4))
    run(shop, "sales.yaml")
    assert contents(shop.folder / "out/totals") == {(one, 9): 1, (other, 4): 1, ("x", 10): 1}


def test_texts_with_one_public_hash_are_nothing_to_a_new_state(shop):
    one, other = meeting(Random(5))
    shop.write("sales.yaml", PIPELINE)
    sell(shop, 1, (one, 1), (other, 10))
    result = shop("run", "sales.yaml")
    assert (result.code, "secret" in result.err) == (0, False)
    assert contents(shop.folder / "out/totals") == {(one, 1): 1, (other, 10): 1}


def test_a_first_run_begins_again_under_another_secret(shop, secrets, way):
    one, other = meeting(Random(6))
    shop.write("sales.yaml", PIPELINE + "shards: 2\n")
    sell(shop, 1, (one, 1), (other, 10))
    result = shop("run", "sales.yaml")
    assert (result.code, "two different values have the same 64-bit hash" in result.err) == (0, True)
    assert contents(shop.folder / "out/totals") == {(one, 1): 1, (other, 10): 1}
    assert read_newest(shop.folder / "state/sales").secret_bytes == SECRET


def test_a_dry_run_says_what_a_run_will_do(shop, secrets):
    one, other = meeting(Random(7))
    shop.write("sales.yaml", PIPELINE)
    sell(shop, 1, (one, 1))
    run(shop, "sales.yaml")
    sell(shop, 2, (other, 2), (one, 4))
    result = shop("run", "sales.yaml", "--dry-run")
    assert result.code == 5
    assert "hint: `dd run` chooses another secret for the state, under which they differ" in result.err


def test_hashes_that_meet_under_every_secret_end_the_run(shop, monkeypatch):
    """Which nothing but a fault of ours could bring about: it is no endless loop."""

    def by_length(starts, lengths, data, out):
        out[:] = np.where(lengths < 0, NULL, lengths)

    monkeypatch.setattr(pool_module, "hasher", lambda secret: by_length)
    shop.write("sales.yaml", PIPELINE)
    sell(shop, 1, ("one", 1), ("two", 10))
    result = shop("run", "sales.yaml")
    assert result.code == 5
    assert result.err.count("begins again") == execute.ATTEMPTS - 1
    assert not list(shop.folder.glob("out/totals/*.parquet"))


def test_keys_that_meet_in_an_imported_arrangement_are_found(shop, secrets):
    """The exporter has no secret and has met one of the two only; the importer looks for both."""
    one, other = meeting(Random(8))
    asked = {"name": pl.String, "time": pl.Int64}
    shop.write(
        "sales.yaml",
        PIPELINE.replace("from: sales, apply: [", "from: sales, apply: [{arrange: {by: [name], export: sold}}, "),
    )
    shop.write(
        "asked.yaml",
        """\
dd: 1
name: asked
state: state/asked
inputs:
  sold: {import: {state: state/sales, arrangement: sold}, time: time}
  asked: {path: asked/, time: time}
collections:
  found: {from: asked, apply: [{join: {with: sold, on: [name]}}]}
outputs:
  found: out/found/
""",
    )
    sell(shop, 1, (one, 1), ("x", 10))
    write_log(shop.folder / "asked/1.parquet", [("x", 1)], asked)
    run(shop, "sales.yaml", "asked.yaml")
    assert secrets_of_sales(shop) == [PUBLIC, SECRET]
    sell(shop, 2, (one, 2))
    write_log(shop.folder / "asked/2.parquet", [(one, 2), (other, 2)], asked)
    run(shop, "sales.yaml", "asked.yaml")
    assert secrets_of_sales(shop) == [PUBLIC, SECRET]
    assert contents(shop.folder / "out/found") == {("x", 10): 1, (one, 1): 1, (one, 2): 1}


def secrets_of_sales(shop):
    return [read_newest(shop.folder / "state" / name).secret_bytes for name in ("sales", "asked")]
