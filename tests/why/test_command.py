"""`dd why`: what a person sees."""

import json
import shutil

import polars as pl
import pytest

from ddcli.why.trace import MOST
from tests.cli.support import ROOT, snapshot


@pytest.fixture
def fixtures(shop):
    """Return a shop with the pipelines of the repository and the data that they run on."""
    shutil.copytree(ROOT / "pipelines", shop.folder / "pipelines", ignore=shutil.ignore_patterns(".dd"))
    (shop.folder / "fixtures").symlink_to(ROOT / "fixtures")
    return shop


def asked(shop, *arguments):
    result = shop("why", *arguments, "-o", "json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def leaves(reason):
    """Return the updates of a tree of reasons."""
    return reason["updates"] + [leaf for each in reason["because"] for leaf in leaves(each)]


def test_a_tree(fixtures):
    """Leads to the file and the row; without a state and without writing anything."""
    before = snapshot(fixtures.folder / "pipelines")
    result = fixtures("why", "pipelines/airborne.yaml", "airborne", "carrier=HA", "--at", "719")
    assert result.code == 0
    flight = "{carrier: HA, flight: 51, origin: JFK, dest: HNL, tailnum: N380HA, day: 2013-01-01, hour: 9, sched_dep: 540, status: departed, dep_delay: -3, arr_delay: null}"
    assert result.out.splitlines() == [
        "airborne: {carrier: HA, flights: 1, name: Hawaiian Airlines Inc.} at 719",
        "└── join on carrier",
        "    ├── {carrier: HA, flights: 1} reduce count(*) by carrier: 1 record",
        "    │   └── filter (status = 'departed')",
        f"    │       └── flights: {flight} +1 at 537  (fixtures/flights/flights/from-minute-000000.parquet, row 1171)",
        "    └── airlines: {carrier: HA, name: Hawaiian Airlines Inc.} +1 at 0  (fixtures/flights/airlines.parquet, row 8)",
    ]
    assert "checked: run alone, these 2 updates give it\n" in result.err
    assert snapshot(fixtures.folder / "pipelines") == before
    row = pl.read_parquet(ROOT / "fixtures/flights/flights/from-minute-000000.parquet").row(1171, named=True)
    assert (row["carrier"], row["flight"], row["time"], row["diff"]) == ("HA", 51, 537, 1)


def test_a_loop(fixtures):
    """By rounds, with the path found that it takes; the time is the one that a run has closed."""
    found = asked(fixtures, "pipelines/shortest.yaml", "distance", "start=BUF", "airport=SFO", "--at", "2013-02-03")
    (record,) = found["records"]
    assert (record["scope"], record["checked"], record["updates"]) == ("witness", True, 3)
    assert [leaf["record"].get("origin", leaf["record"].get("airport")) for leaf in leaves(record["reason"])] == [
        "BUF",
        "BUF",
        "EWR",
    ]
    assert sum(leaf["record"].get("miles", 0) for leaf in leaves(record["reason"])) == record["record"]["miles"]
    assert fixtures("run", "pipelines/risk.yaml", "--until", "5").code == 0
    assert asked(fixtures, "pipelines/risk.yaml", "at_risk", "person=Fantine", "--at", "1")["at"] == "1"


def test_nested_loops(fixtures):
    found = asked(fixtures, "pipelines/scc.yaml", "round_trips", "carrier=AA", "src=BOS", "--at", "2013-02-10")
    assert [record["checked"] for record in found["records"]] == [True] * len(found["records"])
    assert found["records"]


FORMATS = """\
dd: 1
name: formats
inputs:
  people: {path: p/, format: upsert, key: [id], columns: {id: int64, name: string, age: int64}}
  prices: {path: q/, format: snapshots, columns: {item: string, price: int64}}
  moves: {path: s/, format: debezium, columns: {id: int64, owner: string}}
  gone: {path: g/, columns: {id: int64}}
collections:
  ages: {from: people, apply: [{antijoin: {with: gone, on: [id]}}, {reduce: {by: [name], age: sum(age)}}]}
  dear: {from: prices, apply: [{filter: price > 2}]}
  owners: {from: moves, apply: [{top_k: {by: [owner], k: 1, order_by: [id]}}]}
outputs: {ages: out/ages/, dear: out/dear/, owners: out/owners/}
"""


@pytest.fixture
def formats(shop):
    """Return a shop with inputs of several formats."""
    shop.write("p.yaml", FORMATS)
    shop.write("p/1.csv", "id,name,age,time\n1,Ann,30,0\n2,Ann,5,0\n1,Ann,31,2\n3,Bea,1,2\n")
    shop.write("q/1.csv", "item,price,time\ntea,3,0\nmilk,1,0\n")
    shop.write("q/2.csv", "item,price,time\ntea,3,1\n")
    events = [
        {"op": "c", "before": None, "after": {"id": 1, "owner": "Ann"}, "ts_ms": 0},
        {"op": "u", "before": {"id": 1, "owner": "Ann"}, "after": {"id": 1, "owner": "Bea"}, "ts_ms": 1},
        {"op": "c", "before": None, "after": {"id": 2, "owner": "Bea"}, "ts_ms": 1},
    ]
    shop.write("s/1.ndjson", "".join(json.dumps(event) + "\n" for event in events))
    shop.write("g/1.csv", "id,time,diff\n3,0,1\n")
    return shop


def test_formats(formats):
    """The row of the key, of the last table, of the event."""
    ages = asked(formats, "p.yaml", "ages", "name=Ann")["records"][0]
    places = [leaf["at"] for leaf in leaves(ages["reason"])]
    assert places == [[{"file": "p/1.csv:4", "row": 2}], [{"file": "p/1.csv:3", "row": 1}]]
    assert ages["scope"] == "witness"
    assert "no record on the right has id = 1" in json.dumps(ages)
    (dear,) = asked(formats, "p.yaml", "dear", "item=tea")["records"]
    assert leaves(dear["reason"])[0]["at"] == [{"file": "q/2.csv:2", "row": 0}]
    assert dear["checked"]
    (owner,) = asked(formats, "p.yaml", "owners", "owner=Bea")["records"]
    assert (leaves(owner["reason"])[0]["at"][0]["row"], owner["checked"]) == (1, True)


def test_a_large_group(shop):
    """Is explained by all that may matter: the rows of its key, not of others."""
    shop.write(
        "p.yaml",
        "dd: 1\nname: p\ninputs: {a: {path: a/, columns: {k: int64, v: int64}}}\n"
        "collections: {n: {from: a, apply: [{reduce: {by: [k], n: count(*)}}]}}\noutputs: {n: out/}\n",
    )
    (shop.folder / "a").mkdir()
    rows = pl.DataFrame({"k": [at % 2 for at in range(3 * MOST)], "v": range(3 * MOST), "time": 0})
    rows.write_parquet(shop.folder / "a/1.parquet")
    found = asked(shop, "p.yaml", "n", "k=1", "--limit", "2")
    (record,) = found["records"]
    assert (found["read"], record["updates"], record["scope"], record["checked"]) == (
        1.5 * MOST,
        1.5 * MOST,
        "everything",
        True,
    )
    assert (len(record["reason"]["because"]), record["reason"]["more"]) == (2, 1.5 * MOST - 2)


WRONG = {
    "a collection": (
        ["ages2", "name=Ann"],
        2,
        "no collection, input or output is named 'ages2'\nhint: did you mean 'ages'?",
    ),
    "a column": (["ages", "nam=Ann"], 2, "there is no column 'nam'\nhint: did you mean 'name'?"),
    "a condition": (["ages", "name"], 2, "'name' is no condition\nhint: write it as `column=value`"),
    "a value": (["ages", "age=x"], 2, "'age' is a number (int64), found 'x'"),
    "a time": (
        ["ages", "name=Ann", "--at", "noon"],
        2,
        "'noon' is no time: the inputs' time is int64\nhint: write it as in `--at 720`",
    ),
    "no record": (["ages", "name=Zoe"], 1, "no record of 'ages' has name=Zoe at 2"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong(formats, what):
    arguments, code, message = WRONG[what]
    result = formats("why", "p.yaml", *arguments)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
