"""The secret that values are hashed under: another one between two runs, values whose hashes meet, states with different secrets."""

from collections import Counter
from itertools import count
from pathlib import Path
from random import Random

import numpy as np
import polars as pl
import pytest

from ddcli.driver import execute
from ddcli.engine import pool as pool_module
from ddcli.engine.lanes import NULL
from ddcli.engine.pool import PUBLIC
from ddcli.job.sizes import Sizes
from ddcli.runtime import placement
from ddcli.store.state.directory import State
from ddcli.store.state.manifest import read_newest
from ddcli.store.state.outputs import output_paths
from ddcli.store.state.upkeep import rekey
from tests.draws import some
from tests.flooding import meeting
from tests.harness import contents, read_log, write_log

SHOP = {
    "shop.yaml": """\
dd: 1
name: shop
state: state/shop
shards: 2
inputs:
  orders: {path: orders/, time: day, columns: {id: int64, person: string, item: string, amount: int64, day: int64}}
  people: {path: people/, time: day, columns: {person: string, town: string, day: int64}}
collections:
  by_person: {from: orders, apply: [{arrange: {by: [person], export: by_person}}]}
  first: {from: orders, apply: [{top_k: {by: [person], k: 2, order_by: [amount desc]}}]}
  items: {from: by_person, apply: [{join: {with: people, on: [person], how: left}}, {reduce: {by: [item, town], orders: count(*), most: max(person)}}]}
  all_items: {from: orders, apply: [{reduce: {by: [person], items: "array_agg(item order by id)"}}]}
outputs:
  first: out/first/
  items: out/items/
  all_items: out/all_items/
""",
    "pairs.yaml": """\
dd: 1
name: pairs
state: state/pairs
inputs:
  shared: {import: {state: state/shop, arrangement: by_person}, time: day}
collections:
  pairs: {from: shared, apply: [{join: {with: shared, as: other, on: [person]}}, {filter: "item < other.item"}, {reduce: {by: [item], pairs: count(*), most: "max(other.item)"}}]}
outputs:
  pairs: out/pairs/
""",
    "people/1.csv": "person,town,day\n" + "".join(f"p{at},{'ABC'[at % 3]},1\n" for at in range(10)),
}
ORDERS = {1: 60, 2: 30, 3: 40}
"""How many orders come on each day."""
OUTPUTS = ("first", "items", "all_items", "pairs")
SECRET, OTHER, THIRD = (bytes([byte]) * 16 for byte in b"abc")


def orders(day: int) -> str:
    """Return the file of a day's orders."""
    draw, items = Random(day), ["tea", "coffee", "cake", "ice", "a long name of a thing that is sold"]
    rows = [
        (100 * day + at, f"p{draw.randrange(12)}", draw.choice(items), draw.randrange(3), day)
        for at in range(ORDERS[day])
    ]
    return "id,person,item,amount,day\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def updates(folder: Path) -> dict[str, Counter[str]]:
    """Return what the outputs of the shop say."""
    return {name: Counter(map(str, read_log(folder / "out" / name).rows())) for name in OUTPUTS}


def run(shop, *names):
    for name in names:
        result = shop("run", name)
        assert result.code == 0, result.err


def opened(folder: Path, name: str) -> State:
    directory = folder / "state" / name
    return State.open(directory, output_paths(directory, read_newest(directory)))


def secrets_of(folder: Path) -> list[bytes]:
    return [read_newest(folder / "state" / name).secret_bytes for name in ("shop", "pairs")]


@pytest.fixture(params=[*some(["memory", "threads", "out of core", "tasks"])])
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
        monkeypatch.setattr(placement.Placement, "spreads", lambda *_: True)


@pytest.mark.in_turn
def test_a_secret_may_change_between_any_two_runs(shop, way):
    """Rows are in other places then, not others."""
    fresh = shop.folder / "fresh"
    for folder in (shop.folder, fresh):
        for name, text in SHOP.items():
            shop.write(folder / name, text)
        for day in ORDERS:
            shop.write(folder / f"orders/{day}.csv", orders(day))
            run(shop, folder / "shop.yaml", folder / "pairs.yaml")
            if day == 2 and folder != fresh:
                for name, secret in (("shop", SECRET), ("pairs", OTHER), ("shop", THIRD)):
                    with opened(folder, name) as state:
                        rekey(state, secret)
    own, of_importer = secrets_of(fresh)
    assert own == of_importer, "what is imported is read as it lies"
    assert secrets_of(shop.folder) == [THIRD, OTHER]
    assert updates(shop.folder) == updates(fresh)
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
    monkeypatch.setattr(execute, "new_secret", lambda: given[next(following)])
    return given


@pytest.mark.parametrize("seed", range(3))
def test_texts_with_one_public_hash_stop_no_pipeline_that_has_none_but_that(shop, secrets, seed):
    """In a state without a secret: the first run that meets both gives the state a secret, and is done."""
    one, other = meeting(Random(seed))
    shop.write("sales.yaml", PIPELINE)
    sell(shop, 1, (one, 1), ("x", 10))
    run(shop, "sales.yaml")
    assert read_newest(shop.folder / "state/sales").secret_bytes == PUBLIC
    sell(shop, 2, (other, 2), (one, 4))
    result = shop("run", "sales.yaml")
    assert result.code == 0, result.err
    assert "the run starts again with another secret" in result.err
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
    assert result.err.count("starts again") == execute.ATTEMPTS - 1
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
