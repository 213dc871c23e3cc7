"""A pipeline file that changes: what `dd plan` says of it, what a run then does, and what it leaves alone."""

import json
import re

import polars as pl
import pytest

from ddcli.driver import requested_changes
from ddcli.store.log.reader import LogReader
from ddcli.store.state.manifest import manifest_path, read_newest
from tests.harness import ORDER_COLUMNS, contents, files
from tests.store.test_manifest import rewrite

REGIONS = """\
  regions:
    from: orders
    apply: [{project: [region]}, distinct]
"""


def edit(shop, *pairs):
    text = (shop.folder / "orders.yaml").read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    shop.write("orders.yaml", text)


def planned(shop, *options):
    result = shop("plan", "orders.yaml", "-o", "json", *options)
    assert not result.err, result.err
    return json.loads(result.out)


def ran(shop, *options):
    result = shop("run", "orders.yaml", "-o", "json", *options)
    assert result.code == 0, result.err
    return json.loads(result.out)


def arrangements(shop):
    """Return the batch files of the state, by arrangement."""
    manifest = read_newest(shop.folder / ".dd/orders")
    return {
        name: [file.name for shard in entry.shards for file in shard] for name, entry in manifest.arrangements.items()
    }


def test_a_plan_before_the_first_run_says_what_there_is_to_do(orders):
    before = files(orders.folder)
    found = planned(orders)
    assert files(orders.folder) == before
    assert found == {
        "name": "orders",
        "lower": None,
        "upper": "3",
        "work": True,
        "needs_apply": False,
        "inputs": {"orders": {"rows": 4, "new_files": 1, "waiting_files": 0, "again_files": 0, "again_bytes": 0}},
        "kept": [],
        "built": [
            {"of": "accumulate by region of orders", "rows": 0, "bytes": 0, "why": [], "estimated": 0},
        ],
        "dropped": [],
        "worsened": [],
        "reached": [],
        "inferred": {},
        "choices": [],
        "outputs": {"totals": {"change": "new", "why": [], "edits": [], "updates": None}},
    }
    assert orders("plan", "orders.yaml", "--exit-code").code == 10
    assert orders("plan", "orders.yaml").code == 0


def test_what_is_over_all_rows_is_named_without_a_key(orders):
    """The column by which all rows are one group is no word of the person's file."""
    text = (orders.folder / "orders.yaml").read_text()
    for aggregates, of in (("orders: count(*)", "accumulate of orders"), ("most: max(amount)", "group of orders")):
        orders.write("orders.yaml", re.sub("reduce: {.*}", f"reduce: {{by: [], {aggregates}}}", text))
        assert of in [each["of"] for each in planned(orders)["built"]]
        assert "$" not in orders("plan", "orders.yaml").out


def test_with_nothing_to_do_the_exit_code_is_0(orders):
    orders("run", "orders.yaml")
    before = files(orders.folder)
    result = orders("plan", "orders.yaml", "--exit-code")
    assert (result.code, result.out) == (0, "orders: nothing to do (times before 3 are closed)\n")
    orders.log("orders/2.parquet", [("south", 1, 3, 1), ("south", 1, 9, 1)], **ORDER_COLUMNS)
    result = orders("plan", "orders.yaml", "--exit-code", "--until", "5")
    assert result.code == 10
    assert result.out == "orders: times from 3 until 5\n  read    orders: 1 new file, 1 update\n" or (
        "1 new file, 2 updates" in result.out  # an upper bound, where rows are not looked at one by one
    )
    del before[orders.folder / "orders/1.parquet"]
    assert {path: data for path, data in files(orders.folder).items() if path in before} == before


SQL = """\
name: orders
inputs: {orders: orders/}
collections:
  daily:
    sql: |
      -- by region, in capitals
      select upper(region) as region, sum(amount) + 0 as amount
      from orders
      group by upper(region)
  unread:
    {sql: "select region from orders"}
  large:
    from: daily
    apply:
      - filter: amount > 1
outputs: {daily: out/daily, large: out/large, other: {from: orders, path: out/other}}
"""


def test_an_edited_query_is_shown_as_its_person_wrote_it(orders):
    """Whatever names the plan has for its parts: none is in a message, also where the state knows no text of the query."""
    orders.write("orders.yaml", SQL)
    ran(orders)
    edit(
        orders,
        ("upper(region)", "lower(region)"),
        ("amount > 1", "amount>1"),
        ('sql: "select region', 'sql: "select 1, region'),
    )
    edit(orders, ("-- by region, in capitals", "-- by region"))
    refused = orders("run")
    assert refused.code == 4
    assert refused.err == (
        "orders.yaml: error: the pipeline has changed since its state was made, and the outputs 'daily', 'large' would change: "
        "collection `daily`: SQL changed\n"
        "  - -- by region, in capitals\n"
        "  - select upper(region) as region, sum(amount) + 0 as amount\n"
        "  + -- by region\n"
        "  + select lower(region) as region, sum(amount) + 0 as amount\n"
        "  - group by upper(region)\n"
        "  + group by lower(region)\n"
        "  daily: 4 updates (+2 -2)\n"
        "  large: 4 updates (+2 -2)\n"
        "hint: `dd run orders.yaml --apply` writes these changes to the outputs; "
        "see also `dd plan orders.yaml`; or put the file back\n"
    )
    shown = orders("plan", "--counts").out
    assert "  change  daily: 4 updates (+2 -2): collection `daily`: SQL changed\n" in shown
    assert "#" not in shown
    manifest = read_newest(orders.folder / ".dd/orders")
    plan = manifest.cache["plan"]
    older = {name: part for name, part in plan["outline"].items() if name != "collections"}
    path = manifest_path(orders.folder / ".dd/orders", manifest.number)
    rewrite(path, {"cache": manifest.cache | {"plan": plan | {"outline": older}}})
    for command in ("plan", "run", "explain"):
        result = orders(command)
        assert "#" not in result.out + result.err
    assert "would change: reduce changed" in orders("run").err


def test_a_refusal_counts_nothing_over_large_inputs_or_where_it_fails(orders, monkeypatch):
    orders("run", "orders.yaml")
    edit(orders, ("sum(amount)", "max(10 / (amount - 5))"))
    kept = files(*orders.kept)
    refused = orders("run", "orders.yaml")
    assert (refused.code, "totals: " in refused.err) == (4, False)
    assert "--apply --dry-run` counts the changes" in refused.err
    edit(orders, ("max(10 / (amount - 5))", "sum(amount * 2)"))
    counted = orders("run", "orders.yaml")
    assert (counted.code, "  totals: 4 updates (+2 -2)\n" in counted.err) == (4, True), counted.err
    monkeypatch.setattr(requested_changes, "COUNTED", 1)
    refused = orders("run", "orders.yaml")
    assert (refused.code, "updates" in refused.err) == (4, False)
    assert files(*orders.kept) == kept


def test_a_run_keeps_the_present_text_of_a_collection(orders):
    """One that was only moved, renamed or written in another way is no edit, and the next edit is compared with it."""
    orders.write("orders.yaml", SQL)
    ran(orders)
    edit(orders, ("  daily:\n", "  days:\n"), ("from: daily", "from: days"), ("daily: out/daily", "days: out/daily"))
    edit(orders, ("select upper(region) as region,", "select\n        upper(region) as region,"))
    orders.log("orders/2.parquet", [("south", 1, 9, 1)], **ORDER_COLUMNS)
    ran(orders)
    edit(orders, ("upper(region)", "lower(region)"))
    (edited,) = planned(orders)["outputs"]["days"]["edits"]
    assert edited["before"].splitlines()[3:5] == [
        "    select",
        "      upper(region) as region, sum(amount) + 0 as amount",
    ]


def test_a_run_without_new_rows_commits_a_new_comment_of_the_file(orders):
    """So commands that need the file that made the state work again, and later runs have nothing to do."""
    assert orders("run", "orders.yaml").code == 0
    edit(orders, ("dd: 1", "# a comment\ndd: 1"))
    assert orders("verify", "orders.yaml", "--all").code == 4
    outputs = files(orders.folder / "out")
    for _ in range(2):
        result = orders("run", "orders.yaml")
        assert (result.code, "nothing new" in result.err) == (0, True)
        kept = files(*orders.kept)
    assert files(orders.folder / "out") == outputs
    assert orders("run", "orders.yaml", "--dry-run").code == 0
    assert files(*orders.kept) == kept
    assert read_newest(orders.folder / ".dd/orders").number == 2
    for command in (["verify", "--all"], ["branch", "new", "q4"]):
        result = orders(*command, "orders.yaml")
        assert result.code == 0, result


def test_a_changed_output_is_given_the_difference_at_the_frontier(orders):
    ran(orders)
    old = files(orders.folder / "out")
    edit(orders, ("sum(amount)", "max(amount)"))
    found = planned(orders)
    assert found["work"]
    assert found["needs_apply"]
    assert found["outputs"]["totals"]["change"] == "changed"
    assert found["outputs"]["totals"]["why"] == ["collection `totals`: changed"]
    (edited,) = found["outputs"]["totals"]["edits"]
    assert edited["before"].replace("sum(amount)", "max(amount)") == edited["now"] != edited["before"]
    counted = planned(orders, "--counts")
    assert counted["outputs"]["totals"].pop("updates") == {"rows": 0, "inserted": 0, "retracted": 0}
    assert found["outputs"]["totals"].pop("updates") is None
    assert counted == found
    assert found["inputs"]["orders"]["again_files"] == 1
    assert len(found["dropped"]) == 1
    refused = orders("run", "orders.yaml")
    assert refused.code == 4
    assert "the output 'totals' would change: collection `totals`: changed\n  - " in refused.err
    assert "--apply" in refused.err
    done = ran(orders, "--apply")
    assert done["rebuilt"]["totals"]["rows"] == 0  # there is one order in each region, so it says the same
    assert files(orders.folder / "out") == old
    assert not planned(orders)["work"]


def test_a_difference_appears_at_the_frontier_and_nowhere_else(orders):
    ran(orders)
    before = contents(orders.folder / "out/totals", until=3)
    edit(orders, ("sum(amount)", "sum(amount * 2)"))
    done = ran(orders, "--apply")
    assert (done["lower"], done["upper"]) == ("3", "3")
    assert done["state_rows"] == 2
    found = done["rebuilt"]["totals"]
    assert (found["rows"], found["inserted"], found["retracted"]) == (4, 2, 2)
    assert found["file"] == str(orders.folder / "out/totals/updates-3-3-change2.parquet")
    assert contents(orders.folder / "out/totals", until=3) == before
    assert contents(orders.folder / "out/totals") == {("north", 1, 10): 1, ("south", 1, 14): 1}
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    ran(orders)
    assert contents(orders.folder / "out/totals") == {("north", 1, 10): 1, ("south", 2, 16): 1}


def test_a_second_change_at_the_same_frontier_takes_the_first_back(orders):
    ran(orders)
    text = (orders.folder / "orders.yaml").read_text()
    edit(orders, ("sum(amount)", "sum(amount * 2)"))
    ran(orders, "--apply")
    orders.write("orders.yaml", text)
    assert orders("run", "orders.yaml").code == 4
    ran(orders, "--apply")
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 1, 7): 1}
    assert len(list((orders.folder / "out/totals").glob("*-change*.parquet"))) == 2


def test_a_change_and_new_files_in_one_run(orders):
    ran(orders)
    edit(orders, ("sum(amount)", "sum(amount * 2)"))
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    done = ran(orders, "--apply")
    assert (done["lower"], done["upper"]) == ("3", "4")
    assert done["rebuilt"]["totals"]["rows"] == 4
    assert contents(orders.folder / "out/totals") == {("north", 1, 10): 1, ("south", 2, 16): 1}


def test_an_output_more_rebuilds_nothing(orders):
    ran(orders)
    kept, old = arrangements(orders), files(orders.folder / "out")
    edit(orders, ("outputs:\n", "outputs:\n  regions: out/regions/\n"), ("collections:\n", "collections:\n" + REGIONS))
    found = planned(orders)
    assert not found["needs_apply"]
    assert {name: output["change"] for name, output in found["outputs"].items()} == {"regions": "new", "totals": "same"}
    done = ran(orders)
    assert [*done["rebuilt"]] == ["regions"]
    assert contents(orders.folder / "out/regions") == {("north",): 1, ("south",): 1}
    now = arrangements(orders)
    assert {name: now[name] for name in kept} == kept
    assert len(now) == len(kept) + 1
    assert {path: data for path, data in files(orders.folder / "out/totals").items() if path in old} == old


def test_an_output_that_needs_other_columns_rebuilds_nothing_either(orders):
    """The arrangement of the first has just the columns that it needs, and keeps them; so it does when the second is gone."""
    text = (orders.folder / "orders.yaml").read_text().replace("sum(amount)", "count(*)")
    orders.write(
        "orders.yaml", text.replace("- reduce", "- join: {with: orders, as: other, on: [region]}\n      - reduce")
    )
    ran(orders)
    kept = arrangements(orders)
    edit(
        orders,
        ("outputs:\n", "outputs:\n  pairs: out/pairs/\n"),
        (
            "collections:\n",
            "collections:\n  pairs: {from: orders, apply: [{join: {with: orders, as: b, on: [region]}}]}\n",
        ),
    )
    assert planned(orders)["outputs"]["totals"]["change"] == "same"
    ran(orders)
    now = arrangements(orders)
    assert {name: now.get(name) for name in kept} == kept
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    ran(orders)
    assert contents(orders.folder / "out/pairs") == {
        ("north", 5, 5): 1, ("south", 7, 7): 1, ("south", 1, 1): 1, ("south", 1, 7): 1, ("south", 7, 1): 1,
    }  # fmt: skip
    assert contents(orders.folder / "out/totals") == {("north", 1, 1): 1, ("south", 4, 4): 1}
    edit(orders, ("  pairs: out/pairs/\n", ""))
    ran(orders)
    assert [*arrangements(orders)] == [*kept]


def test_an_output_less_is_forgotten_and_its_files_stay(orders):
    edit(orders, ("outputs:\n", "outputs:\n  regions: out/regions/\n"), ("collections:\n", "collections:\n" + REGIONS))
    ran(orders)
    before = files(orders.folder / "out/regions")
    edit(orders, ("  regions: out/regions/\n", ""))
    result = orders("plan", "orders.yaml")
    assert "  forget  regions; its files stay\n" in result.out
    ran(orders)
    assert files(orders.folder / "out/regions") == before
    assert len(arrangements(orders)) == 1


def test_another_name_for_an_output_changes_nothing(orders):
    ran(orders)
    before = files(orders.folder / "out"), arrangements(orders)
    edit(orders, ("  totals:\n", "  sums:\n"), ("  totals: out/totals/", "  sums: out/totals/"))
    assert not planned(orders)["needs_apply"]
    done = ran(orders)
    assert done["rebuilt"] == {}
    assert (files(orders.folder / "out"), arrangements(orders)) == before


def test_another_place_for_an_output_begins_it_there(orders):
    ran(orders)
    edit(orders, ("  totals: out/totals/", "  totals: out/elsewhere/"))
    ran(orders)
    assert contents(orders.folder / "out/elsewhere") == {("north", 1, 5): 1, ("south", 1, 7): 1}


def test_other_columns_need_another_place(orders):
    ran(orders)
    before = files(*orders.kept)
    edit(orders, ("orders: count(*), ", ""))
    result = orders("run", "orders.yaml", "--apply")
    assert result.code == 4
    assert "would have other columns" in result.err
    assert "another `path`" in result.err
    assert files(*orders.kept) == before
    edit(orders, ("  totals: out/totals/", "  totals: out/other/"))
    ran(orders)
    assert contents(orders.folder / "out/other") == {("north", 5): 1, ("south", 7): 1}


def test_an_input_more_is_taken_in_up_to_the_frontier(orders):
    ran(orders)
    orders.log("staff/1.parquet", [("south", 1, 0, 1), ("east", 2, 2, 1), ("east", 3, 7, 1)], **ORDER_COLUMNS)
    edit(
        orders,
        ("  orders: orders/\n", "  orders: orders/\n  staff: staff/\n"),
        ("    from: orders", "    from: [orders, staff]"),
    )
    assert orders("run", "orders.yaml").code == 4
    done = ran(orders, "--apply", "--until", "5")
    assert done["rebuilt"]["totals"]["rows"] == 3
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 2, 8): 1, ("east", 1, 2): 1}
    ran(orders)
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1, ("south", 2, 8): 1, ("east", 2, 5): 1}


def test_a_consumed_file_that_a_rebuild_needs_is_gone(orders):
    ran(orders)
    (orders.folder / "orders/1.parquet").unlink()
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    edit(orders, ("sum(amount)", "max(amount)"))
    before = files(*orders.kept)
    result = orders("run", "orders.yaml", "--apply")
    assert result.code == 3
    assert "1.parquet" in result.err
    assert files(*orders.kept) == before


def test_a_dry_run_of_a_change(orders):
    ran(orders)
    before = files(*orders.kept)
    edit(orders, ("sum(amount)", "sum(amount * 2)"))
    assert orders("run", "orders.yaml", "-n").code == 4
    done = ran(orders, "-n", "--apply")
    assert done["dry"]
    assert done["rebuilt"]["totals"]["rows"] == 4
    assert files(*orders.kept) == before


def test_a_full_refresh_reads_the_inputs_as_they_are_now(orders):
    """Also where files were replaced that had been taken in, which a run refuses."""
    ran(orders)
    orders.log("orders/1.parquet", [("north", 1, 0, 1)], **ORDER_COLUMNS)
    assert orders("run", "orders.yaml").code == 3
    done = ran(orders, "--full-refresh", "all")
    assert done["rebuilt"]["totals"]["rows"] == 3
    assert contents(orders.folder / "out/totals") == {("north", 1, 1): 1}
    done = ran(orders, "--full-refresh", "totals")
    assert done["rebuilt"]["totals"]["rows"] == 0


def test_a_refresh_of_what_is_no_output_is_wrong_use(orders):
    result = orders("run", "orders.yaml", "--full-refresh", "total")
    assert result.code == 2
    assert "did you mean 'totals'?" in result.err


def test_another_body_of_a_function_is_another_pipeline(orders):
    orders.write("prices.py", "def price(record):\n    return {'amount': record['amount']}  # euros\n")
    edit(orders, ("- reduce", "- map: {function: 'prices:price', columns: {amount: int64}}\n      - reduce"))
    edit(orders, ("by: [region], ", "by: [], "))
    script = "import sys; from ddcli.cli.main import main; main(sys.argv[1:])"
    assert orders.process("run", "orders.yaml", script=script).code == 0
    orders.write("prices.py", "# the same\ndef price(record):\n    return {'amount': record['amount']}\n")
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    assert orders.process("run", "orders.yaml", script=script).code == 0
    orders.log("orders/3.parquet", [("south", 1, 4, 1)], **ORDER_COLUMNS)
    for new in ("record['amount'] * 2", "record['amount'] + 0"):
        orders.write("prices.py", f"def price(record):\n    return {{'amount': {new}}}\n")
        result = orders.process("run", "orders.yaml", script=script)
        assert result.code == 4
        assert "prices:price" in result.err
    (orders.folder / "orders/3.parquet").unlink()
    assert "  change  totals" in orders.process("plan", "orders.yaml", script=script).out
    result = orders.process("run", "orders.yaml", "--apply", script=script)
    assert (result.code, "outputs corrected" in result.err) == (0, True), result


@pytest.mark.parametrize("told", ["format: upsert, key: [id]", "format: snapshots, key: [id]", "format: snapshots"])
def test_an_input_of_keys_or_tables_is_read_again_in_its_order(shop, told):
    """What its rows say depends on those before: a rebuild must not take them all as of one time."""
    text = f"""\
dd: 1
name: orders
inputs: {{stock: {{path: stock/, time: time, {told}}}}}
collections:
  sums: {{from: stock, apply: [{{reduce: {{by: [shop], n: sum(n)}}}}]}}
outputs: {{sums: out/sums/}}
"""
    shop.write("orders.yaml", text)
    types = {"id": pl.Int64, "shop": pl.String, "n": pl.Int64, "price": pl.Int64, "time": pl.Int64}
    shop.log(
        "stock/1.parquet", [(1, "a", 10, 5, 0), (2, "b", 20, 6, 0), (1, "a", 11, 5, 1), (2, "b", 21, 6, 1)], **types
    )
    ran(shop)
    assert contents(shop.folder / "out/sums") == {("a", 11): 1, ("b", 21): 1}
    edit(shop, ("sum(n)", "sum(n * 2)"))
    again = planned(shop)["inputs"]["stock"]["again_files"]
    assert again == 0  # the state has the records
    ran(shop, "--apply")
    assert contents(shop.folder / "out/sums") == {("a", 22): 1, ("b", 42): 1}
    edit(shop, ("sum(n * 2)", "sum(n * price)"))
    assert planned(shop)["inputs"]["stock"]["again_files"] == 1  # but not their prices
    ran(shop, "--apply")
    assert contents(shop.folder / "out/sums") == {("a", 55): 1, ("b", 126): 1}
    shop.log("stock/2.parquet", [(1, "a", 1, 5, 3), (2, "b", 1, 6, 3), (3, "b", 1, 1, 3)], **types)
    ran(shop)
    assert contents(shop.folder / "out/sums") == {("a", 5): 1, ("b", 7): 1}


def test_who_only_looks_changes_no_output(orders):
    ran(orders)
    before = files(orders.folder / "out")
    edit(
        orders,
        ("- reduce", "- inspect: seen\n      - reduce"),
        ("orders: orders/", "orders: {path: orders/, negative: warn}"),
    )
    assert not planned(orders)["needs_apply"]
    ran(orders)
    assert files(orders.folder / "out") == before
    orders.log("orders/2.parquet", [("south", 1, 3, 1)], **ORDER_COLUMNS)
    assert "seen: {'region': 'south', 'amount': 1} @ 3 +1" in orders("run", "orders.yaml").err
    assert contents(orders.folder / "out/totals")["south", 2, 8] == 1


def test_a_column_more_that_a_new_output_needs_rebuilds_nothing_either(orders):
    """Declared columns that nothing reads are no part of what there is, nor are they when somebody new does."""
    join = "- join: {with: orders, as: other, on: [region]}\n      - extend: {x: 1}\n      - reduce"
    edit(
        orders,
        ("- reduce", join),
        ("sum(amount)", "sum(x)"),
        ("orders: orders/", "orders: {path: orders/, columns: {region: string}}"),
    )
    ran(orders)
    kept = arrangements(orders)
    edit(
        orders,
        ("{region: string}", "{region: string, amount: int64}"),
        ("outputs:\n", "outputs:\n  sums: out/sums/\n"),
        ("collections:\n", "collections:\n  sums: {from: orders, apply: [{reduce: {by: [region], n: sum(amount)}}]}\n"),
    )
    assert {name: found["change"] for name, found in planned(orders)["outputs"].items()} == {
        "sums": "new",
        "totals": "same",
    }
    ran(orders)
    now = arrangements(orders)
    assert {name: now.get(name) for name in kept} == kept
    assert contents(orders.folder / "out/sums") == {("north", 5): 1, ("south", 7): 1}


def test_an_output_that_is_not_what_was_written_gives_no_difference(orders):
    ran(orders)
    path = orders.folder / "out/totals/updates-start-3.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    edit(orders, ("sum(amount)", "sum(amount * 2)"))
    result = orders("run", "orders.yaml", "--apply")
    assert result.code == 4
    assert "is not as it was written" in result.err
    assert len(list(path.parent.glob("*.parquet"))) == 1


def test_a_file_that_is_planned_otherwise_by_a_newer_version_needs_no_apply(orders, monkeypatch):
    """Its meaning is its text's; what the state keeps is built anew, and outputs are corrected where the older version was wrong."""
    query = 'sql: "select o.region, o.amount from orders o where exists (select 1 from orders b where b.region = o.region and b.amount = o.amount)"'
    monkeypatch.setattr("ddcli.job.kept_plan.load", lambda *_: None)
    with monkeypatch.context() as older:
        older.setattr("ddcli.plan.sql.block.decorrelated", lambda *_: None)
        edit(orders, ("outputs:\n", f"  less:\n    {query}\noutputs:\n  less: out/less/\n"))
        ran(orders)
    before = contents(orders.folder / "out/less")
    assert len(before) == 2
    orders.log("orders/2.parquet", [("east", 3, 3, 1)], **ORDER_COLUMNS)
    found = planned(orders)
    assert found["outputs"]["less"]["change"] == "changed"
    assert not found["needs_apply"]
    ran(orders)
    assert contents(orders.folder / "out/less") == before | {("east", 3): 1}


LOOPS = """\
  reach:
    iterate:
      variables: {all: orders}
      body:
        all: {from: all, apply: [{map: {region: region, amount: "least(amount, 100)"}}, distinct]}
      result: all
  steps: {sql: "with recursive s(r, n) as (select region, amount from orders union select r, least(n + 1, 9) from s) select * from s"}
"""


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("amount: int64", "amount: int32", "input: `orders (region string, amount int64)` is `orders (region string, amount int32)` now"),
        ("format: append", "format: upsert, key: [region]", "input `orders` is upserts now"),
        ("{all: orders}", "{all: {from: orders, apply: [{filter: amount > 0}]}}", "collection `reach`: changed"),
    ],
)  # fmt: skip
def test_a_changed_input_of_a_loop_is_named_without_the_loops_identity(orders, old, new, reason):
    text = "name: orders\ninputs: {orders: {path: csv/, format: append, columns: {region: string, amount: int64}}}\n"
    orders.write("orders.yaml", f"{text}collections:\n{LOOPS}outputs: {{reach: out/reach/, steps: out/steps/}}\n")
    orders.write("csv/1.csv", "region,amount\nnorth,1\nsouth,7\n")
    assert orders("run", "orders.yaml").code == 0
    edit(orders, (old, new))
    found = planned(orders)
    assert found["outputs"]["reach"]["why"][0] == reason
    assert found["outputs"]["reach"]["why"][1:] in (
        [],
        [*filter(lambda why: why.startswith("map:"), found["outputs"]["reach"]["why"])],
    )
    shown = orders("plan", "orders.yaml").out
    assert "build   a loop's variable by region, amount\n" in shown
    assert not re.search("[0-9a-f]{20}", shown + orders("run", "orders.yaml").err)


def test_an_edit_above_sums_reads_no_input(orders, monkeypatch):
    """The state has the sums of all groups, so that a filter on them needs no row of the input."""
    ran(orders)
    edit(orders, ("amount: sum(amount)}", "amount: sum(amount)}\n      - filter: amount < 6"))

    def read(*_):
        raise AssertionError("a row of an input is read")

    monkeypatch.setattr(LogReader, "read", read)
    ran(orders, "--apply")
    assert contents(orders.folder / "out/totals") == {("north", 1, 5): 1}
