"""`dd why`: what a person sees."""

import json
import re
import resource
import shutil
import subprocess
import sys

import polars as pl
import pytest

from ddcli.engine.counts import Progress
from ddcli.provenance.explanation import explain
from ddcli.provenance.trace import MOST
from tests.harness import ROOT, snapshot


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
    result = fixtures("why", "pipelines/airborne.yaml", "airborne", "carrier=HA", "--as-of", "719")
    assert result.code == 0
    flight = "{carrier: HA, flight: 51, origin: JFK, dest: HNL, tailnum: N380HA, day: 2013-01-01, hour: 9, sched_dep: 540, status: departed, dep_delay: -3, arr_delay: null}"
    assert result.out.splitlines() == [
        "airborne: {carrier: HA, flights: 1, name: Hawaiian Airlines Inc.} at 719",
        "└── join on carrier",
        "    ├── {carrier: HA, flights: 1} reduce count(*) by carrier: 1 record",
        "    │   └── filter status = 'departed'",
        f"    │       └── flights: {flight} +1 at 537  (fixtures/flights/flights/from-minute-000000.parquet, row 1171)",
        "    └── airlines: {carrier: HA, name: Hawaiian Airlines Inc.} +1 at 0  (fixtures/flights/airlines.parquet, row 8)",
    ]
    assert "checked: these 2 updates alone produce it\n" in result.err
    assert snapshot(fixtures.folder / "pipelines") == before
    row = pl.read_parquet(ROOT / "fixtures/flights/flights/from-minute-000000.parquet").row(1171, named=True)
    assert (row["carrier"], row["flight"], row["time"], row["diff"]) == ("HA", 51, 537, 1)


def test_a_loop(fixtures):
    """By rounds, with the path found that it takes; the time is the one that a run has closed."""
    found = asked(fixtures, "pipelines/shortest.yaml", "distance", "start=BUF", "airport=SFO", "--as-of", "2013-02-03")
    (record,) = found["records"]
    assert (record["scope"], record["checked"], record["updates"]) == ("witness", True, 3)
    assert [leaf["record"].get("origin", leaf["record"].get("airport")) for leaf in leaves(record["reason"])] == [
        "BUF",
        "BUF",
        "EWR",
    ]
    assert sum(leaf["record"].get("miles", 0) for leaf in leaves(record["reason"])) == record["record"]["miles"]
    assert fixtures("run", "pipelines/risk.yaml", "--until", "5").code == 0
    assert asked(fixtures, "pipelines/risk.yaml", "at_risk", "person=Fantine", "--as-of", "1")["at"] == "1"


def test_nested_loops(fixtures):
    found = asked(fixtures, "pipelines/scc.yaml", "round_trips", "carrier=AA", "src=BOS", "--as-of", "2013-02-10")
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
    assert places == [[{"file": "p/1.csv:4", "row": None}], [{"file": "p/1.csv:3", "row": None}]]
    assert ages["scope"] == "witness"
    assert "no record on the right has id = 1" in json.dumps(ages)
    (dear,) = asked(formats, "p.yaml", "dear", "item=tea")["records"]
    assert leaves(dear["reason"])[0]["at"] == [{"file": "q/2.csv:2", "row": None}]
    assert dear["checked"]
    (owner,) = asked(formats, "p.yaml", "owners", "owner=Bea")["records"]
    assert (leaves(owner["reason"])[0]["at"][0]["file"][-2:], owner["checked"]) == (":2", True)


def test_a_group_of_nulls(shop):
    shop.write(
        "p.yaml",
        "name: p\nclock: event\ninputs: {a: {path: a/, columns: {s: 'string?', v: int64}}}\n"
        "collections: {n: {from: a, apply: [{reduce: {by: [s], n: sum(v)}}]}}\noutputs: {n: out/}\n",
    )
    shop.write("a/1.csv", "s,v,time\n,1,0\n,2,0\nnull,4,0\n")
    (record,) = asked(shop, "p.yaml", "n", "s is null")["records"]
    assert (record["record"], record["checked"]) == ({"s": None, "n": 3}, True)
    assert shop("why", "p.yaml", "n", "s=").code == 1


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
    "a condition": (
        ["ages", "name"],
        2,
        "'name' is not a condition\nhint: write it as `column=value`, or as 'column is null'",
    ),
    "a null": (["ages", "name is null"], 2, "the column 'name' is never null\nhint: write it as `column=value`"),
    "a value": (["ages", "age=x"], 2, "'age' is a number (int64), found 'x'"),
    "a time": (
        ["ages", "name=Ann", "--as-of", "noon"],
        2,
        "'noon' is not a time: the inputs' time is int64\nhint: write it as in `--as-of 720`",
    ),
    "no record": (
        ["ages", "name=Zoe"],
        1,
        "there is no record of 'ages' with name=Zoe at 2\nhint: no such record has existed at any earlier time either, by the inputs as they are now",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong(formats, what):
    arguments, code, message = WRONG[what]
    result = formats("why", "p.yaml", *arguments)
    assert result.code == code
    assert message in result.err
    assert code == 1 or not result.out


def changed(shop, *arguments):
    result = shop("why", *arguments, "--change")
    assert result.code == 0, result.err
    return result.out.splitlines(), result.err


def test_a_record_that_went(fixtures):
    """Because an accusation was withdrawn, or somebody vetted, far from it."""
    lines, talk = changed(fixtures, "pipelines/risk.yaml", "at_risk", "person=Fantine")
    assert lines == [
        "at_risk: {person: Fantine} -1 at 10",
        "└── iterate",
        "    └── accused: {person: Valjean} -1 distinct",
        "        └── {person: Valjean} -1 antijoin on person",
        "            ├── accusations: {accuser: Javert, accused: Valjean} -1 at 10  (fixtures/dealings/accusations.parquet, row 13)",
        "            └── vetted: {person: Valjean} +1 at 10  (fixtures/dealings/vetted.parquet, row 5)",
    ]
    assert "checked: added to what was there before, these 2 updates made the change\n" in talk
    gone = fixtures("why", "pipelines/risk.yaml", "at_risk", "person=Fantine")
    assert (gone.code, gone.err.splitlines()[1:]) == (1, ["hint: there was one until 10: `--change` shows why"])
    assert fixtures("why", "pipelines/risk.yaml", "at_risk", "person=Fantine", "--change", "--as-of", "9").code == 1


def test_a_record_whose_place_was_taken(fixtures):
    """A shorter way came; the longer one is as good as it was."""
    lines, _ = changed(fixtures, "pipelines/shortest.yaml", "distance", "start=BUF", "airport=SFO")
    at = lines.index("distance: {start: BUF, airport: SFO, miles: 2887, legs: 2} -1 at 2013-02-10")
    assert [line.strip("│├└─ ") for line in lines[at + 1 : at + 4]] == [
        "iterate",
        "another record took its place",
        "distance: {start: BUF, airport: SFO, miles: 2847, legs: 2} +1 iterate",
    ]


def test_a_record_that_only_time_took(fixtures):
    lines, talk = changed(fixtures, "pipelines/components.yaml", "component", "node=E9")
    assert lines[-1].endswith("└── its time is over: now is 158")
    assert "checked: added to what was there before, nothing but the time made the change\n" in talk


def test_changes_of_formats(formats):
    """What is said of the key, and a table, which is one thing; a single time only."""
    lines, _ = changed(formats, "p.yaml", "ages", "name=Ann")
    assert lines[0] == "ages: {name: Ann, age: 35} -1 at 2"
    assert "people: {id: 1, name: Ann, age: 31} +1 at 2  (p/1.csv:4)  the rows of id = 1" in "\n".join(lines)
    lines, _ = changed(formats, "p.yaml", "prices", "item=milk")
    assert lines == ["prices: {item: milk, price: 1} -1 at 1", "└── not in the new table"]


ABSENT = {
    "a loop's": (
        ["risk", "at_risk", "person=Valjean", "--as-of", "10"],
        "accusations: no {accused: Valjean}  retracted: 2 updates sum to zero",
    ),
    "a filter": (
        ["risk", "pairs", "one=Champtercier", "other=Myriel"],
        "times >= 2 is not true of: {one: 'Champtercier', other: 'Myriel', times: 1}",
    ),
    "a bound": (
        ["components", "recent", "src=Brenda Rogers", "dst=E3", "--as-of", "200"],
        "now is 200, and the record exists while day <= now < day + 60: {",
    ),
    "an antijoin": (
        ["risk", "accused", "person=Fantine", "--as-of", "12"],
        "accusations: no {accused: Fantine}  retracted: 2 updates",
    ),
    "an input": (["airborne", "airborne", "carrier=XX"], "flights: no {carrier: XX}  no update has these values"),
    "a group": (
        ["airborne", "airborne", "carrier=HA", "flights=7", "--as-of", "719"],
        "the group has other values: {carrier: 'HA', flights: 1}",
    ),
}


@pytest.mark.parametrize("what", ABSENT)
def test_what_is_missing(fixtures, what):
    """Is followed to where it ends."""
    (name, *arguments), told = ABSENT[what]
    result = fixtures("why", f"pipelines/{name}.yaml", *arguments)
    assert result.code == 1
    assert told in result.out
    assert "error: there is no record of" in result.err


def test_what_stands_in_the_way(formats):
    """The record on the right of an antijoin, with the row that it comes from."""
    formats.write("g/2.csv", "id,time,diff\n1,2,1\n2,2,1\n")
    result = formats("why", "p.yaml", "ages", "name=Ann", "-o", "json")
    assert result.code == 1
    missing = json.loads(result.out)["missing"]
    assert "a record on the right excludes {id: 1, name: 'Ann', age: 31}" in missing["because"][0]["why"]
    assert missing["because"][0]["hindrance"]["updates"][0]["at"] == [{"file": "g/2.csv:2", "row": None}]


def test_what_another_pipeline_keeps(shop):
    """Is explained by what it holds; a test gives rows to it as to other inputs, once its columns are known."""
    shop.write(
        "a.yaml",
        "dd: 1\nname: a\ninputs: {orders: {path: orders/, columns: {id: int64, region: string}}}\ncollections:\n"
        "  by: {from: orders, apply: [{arrange: {by: [region], export: by_region}}]}\n  n: {from: orders, apply: [count]}\n"
        "outputs: {n: out/n/}\n",
    )
    shop.write(
        "b.yaml",
        "dd: 1\nname: b\ninputs: {by: {import: {state: .dd/a/, arrangement: by_region}}}\n"
        "collections: {c: {from: by, apply: [{reduce: {by: [region], n: count(*)}}]}}\noutputs: {c: out/c/}\n"
        "tests:\n  - {name: t, given: {by: [{region: north, id: 1}]}, expect: {collection: c, contents: [{region: north, n: 1}]}}\n",
    )
    shop.write("orders/1.csv", "id,region,time,diff\n1,north,0,1\n2,north,1,1\n")
    assert shop("run", "a.yaml").code == 0
    assert shop("test", "b.yaml").code == 0
    (record,) = asked(shop, "b.yaml", "c", "region=north")["records"]
    assert (record["record"]["n"], record["checked"], record["updates"]) == (2, True, 2)
    assert leaves(record["reason"])[0]["at"] == [{"file": ".dd/a", "row": None}]


def test_records_that_are_put_aside(shop):
    """On which an expression fails: they explain nothing, and what they are not in is tested without them."""
    shop.write(
        "p.yaml",
        "dd: 1\nname: p\ninputs: {a: {path: a/, columns: {k: int64, v: int64}}}\nerrors: quarantine\n"
        "collections: {n: {from: a, apply: [{map: {k: k, w: 6 / v}}]}}\noutputs: {n: out/}\n"
        "tests:\n  - {name: t, given: {a: [{k: 1, v: 0}, {k: 1, v: 2}]}, expect: {collection: n, contents: [{k: 1, w: 3}]}}\n",
    )
    shop.write("a/1.csv", "k,v,time\n1,0,0\n1,2,0\n")
    assert shop("test", "p.yaml").code == 0
    (record,) = asked(shop, "p.yaml", "n", "k=1")["records"]
    assert leaves(record["reason"])[0]["record"] == {"k": 1, "v": 2}


def chain(shop, length):
    """Have a pipeline that follows a chain of so many edges from its first node on, a round an edge."""
    shop.write(
        "p.yaml",
        "dd: 1\nname: chain\ninputs: {edges: {path: e/, columns: {src: int64, dst: int64}}, starts: {path: s/, columns: {node: int64}}}\n"
        "collections:\n  reach:\n    iterate:\n      variables: {at: starts}\n      body:\n        at:\n          from: at\n          apply:\n"
        "            - join: {with: edges, on: {node: src}}\n            - map: {node: dst}\n            - concat: starts\n            - distinct\n"
        "      result: at\noutputs: {reach: out/}\n",
    )
    shop.write("e/1.csv", "src,dst,time,diff\n" + "".join(f"{at},{at + 1},0,1\n" for at in range(length)))
    shop.write("s/1.csv", "node,time,diff\n0,0,1\n")


def test_a_long_derivation(shop):
    """Goes through all its rounds; of the tree as much is shown as can be read."""
    chain(shop, 110)
    result = shop("why", "p.yaml", "reach", "node=110")
    assert (result.code, "checked: these 111 updates alone produce it" in result.err) == (0, True)
    assert "and so on, down to" in result.out


def test_a_derivation_takes_no_room_on_the_stack_for_its_rounds(shop):
    """Else `dd why` would die where a loop has some thousand rounds, or 300 on a stack of half a megabyte."""
    chain(shop, 300)

    def limit():
        resource.setrlimit(resource.RLIMIT_STACK, (512 << 10, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    command = [sys.executable, "-m", "ddcli", "why", "p.yaml", "reach", "node=300"]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert (done.returncode, "checked: these 301 updates alone produce it" in done.stderr) == (0, True)


MANY = """\
inputs: {t: {path: in/, format: upsert, key: id, columns: {id: int64, g: string, x: float64}}}
collections:
  many: {from: t, apply: [{extend: {large: x > 0}}]}
  groups: {sql: "select g from t group by g"}
  total: {sql: "select count(*) as n from t"}
  named: {sql: "select t.id, u.x from t left join t u on t.g = u.g and u.x < 0"}
  small: {from: t, apply: [{filter: x < 0}]}
outputs: {many: out/many, groups: out/groups, total: out/total, named: out/named, small: out/small}
"""


@pytest.fixture
def many(shop):
    """Return a shop with floats that JSON has no number for."""
    shop.write(
        "in/1.ndjson",
        '{"id": 1, "g": "a", "x": "Infinity"}\n{"id": 2, "g": "a", "x": "NaN"}\n{"id": 3, "g": "b", "x": "-Infinity"}\n',
    )
    shop.write("p.yaml", MANY)
    assert shop("run", "p.yaml", "-q").code == 0
    return shop


def test_values_are_written_in_one_way(many):
    """As JSON and the records of inputs have them; and as one may ask for them."""
    out = many("why", "p.yaml", "many", "id=1").out
    assert out.count("x: Infinity") == 2
    assert "large: true}" in out
    assert "is not true of: {id: 1, g: 'a', x: Infinity}" in many("why", "p.yaml", "small", "id=1").out
    for x in ("Infinity", "NaN", "-Infinity"):
        result = many("why", "p.yaml", "many", f"x={x}")
        assert result.code == 0
        assert result.out.startswith(f"many: {{id: {('Infinity', 'NaN', '-Infinity').index(x) + 1}, ")


def test_groups_of_which_nothing_is_computed(many):
    lines = many("why", "p.yaml", "groups", "g=a").out.splitlines()
    assert any(line.startswith("└── reduce by g: 2 records") for line in lines), lines
    assert "reduce  " not in many("why", "p.yaml", "groups", "g=a", "--change").out


def test_columns_that_the_plan_adds_are_not_shown(many):
    for arguments in (["total", "n=7"], ["many", "id=9"], ["small", "id=2"], ["total", "n=3"]):
        for kind in ("text", "json"):
            result = many("why", "p.yaml", *arguments, "-o", kind)
            assert not re.search(r"#one|\$\w", result.out), result.out


def test_what_the_other_side_of_a_join_lacks(many):
    assert "no record on the right has g = 'a'" in many("why", "p.yaml", "named", "id=1").out


def test_sentences_have_all_keys_of_a_join_and_no_sum_of_sums(shop):
    """A key that is computed counts, too; a step that has one name all the way up is not written inside itself."""
    shop.write("in/a.csv", "g,d\na,1\nb,2\n")
    shop.write("in/b.csv", "g,d,x\na,5,1\nb,3,9\n")
    shop.write(
        "p.yaml",
        """
clock: arrival
inputs:
  a: {path: in/a.csv, columns: {g: string, d: int64}}
  b: {path: in/b.csv, columns: {g: string, d: int64, x: int64}}
collections:
  joined: {sql: "select a.g, a.d, b.x from a left join b on a.g = b.g and b.d = a.d + 1"}
  rest: {sql: "select g, sum(d) as s from a group by g except select g, sum(x) as s from b group by g"}
outputs: {joined: out/joined, rest: out/rest}
""",
    )
    assert shop("run", "p.yaml").code == 0
    assert "no record on the right has g = 'a' and d = 2" in shop("why", "p.yaml", "joined", "g=a").out
    assert "filter (left > 0) and (right <= 0)" in shop("why", "p.yaml", "rest", "g=b").out
    assert "(left > 0) and (right <= 0) is not true of: {g: 'a', s: 1}" in shop("why", "p.yaml", "rest", "g=a").out


HOPS = """\
name: hops
inputs:
  legs: {path: legs.csv, format: append, columns: {src: string, dst: string}}
  hubs: {path: hubs.csv, format: append, columns: {hub: string}}
collections:
  hops:
    sql: |
      with recursive r as (
        select hub, hub as airport, 0 as hops from hubs
        union
        select r.hub, l.dst as airport, r.hops + 1 as hops
        from r join legs l on l.src = r.airport
        where r.hops < 3
      )
      select hub, airport, min(hops) as hops from r group by all
outputs: {hops: out/}
"""


def test_a_recursive_query_is_explained_by_legs_that_join(shop):
    """Its joins return no key of their right side; other legs to the same place are none of the way."""
    way = [("DRS", "MUC"), ("MUC", "PVG"), ("PVG", "AKL")]
    others = [(f"X{at}", dst) for at in range(40) for dst in ("MUC", "PVG", "AKL")]
    shop.write("hops.yaml", HOPS)
    shop.write("hubs.csv", "hub\nDRS\n")
    shop.write("legs.csv", "src,dst\n" + "".join(f"{src},{dst}\n" for src, dst in [*others[:60], *way, *others[60:]]))
    (record,) = asked(shop, "hops.yaml", "hops", "hub=DRS", "airport=AKL")["records"]
    assert (record["scope"], record["checked"], record["updates"]) == ("witness", True, 4)
    legs = [leaf["record"] for leaf in leaves(record["reason"]) if leaf["input"] == "legs"]
    assert sorted((leg["src"], leg["dst"]) for leg in legs) == way


@pytest.mark.parametrize("how", ["", "left "])
def test_a_join_without_its_key_is_explained_by_the_records_of_equal_keys(shop, how):
    """All of them, as they make the multiplicity: three keys are on both sides, one of each side is not, and null is no key."""
    shop.write("l.csv", "k,v\n" + "".join(f"{k},1\n" for k in (1, 2, 3, 4, "")))
    shop.write("r.csv", "k,w\n" + "".join(f"{k},2\n" for k in (1, 2, 3, 5, "")))
    shop.write(
        "p.yaml",
        "name: p\ninputs:\n  l: {path: l.csv, format: append, columns: {k: 'int64?', v: int64}}\n"
        "  r: {path: r.csv, format: append, columns: {k: 'int64?', w: int64}}\n"
        f"collections:\n  pairs: {{sql: 'select v, w from l {how}join r on l.k = r.k'}}\noutputs: {{pairs: out/}}\n",
    )
    (record,) = asked(shop, "p.yaml", "pairs", "w=2")["records"]
    assert (record["count"], record["checked"], record["updates"]) == (3, True, 6)
    assert sorted(leaf["record"]["k"] for leaf in leaves(record["reason"])) == [1, 1, 2, 2, 3, 3]


DAYS = """\
name: days
inputs: {t: {path: d.csv, format: append, columns: {day: date, region: string, n: int64}}}
collections: {w: {sql: "CALLS"}}
outputs: {w: out/}
"""
NEAR = "sum(n) over (partition by region order by day rows between 2 preceding and current row) as s"


@pytest.mark.parametrize(
    ("calls", "days"),
    [
        (f"select day, region, {NEAR} from t", [30, 29, 28]),
        (f"select day, region, {NEAR}, lag(n, 4) over (partition by region order by day) as l from t", [30, 29, 28, 27, 26]),
        ("select day, region, sum(n) over (partition by upper(region) order by n desc rows between current row and 1 following) as s from t", [30, 29]),
        ("select day, region, sum(n) over (partition by region order by day range between interval 2 days preceding and current row) as s from t", [30, 29, 28]),
        ("select day, region, sum(n) over (partition by region order by n desc range between current row and 3 following) as s from t", [30, 29, 28, 27]),
        ("select day, region, sum(n) over (partition by region order by day range between current row and interval 1 month following) as s from t", [30]),
        ("select day, region, sum(n) over (partition by region order by timezone('Europe/Berlin', day::timestamp) range between interval 2 days preceding and current row) as s from t", [30, 29, 28]),
        ("select day, region, sum(n) over (partition by region order by day groups between 3 preceding and 2 preceding) as s from t", [30, 29, 28, 27]),
    ],
)  # fmt: skip
def test_a_window_is_explained_by_the_rows_of_its_frames(shop, calls, days):
    """The nearest first, in the order of the window; words and records have no columns that the plan adds."""
    shop.write("days.yaml", DAYS.replace("CALLS", calls))
    rows = [f"2024-01-{day:02},{region},{100 + day}\n" for region in ("north", "south") for day in range(1, 31)]
    shop.write("d.csv", "day,region,n\n" + "".join(reversed(rows)))
    (record,) = asked(shop, "days.yaml", "w", "day=2024-01-30", "region=north")["records"]
    assert (record["scope"], record["checked"], record["updates"]) == ("witness", True, len(days))
    found = [leaf["record"]["day"] for leaf in leaves(record["reason"])]
    assert found == [f"2024-01-{day}" for day in days]
    shown = shop("why", "days.yaml", "w", "day=2024-01-30", "region=north").out
    assert f"of 30 records the {len(days)} that it can depend on" in shown
    assert "#" not in shown


def test_a_running_total_is_explained_by_the_nearest_rows_before_it(shop):
    shop.write("days.yaml", DAYS.replace("CALLS", "select day, region, sum(n) over (order by day) as s from t"))
    shop.write("d.csv", "day,region,n\n" + "".join(f"2024-01-{day:02},north,{day}\n" for day in range(1, 31)))
    (record,) = asked(shop, "days.yaml", "w", "day=2024-01-20")["records"]
    assert record["checked"]
    found = [leaf["record"]["day"] for leaf in leaves(record["reason"])]
    assert found == ["2024-01-20", "2024-01-19", "2024-01-18", "2024-01-17", "2024-01-16"]
    assert record["updates"] == 20


def test_records_are_asked_for_by_lists_and_structs(shop):
    calls = "select list(n order by n) as l, struct_pack(r := region) as s from t group by region"
    shop.write("days.yaml", DAYS.replace("CALLS", calls))
    shop.write("d.csv", "day,region,n\n2024-01-01,north,1\n2024-01-02,north,2\n2024-01-02,south,2\n")
    for key in ("l=[1, 2]", "s={r: north}"):
        (record,) = asked(shop, "days.yaml", "w", key)["records"]
        assert record["record"] == {"l": [1, 2], "s": {"r": "north"}}
    refused = shop("why", "days.yaml", "w", "l=[1")
    assert (refused.code, refused.err) == (2, "error: 'l' is a list in brackets, found '[1'\n")


@pytest.mark.parametrize(
    ("by", "read", "before"),
    [("city", 12, 36), ("upper(city)", 12, 36), ("coalesce(city, 'C1')", 12, 36), ("coalesce(city, '') || c", 60, 31)],
)
@pytest.mark.parametrize(("kind", "city"), [("string", "c1"), ("string?", "")])
def test_a_window_asked_for_by_a_row_reads_the_rows_of_its_partition(shop, kind, city, by, read, before):
    """Found through the join, also those of a null partition; by an expression, if that reads one column."""
    shop.write(
        "p.yaml",
        "name: p\ninputs:\n  o: {path: o.csv, format: append, columns: {id: int64, c: int64, n: int64}}\n"
        f"  c: {{path: c.csv, format: append, columns: {{c: int64, city: {kind}}}}}\ncollections:\n"
        f'  w: {{sql: "select id, sum(n) over (partition by {by} order by id rows 1 preceding) as s from o join c using (c)"}}\n'
        "outputs: {w: out/}\n",
    )
    shop.write("o.csv", "id,c,n\n" + "".join(f"{at},{at % 10},{at}\n" for at in range(50)))
    shop.write(
        "c.csv", "c,city\n" + "".join(f"{at},{'' if at % 5 == 1 and not city else f'c{at % 5}'}\n" for at in range(10))
    )
    answer = asked(shop, "p.yaml", "w", "id=41")
    (record,) = answer["records"]
    assert (record["record"], record["checked"], answer["read"]) == ({"id": 41, "s": 41 + before}, True, read)
    assert {leaf["record"]["id"] for leaf in leaves(record["reason"]) if "id" in leaf["record"]} == {41, before}


PLACED = """\
name: placed
inputs:
  orders: {path: orders.csv, format: append, columns: {id: int64, customer: int64, amount: int64}}
  customers: {path: customers.csv, format: upsert, key: customer, columns: {customer: int64, city: int64}}
  cities: {path: cities.csv, format: append, columns: {city: int64, name: string}}
collections:
  by_city: {sql: "select name, count(*) as n, sum(amount) as total from orders join customers using (customer) join cities using (city) where amount > 0 group by name"}
  calm: {sql: "select name, amount from orders join customers using (customer) join cities using (city) where city not in (select city from cities where name = 'city 5')"}
outputs: {by_city: out/a, calm: out/b}
"""


def test_a_group_is_explained_by_its_own_rows_found_through_the_joins(shop):
    """Of other cities no row is read. A customer who moved away, or who came, is not lost by this."""
    shop.write("p.yaml", PLACED)
    shop.write("orders.csv", "id,customer,amount\n" + "".join(f"{at},{at % 40},{at + 1}\n" for at in range(400)))
    moved = "7,4\n3,7\n"
    shop.write("customers.csv", "customer,city\n" + "".join(f"{at},{at % 10}\n" for at in range(40)) + moved)
    shop.write("cities.csv", "city,name\n" + "".join(f"{at},city {at}\n" for at in range(10)))
    found = asked(shop, "p.yaml", "by_city", "name=city 7")
    (record,) = found["records"]
    mine = [at for at in range(400) if at % 40 in (3, 17, 27, 37)]
    assert record["record"] == {"name": "city 7", "n": 40, "total": sum(at + 1 for at in mine)}
    assert (record["checked"], record["scope"], record["updates"]) == (True, "witness", 40 + 4 + 1)
    assert found["read"] == 50 + 7 + 1, "those of customers 7 and 3, who moved, both rows"
    assert asked(shop, "p.yaml", "calm", "name=city 7")["read"] == 50 + 7 + 10, "all rows of the input that excludes"
    absent = shop("why", "p.yaml", "by_city", "name=city 11")
    assert (absent.code, "cities: no {name: city 11}" in absent.out) == (1, True)


def test_a_join_with_one_column_for_two_keys(shop):
    shop.write("l.csv", "k,v\n1,1\n2,1\n")
    shop.write("r.csv", "v,w\n1,2\n3,4\n")
    shop.write(
        "p.yaml",
        "name: p\ninputs:\n  l: {path: l.csv, format: append, columns: {k: int64, v: int64}}\n"
        "  r: {path: r.csv, format: append, columns: {v: int64, w: int64}}\n"
        "collections:\n  c: {from: l, apply: [{join: {with: r, on: {k: v, v: v}}}, {project: [w]}]}\noutputs: {c: out/}\n",
    )
    (record,) = asked(shop, "p.yaml", "c", "w=2")["records"]
    assert (record["count"], record["checked"], record["updates"]) == (1, True, 2)


@pytest.mark.parametrize("change", [False, True])
def test_the_stages_of_an_explanation_are_reported(shop, change):
    """A long one shows them on a terminal; each record that is traced is counted."""

    class Stages(Progress):
        def __init__(self):
            self.heard = []

        def begin(self, what, tasks=None):
            self.heard.append((what, tasks))

        def advance(self, tasks=1):
            self.heard.append(tasks)

        def end(self):
            self.heard.append("end")

    shop.write("in/1.csv", "n,region\n1,north\n2,north\n")
    shop.write(
        "p.yaml", "inputs: {a: {path: in/, format: append, columns: {n: int64, region: string}}}\noutputs: {a: out/}\n"
    )
    assert shop("run", "p.yaml").code == 0
    stages = Stages()
    explain(shop.folder / "p.yaml", "a", ["region=north"], change=change, progress=stages)
    subject = "'a' with region=north"
    assert stages.heard == [(f"looking for {subject}", None), (f"tracing {subject} to the inputs", 2), 1, 1, "end"]
    stages = Stages()
    if not change:
        explain(shop.folder / "p.yaml", "a", ["region=south"], progress=stages)
        subject = "'a' with region=south"
        assert [each[0] for each in stages.heard[:-1]] == [
            f"looking for {subject}",
            f"looking for the reason why there is no {subject}",
        ]


@pytest.mark.in_turn
def test_a_record_is_traced_through_many_operators(shop):
    """More than Python's calls may be deep: each is a node of its own, as all collections are computed."""
    operators = "\n".join(["      - extend: {amount: amount + 1}"] * 1_200)
    shop.write(
        "p.yaml",
        f"name: p\nclock: arrival\ninputs:\n  t: {{path: in/, format: append, columns: {{k: int64, amount: int64}}}}\n"
        f"collections:\n  c:\n    from: t\n    apply:\n{operators}\noutputs: {{c: out/}}\n",
    )
    shop.write("in/1.csv", "k,amount\n7,1\n")
    assert shop("run", "p.yaml").code == 0
    result = shop("why", "p.yaml", "c", "k=7")
    assert result.code == 0, result.err
    assert "this 1 update alone produces it" in result.err
