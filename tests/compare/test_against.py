"""A pipeline file against a state: what an edit, or a file less, would change, read from a checkout elsewhere."""

import json
from collections import Counter

import polars as pl
import pytest

from ddcli.job.sizes import Sizes
from ddcli.plan.changes import reached_outputs
from ddcli.plan.pipeline_file import parse_spec
from ddcli.runtime import placement
from ddcli.sinks.side_logs import ReceivedUpdates
from ddcli.spec.file import identities
from ddcli.store.log.writer import DIFF
from ddcli.version import __version__
from tests.draws import chance
from tests.harness import ORDER_COLUMNS, ORDERS, contents, files

LARGE = "  large:\n    from: orders\n    apply: [filter: amount > 6]\noutputs:\n"
TEXT = ORDERS.replace("outputs:\n", LARGE) + "  large: out/large/\n"


@pytest.fixture
def shop(orders):
    """Return a folder with a state in `prod`, and a checkout of its file, without data, in `co`."""
    orders.write("prod/orders.yaml", TEXT)
    orders.log("prod/orders/1.parquet", [("north", 5, 0, 1), ("south", 7, 0, 1), ("north", 10, 1, 1)], **ORDER_COLUMNS)
    orders.write("co/orders.yaml", TEXT)
    assert orders("run", "prod/orders.yaml").code == 0
    return orders


def against(shop, *options, state="prod/.dd/orders"):
    """Compare the checkout with the state; return the exit code and the JSON."""
    kept = files(shop.folder)
    result = shop("diff", "--against", state, "co/orders.yaml", "-o", "json", *options)
    assert files(shop.folder) == kept
    return result.code, json.loads(result.out)


def test_a_file_that_is_the_same_changes_nothing(shop):
    code, tree = against(shop)
    assert (code, tree["same"], tree["only_a"], tree["only_b"]) == (0, True, [], [])
    assert tree["outputs"]["totals"]["rows"] == {"same": 2, "removed": 0, "changed": 0, "added": 0}


def test_the_effect_of_an_edit(shop):
    """On the rows that the state has read: one that came since is another run's."""
    shop.log("prod/orders/2.parquet", [("west", 9, 2, 1)], **ORDER_COLUMNS)
    shop.write("co/orders.yaml", TEXT.replace("sum(amount)", "max(amount)"))
    code, tree = against(shop, "--key", "totals=region")
    assert (code, tree["outputs"]["large"]["same"]) == (1, True)
    totals = tree["outputs"]["totals"]
    assert totals["rows"] == {"same": 1, "removed": 0, "changed": 1, "added": 0}
    assert totals["changes"] == [
        {"change": "changed", "count": 1, "key": {"region": "north"}, "cells": {"amount": {"old": 15, "new": 10}}}
    ]
    assert (totals["a"]["rows"], totals["b"]["rows"]) == (2, 2)
    assert tree["notes"] == [
        "co/orders.yaml:9:9: reduce of collections.totals.apply[0].reduce: work: groups, but change in the state",
        "edited: totals.amount: goes into totals.amount",
    ]


EDITED = """\
name: shop
inputs:
  sales: {path: sales/, format: append, columns: {person: int64, amount: int64}}
  people: {path: people/, format: upsert, key: [person], columns: {person: int64, city: string}}
collections:
  large: {from: sales, apply: &least [filter: amount > 6]}
  alike: {from: sales, apply: *least}
  cities:
    sql: |
      select city, sum(amount) as amount
      from large join people using (person) group by city
  reached:
    iterate:
      variables: {seen: cities}
      body: {seen: {from: seen, apply: [distinct]}}
      result: [seen]
outputs:
  sales: out/sales/
  large: out/large/
  alike: out/alike/
  cities: out/cities/
  reached: {from: reached.seen, path: out/reached/}
"""
ALL = {"sales", "large", "alike", "cities", "reached"}


@pytest.mark.parametrize(
    ("old", "new", "reached"),
    [
        ("name: shop", "# another comment\n\nname: shop", set()),
        (
            "{from: sales, apply: &least [filter: amount > 6]}",
            "\n    from: sales\n    apply: &least\n      - filter: amount > 6",
            set(),
        ),
        ("amount > 6", "amount > 7", {"large", "alike", "cities", "reached"}),
        ("apply: *least", "apply: [filter: amount > 6]", set()),
        ("apply: *least", "apply: [filter: amount > 5]", {"alike"}),
        ("sum(amount)", "max(amount)", {"cities", "reached"}),
        ("[distinct]", "[distinct, filter: amount > 9]", {"reached"}),
        ("cities: out/cities/", "cities: {from: large, path: out/cities/}", {"cities"}),
        ("  large: {", "  more: {from: sales}\n  large: {", set()),
        ("outputs:\n", "outputs:\n  more: {from: large, path: out/more/}\n", {"more"}),
        ("format: upsert, key: [person], ", "format: append, ", ALL),
        ("amount: int64", "amount: int32", ALL),
        ("name: shop", "name: shop\ntimezone: Europe/Berlin", ALL),
        ("name: shop", "name: shop\nbudget: {rows: 10}", ALL),
        ("outputs:", "checks:\n  - {row: amount > 0, of: sales}\noutputs:", {*ALL, "sales_row_amount_0"}),
        (
            "outputs:",
            "checks:\n  - {row: amount > 0, of: sales, otherwise: quarantine}\noutputs:",
            {*ALL, "sales_row_amount_0"},
        ),
    ],
)
def test_the_outputs_that_an_edit_may_change(old, new, reached):
    assert EDITED.count(old) == 1
    state = {"identities": identities(parse_spec(EDITED, "shop.yaml"))}
    assert reached_outputs(parse_spec(EDITED.replace(old, new), "co/shop.yaml"), state) == reached


QUERIES = """\
name: orders
inputs: {orders: orders/}
collections:
  large: {sql: select region from orders where amount > 6}
  regions: {sql: select distinct region from large}
  totals: {sql: "select region, sum(amount) as amount from orders group by region"}
outputs: {regions: out/regions/, totals: out/totals/}
"""


def test_queries_that_the_state_knows_are_not_parsed_again(shop, monkeypatch):
    """Only those are that the edit reaches. An error in another one is at its place all the same; one of another version of dd is parsed."""
    from ddcli.expressions import syntax_tree

    shop.write("queries/orders.yaml", QUERIES)
    shop.log("queries/orders/1.parquet", [("north", 5, 0, 1), ("south", 7, 0, 1)], **ORDER_COLUMNS)
    assert shop("run", "queries/orders.yaml").code == 0
    state, parsed = "queries/.dd/orders", []
    read = syntax_tree.read
    monkeypatch.setattr(syntax_tree, "read", lambda text, *what: parsed.append(text.value) or read(text, *what))
    shop.write("co/orders.yaml", QUERIES.replace("> 6", "> 4"))
    syntax_tree._KNOWN.clear()
    code, tree = against(shop, state=state)
    assert (code, tree["outputs"]["regions"]["rows"]["added"], tree["outputs"]["totals"]["same"]) == (1, 1, True)
    assert sorted({*parsed}) == [
        "select distinct region from large",
        "select region from orders where amount > 4",
        "select region from orders where amount > 6",
    ]
    monkeypatch.setattr("ddcli.spec.file.__version__", "0.0.0")
    assert against(shop, state=state)[0] == 1
    assert "select region, sum(amount) as amount from orders group by region" in parsed
    monkeypatch.setattr("ddcli.spec.file.__version__", __version__)
    shop.write("co/orders.yaml", QUERIES.replace("  large:", "  larger:"))
    wrong = shop("diff", "--against", state, "co/orders.yaml")
    assert (wrong.code, wrong.err.partition(" error:")[0]) == (2, "co/orders.yaml:5:46:"), wrong.err


def test_text_names_the_outputs_that_are_the_same_in_a_line(shop):
    shop.write("co/orders.yaml", TEXT.replace("amount > 6", "amount > 4"))
    shown = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml").out
    assert shown.endswith("different: 1 added\n\nsame: totals\n")
    assert shown.count("\noutput ") == 1


def test_outputs_that_an_edit_does_not_reach_are_neither_computed_nor_read_by_key(shop, monkeypatch):
    """They are the same; a key that they lack is refused as ever. A state of an earlier version, which knows no text of its file, has all computed."""
    from ddcli.compare import against as module

    computed = []
    effect = module._effect
    monkeypatch.setattr(
        module, "_effect", lambda request, *rest: computed.append({*request.outputs}) or effect(request, *rest)
    )
    shop.write("co/orders.yaml", TEXT.replace("amount > 6", "amount > 4"))
    code, tree = against(shop)
    assert (code, computed) == (1, [{"large"}])
    assert tree["outputs"]["totals"]["rows"] == {"same": 2, "removed": 0, "changed": 0, "added": 0}
    assert tree["outputs"]["large"]["rows"] == {"same": 2, "removed": 0, "changed": 0, "added": 1}
    wrong = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml", "--key", "totals=city")
    assert (wrong.code, "city" in wrong.err) == (2, True)
    monkeypatch.setattr(module, "reached_outputs", lambda spec, _outline: reached_outputs(spec, {}))
    against(shop)
    assert computed[-1] == {"large", "totals"}


def test_outputs_that_come_and_go_and_that_get_other_columns(shop):
    text = TEXT.replace("  large: out/large/", "  more: {from: large, path: out/more/}")
    shop.write("co/orders.yaml", text.replace("sum(amount)}", "sum(amount), n: count(*)}"))
    code, tree = against(shop, "--key", "totals=region")
    assert (code, tree["only_a"], tree["only_b"]) == (1, ["large"], ["more"])
    totals = tree["outputs"]["totals"]
    assert [(each["column"], each["change"]) for each in totals["columns"]] == [("n", "only_b")]
    assert totals["rows"] == {"same": 2, "removed": 0, "changed": 0, "added": 0}


@pytest.mark.parametrize(
    ("edit", "rows", "columns"),
    [
        (("max(amount) as n", "count(distinct region) as n"), (0, 1, 1), 0),  # a count is never null
        (("max(amount) as n", "[1] as n"), (1, 0, 0), 1),
        (("from orders", "from orders having count(*) > 9"), (0, 1, 0), 0),
        (("max(amount) as n from orders", "'x' as n from orders having count(*) > 9"), (0, 1, 0), 1),
    ],
)
def test_columns_of_another_type_and_columns_that_are_no_longer_null(shop, edit, rows, columns):
    all_of = '  all: {sql: "select sum(amount) as s, max(amount) as n from orders"}\noutputs:\n  all: all/\n'
    text = TEXT.replace("outputs:\n", all_of)
    shop.write("prod/orders.yaml", text)
    assert shop("run", "prod/orders.yaml", "--apply").code == 0
    shop.write("co/orders.yaml", text.replace(*edit))
    code, tree = against(shop, "--select", "all")
    found = tree["outputs"]["all"]
    assert (code, found["rows"]) == (1, dict(zip(("same", "removed", "added"), rows, strict=True)) | {"changed": 0})
    assert len(found["columns"]) == columns


def test_a_check_that_would_fail_is_named_and_is_a_difference(shop):
    checks = (
        "checks:\n  - row: amount < 12\n    of: totals\n  - row: amount < 11\n    of: totals\n    otherwise: warn\n"
    )
    shop.write("co/orders.yaml", TEXT + checks)
    code, tree = against(shop)
    assert (code, tree["same"], tree["ok"]) == (1, True, False)
    assert tree["failing_checks"] == ["totals_row_amount_12: 1 violation: 1 new"]


def test_a_file_with_checks_that_is_the_same(shop):
    text = TEXT + "checks:\n  - row: amount < 12\n    of: totals\n    otherwise: warn\n"
    for name in ("prod/orders.yaml", "co/orders.yaml"):
        shop.write(name, text)
    assert shop("run", "prod/orders.yaml", "--apply").code == 0
    assert against(shop)[0] == 0
    shop.write("co/orders.yaml", text.replace("warn", "warn  # only"))
    assert against(shop)[0] == 0


def test_tables_are_as_the_state_has_read_them_and_new_ones_as_they_are(shop):
    """From another file, too; a column that the state has not read needs the table itself."""
    text = "name: t\nclock: arrival\ninputs:\n  rows: {delta: lake, columns: {id: int64, v: int64}}\n"
    sums = 'collections: {sums: {sql: "select v, count(*) as n from rows where v > 1 group by v"}}\noutputs: {sums: sums/}\n'
    shop.write("prod/t.yaml", text + sums)
    pl.DataFrame({"id": [1, 2], "v": [1, 2]}).write_delta(str(shop.folder / "prod/lake"))
    assert shop("run", "prod/t.yaml", "-q").code == 0
    pl.DataFrame({"id": [3], "v": [2]}).write_delta(str(shop.folder / "prod/lake"), mode="append")
    pl.DataFrame({"v": [1, 2, 2]}).write_delta(str(shop.folder / "prod/more"))
    more = "  more: {delta: more, columns: {v: int64}}\n"
    for file, expected in (
        (text + sums, []),
        (text + sums.replace("v > 1", "v > 0"), [("added", 1, 1)]),
        (
            text + more + sums.replace("rows where", "rows join more using (v) where"),
            [("removed", 2, 1), ("added", 2, 2)],
        ),
    ):
        shop.write("co/orders.yaml", file)
        _, tree = against(shop, state="prod/.dd/t")
        changes = [(each["change"], *each["row"].values()) for each in tree["outputs"]["sums"]["changes"]]
        assert changes == expected, file
    shop.write("prod/s.yaml", "s: {set: {rows: {v: v + 1}}}\n")
    result = shop("run", "prod/t.yaml", "--scenarios", "prod/s.yaml", "-o", "json")
    assert [[*row.values()][1:] for row in json.loads(result.out)["sums"]] == [[3, 1, 1]]


def test_files_that_are_left_out(shop):
    shop.log("prod/orders/2.parquet", [("west", 9, 2, 1), ("north", 1, 2, 1)], **ORDER_COLUMNS)
    assert shop("run", "prod/orders.yaml").code == 0
    code, tree = against(shop, "--without", "prod/orders/2.parquet", "--key", "totals=region", "--select", "totals")
    assert code == 1
    assert tree["outputs"]["totals"]["changes"] == [
        {
            "change": "changed",
            "count": 1,
            "key": {"region": "north"},
            "cells": {"orders": {"old": 3, "new": 2}, "amount": {"old": 16, "new": 15}},
        },
        {"change": "removed", "count": 1, "key": {"region": "west"}, "row": {"orders": 1, "amount": 9}},
    ]
    unknown = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml", "--without", "prod/orders/3.parquet")
    assert (unknown.code, "no run has read this file" in unknown.err) == (3, True)


@pytest.mark.parametrize("room", [None, 0])
def test_the_effect_of_a_loop_that_does_not_fit_in_memory(shop, monkeypatch, room):
    """Only tasks run it, and their results have all of the effect: of an edit, of a file that is left out, and in a scenario."""
    text = """\
name: paths
clock: arrival
inputs: {edges: {path: edges/, format: append, columns: {a: int64, b: int64}}}
collections:
  paths: {sql: "with recursive r(x, y) as (select a, b from edges union select r.x, e.b from r join edges e on e.a = r.y) select x, y from r"}
outputs: {paths: paths/}
"""
    shop.write("prod/paths.yaml", text)
    shop.write("co/orders.yaml", text.replace("select a, b from edges", "select a, b from edges where a <> 2"))
    files = [(1, 2), (2, 3)], [(3, 4), (4, 2)]
    for at, edges in enumerate(files):
        shop.write(f"prod/edges/{at}.csv", "a,b\n" + "".join(f"{a},{b}\n" for a, b in edges))

    def closure(edges, first):
        found, more = set(), {edge for edge in edges if first(edge)}
        while more:
            found |= more
            more = {(x, b) for x, y in found for a, b in edges if a == y} - found
        return found

    edges = {*files[0], *files[1]}
    whole = closure(edges, bool)
    edited, less = closure(edges, lambda edge: edge[0] != 2), closure(files[0], bool)
    assert shop("run", "prod/paths.yaml").code == 0
    if room is not None:
        monkeypatch.setattr(placement, "sizes", lambda *_, **__: Sizes(1, 2, 1, 3, room))
    for pipeline, options, after in [
        ("co/orders.yaml", [], edited),
        ("prod/paths.yaml", ["--without", "prod/edges/1.csv"], less),
    ]:
        result = shop("diff", "--against", "prod/.dd/paths", pipeline, "-o", "json", "--limit", 100, *options)
        changes = json.loads(result.out)["outputs"]["paths"]["changes"]
        assert {(each["change"], *each["row"].values()) for each in changes} == {
            *(("removed", *pair) for pair in whole - after),
            *(("added", *pair) for pair in after - whole),
        }
    shop.write("prod/what-if.yaml", "less: {without: edges/1.csv}\n")
    result = shop("run", "prod/paths.yaml", "--scenarios", "prod/what-if.yaml", "-o", "json")
    assert {(row["x"], row["y"], row["diff"]) for row in json.loads(result.out)["paths"]} == {
        (*pair, -1) for pair in whole - less
    }


def test_updates_of_outputs_that_come_by_turns_stay_apart(tmp_path):
    """Each in files of its own: with two of an output, some had the name of another output's."""
    received, wanted = ReceivedUpdates(tmp_path), {"a": [], "b": [], "c": []}
    for at, name in enumerate("abacbbac"):
        received.add(name, pl.DataFrame({"n": [at], DIFF: [1]}))
        wanted[name].append(at)
    for name, rows in wanted.items():
        found = pl.concat(received.scan(name, ["n"], "count")).collect()
        assert sorted(found["n"].to_list()) == rows


def test_files_before_they_are_delivered(shop):
    """Rows that wait in the input make no difference; a file of another type is refused as by a run."""
    shop.log("prod/orders/2.parquet", [("west", 9, 2, 1)], **ORDER_COLUMNS)
    shop.log("fix/1.parquet", [("north", 1, 2, 1), ("east", 2, 3, 1)], **ORDER_COLUMNS)
    code, tree = against(shop, "--with", "orders+=fix/1.parquet", "--key", "totals=region", "--select", "totals")
    assert code == 1
    assert tree["outputs"]["totals"]["changes"] == [
        {"change": "added", "count": 1, "key": {"region": "east"}, "row": {"orders": 1, "amount": 2}},
        {
            "change": "changed",
            "count": 1,
            "key": {"region": "north"},
            "cells": {"orders": {"old": 2, "new": 3}, "amount": {"old": 15, "new": 16}},
        },
    ]
    shop.write("fix/2.csv", "region,time,diff\nwest,3,1\n")
    for named, code, problem in (
        ("orders+=fix/2.csv", 3, "2.csv"),
        ("order+=fix/1.parquet", 2, "did you mean 'orders'?"),
        ("orders+=fix/3.parquet", 3, "fix/3.parquet"),
        ("fix/1.parquet", 2, "this names no input and file"),
    ):
        result = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml", "--with", named)
        assert (result.code, problem in result.err) == (code, True), result.err
    shop.write("co/orders.yaml", TEXT.replace("sum(amount)", "max(amount)"))
    both = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml", "--with", "orders+=fix/1.parquet")
    assert (both.code, "an edit and files are compared one after the other" in both.err) == (2, True)


def test_a_state_of_another_pipeline_and_none(shop):
    shop.write("co/orders.yaml", TEXT.replace("name: orders", "name: others"))
    other = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml")
    assert (other.code, "the state is of the pipeline 'orders', and the file is 'others'" in other.err) == (4, True)
    none = shop("diff", "--against", "prod/.dd/nothing", "co/orders.yaml")
    assert (none.code, "there is no state to compare with" in none.err) == (4, True)
    for named in ("prod", "prod/.dd", "prod/orders.yaml"):
        none = shop("diff", "--against", named, "co/orders.yaml")
        assert (none.code, "hint: name a state: `--against prod/.dd/orders`" in none.err) == (4, True), none


@pytest.mark.parametrize("path", ["more/", "more/*.csv"])
def test_a_new_input_is_looked_for_beside_the_file_and_then_where_the_state_s_file_is(shop, path):
    text = TEXT.replace(
        "  orders: orders/", f"  orders: orders/\n  more: {{path: '{path}', clock: x, columns: {{a: int64}}}}"
    )
    text = text.replace("clock: x, ", "format: append, time: t, ").replace("{a: int64}", "{a: int64, t: int64}")
    shop.write("co/orders.yaml", text.replace("outputs:", "outputs:\n  more: out/more/"))
    missing = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml")
    assert (missing.code, "more" in missing.err) == (3, True), missing
    for folder in ("prod", "co"):
        shop.write(f"{folder}/more/1.csv", f"a,t\n{len(folder)},0\n")
        code, tree = against(shop)
        assert (code, tree["only_b"], tree["outputs"]["totals"]["same"]) == (1, ["more"], True)
    shop.write("co/more/2.csv", "a,t\nx,0\n")  # a file that is read is one that can be wrong
    wrong = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml")
    assert (wrong.code, "co/more/2.csv" in wrong.err) == (3, True), wrong


def test_functions_are_those_beside_the_file(shop):
    """Not those of the pipeline that made the state, which may be gone."""
    text = TEXT.replace(
        "apply: [filter: amount > 6]", "apply: [{map: {function: 'helpers:scaled', columns: {amount: int64}}}]"
    )
    for folder, factor in (("prod", 1), ("co", 2)):
        shop.write(f"{folder}/orders.yaml", text)
        shop.write(f"{folder}/helpers.py", f"def scaled(row):\n    return {{'amount': row['amount'] * {factor}}}\n")
    assert shop("run", "prod/orders.yaml", "--rewrite", "large", "--apply").code == 0
    (shop.folder / "prod/helpers.py").unlink()
    code, tree = against(shop, "--select", "large")
    assert (code, tree["outputs"]["large"]["rows"]) == (1, {"same": 1, "removed": 2, "changed": 0, "added": 2})
    assert shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml", "--no-code").code == 2


@pytest.mark.parametrize("busy", [False, True])
def test_a_run_that_commits_meanwhile(shop, monkeypatch, busy):
    """The files of the older commit may be gone: the comparison is made on the newer one. If those vanish, too, nothing is said of a backup."""
    from ddcli.compare import against as module
    from ddcli.driver.run import run

    shop.write("co/orders.yaml", TEXT.replace("sum(amount)", "max(amount)"))
    first = module.read_newest
    reads = []

    def read(state):
        reads.append(state)
        manifest = first(state)
        if len(reads) == 1 or (busy and len(reads) in {3, 5}):
            shop.log(f"prod/orders/{len(reads) + 1}.parquet", [("west", 9, len(reads) + 1, 1)], **ORDER_COLUMNS)
            run("prod/orders.yaml", rewrite=frozenset(["totals", "large"]), apply=True)
        return manifest

    monkeypatch.setattr(module, "read_newest", read)
    result = shop(
        "diff", "--against", "prod/.dd/orders", "co/orders.yaml", "--key", "totals=region", "--select", "totals"
    )
    assert "the comparison starts again on its newest commit" in result.err
    if busy:
        assert (result.code, result.err.splitlines()[-1].split(": ")[-1]) == (4, "repeat the command between runs"), (
            result
        )
    else:
        assert (result.code, "3 rows" in result.out) == (1, True), result


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--against", "x", "a.yaml", "b.yaml"], "--against is for one pipeline file"),
        (["--against", "x", "out/"], "--against is for one pipeline file"),
        (["--against", "x", "a.yaml", "--as-of", "1"], "--as-of is one time for both sides"),
        (["--against", "x", "a.yaml", "--from", "1"], "are for data, and the sides are pipelines"),
        (["a.yaml", "b.yaml", "--without", "1.csv"], "--with and --without are for --against"),
        (["a.yaml", "b.yaml", "--sample", "region%3=1"], "--sample is for --against"),
        (["--against", "x", "a.yaml", "--sample", "region%3=1", "--with", "orders+=1.csv"], "--sample is for an edit"),
        (["--against", "x", "a.yaml", "--sample", "region%3=1", "--without", "1.csv"], "--sample is for an edit"),
        (["--against", "x", "a.yaml", "--with", "orders+=1.csv", "--without", "1.csv"], "are two comparisons"),
    ],
)
def test_options_that_do_not_fit(shop, options, problem):
    result = shop("diff", *options)
    assert (result.code, problem in result.err) == (2, True)


SAMPLED = """\
name: shop
inputs:
  sales: {path: sales/, columns: {person: int64, amount: int64}}
  people: {path: people/, columns: {person: int64, city: string}}
collections:
  spent:
    from: sales
    apply:
      - filter: amount > LEAST
      - join: {with: people, on: [person]}
      - reduce: {by: [person, city], amount: sum(amount), n: count(*)}
  total: {from: sales, apply: [{filter: amount > LEAST}, {reduce: {amount: sum(amount)}}]}
outputs:
  spent: out/spent/
  total: out/total/
"""


@pytest.mark.parametrize(("column", "number"), [("person", 0), ("person", 1), ("city", 2)])
def test_samples_together_are_the_whole_effect(shop, column, number):
    """Beside a fresh run of the edited file; only the rows of the sample are read."""
    draw = chance("samples", column, number)
    for name, other in (("sales", lambda: draw.randrange(20)), ("people", lambda: draw.choice("xyz"))):
        kind = pl.Int64 if name == "sales" else pl.String
        kinds = {"person": pl.Int64, "amount" if name == "sales" else "city": kind, "time": pl.Int64, "diff": pl.Int64}
        for at in range(3):
            rows = [(draw.randrange(-9, 9), other(), at, 1) for _ in range(20)]
            for folder in ("prod", "fresh"):
                shop.log(f"{folder}/{name}/{at}.parquet", rows, **kinds)
    before, after = (SAMPLED.replace("LEAST", str(least)) for least in (3, 9))
    for folder, text in (("prod", before), ("fresh", after), ("co", after)):
        shop.write(f"{folder}/shop.yaml", text)
    assert [shop("run", f"{folder}/shop.yaml").code for folder in ("prod", "fresh")] == [0, 0]
    old, new = (Counter(contents(shop.folder / folder / "out/spent")) for folder in ("prod", "fresh"))
    wanted = {record: (new[record] - old[record]) for record in {*old, *new} if new[record] != old[record]}
    names = ["person", "city", "amount", "n"]
    found, kept = {}, files(shop.folder)
    for remainder in range(3):
        result = shop(
            "diff",
            "--against",
            "prod/.dd/shop",
            "co/shop.yaml",
            "-o",
            "json",
            "--sample",
            f"{column}%3={remainder}",
            "--limit",
            "100",
        )
        tree = json.loads(result.out)
        assert any("total: not compared: it has no column" in note for note in tree["notes"])
        for change in tree["outputs"]["spent"]["changes"]:
            record = tuple(change["row"][name] for name in names)
            assert column != "person" or record[0] % 3 == remainder
            assert record not in found
            found[record] = change["count"] * (1 if change["change"] == "added" else -1)
        assert result.code == bool(tree["outputs"]["spent"]["changes"])
    assert files(shop.folder) == kept
    assert found == wanted


def test_a_sample_that_there_is_not(shop):
    for sample, says in (
        ("region%3=3", "no such sample"),
        ("nothing%3=1", "it has no column 'nothing'"),
        ("region", "no such sample"),
    ):
        result = shop("diff", "--against", "prod/.dd/orders", "co/orders.yaml", "--sample", sample)
        assert (result.code, says in result.err) == (2, True), result


WIDE = """\
name: orders
inputs: {orders: {path: orders/, format: append, columns: {region: string, amount: int64, note: int64}}}
collections:
  totals: {from: orders, apply: [filter: amount > 1, reduce: {by: [region], amount: sum(amount)}]}
  notes: {from: orders, apply: [reduce: {by: [note], rows: count(*)}]}
outputs: {totals: out/totals/, notes: out/notes/}
"""


@pytest.mark.parametrize("aside", [False, True])
def test_what_an_edit_computes_anew_reads_no_column_that_only_others_need(shop, monkeypatch, aside):
    """A row that is put aside for a column that only another output reads stays aside. An edit that is applied then reads all columns, as the log of errors has whole records."""
    from ddcli.driver import step

    text = WIDE + ("errors: quarantine\n" if aside else "")
    rows = "region,amount,note\nnorth,5,1\nnorth,7,2\nsouth,1,3\nsouth,9," + ("broken" if aside else "4") + "\n"
    shop.write("wide/orders.yaml", text)
    shop.write("wide/orders/1.csv", rows)
    assert shop("run", "wide/orders.yaml").code == 0
    read = []
    fed = step.StepExecutor._fed
    monkeypatch.setattr(
        step.StepExecutor,
        "_fed",
        lambda self, apart: read.append([*self.assembled.layouts["orders"].names]) or fed(self, apart),
    )
    shop.write("co/orders.yaml", text.replace("amount > 1", "amount > 5"))
    code, tree = against(shop, "--key", "totals=region", state="wide/.dd/orders")
    assert (code, tree["outputs"]["notes"]["same"]) == (1, True)
    assert read == [["region", "amount"]]
    (change,) = tree["outputs"]["totals"]["changes"]
    assert (change["key"], change["cells"]) == ({"region": "north"}, {"amount": {"old": 12, "new": 7}})
    shop.write("wide/orders.yaml", text.replace("amount > 1", "amount > 5"))
    assert shop("run", "wide/orders.yaml", "--apply").code == 0
    assert read[1] == (["region", "amount", "note"] if aside else ["region", "amount"])
    expected = {("north", 7): 1} if aside else {("north", 7): 1, ("south", 9): 1}
    assert contents(shop.folder / "wide/out/totals") == expected
    shop.write("wide/orders/2.csv", "region,amount,note\nwest,6,6\n")
    assert shop("run", "wide/orders.yaml").code == 0
    assert contents(shop.folder / "wide/out/totals") == {**expected, ("west", 6): 1}
    assert shop("verify", "wide/orders.yaml", "--all").code == 0
