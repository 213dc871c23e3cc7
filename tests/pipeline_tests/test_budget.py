"""Budgets of a test's steps: a step that takes more fails, at its bound, with the operator that took most."""

import re

import polars as pl
import pytest

from ddcli.store.state.manifest import read_newest
from tests.cases import cases
from tests.draws import some

PIPELINE = """\
dd: 1
name: p
inputs:
  orders: {path: in/, columns: {region: string, amount: int64}}
collections:
  most:
    from: orders
    apply:
      - reduce: {by: [region], most: FUNCTION(amount), all: count(distinct amount)}
outputs: {most: out/}
tests:
  - name: a change reads its group
    steps:
      - given: {orders: [{region: a, amount: 1}, {region: a, amount: 2}, {region: b, amount: 3}, {region: b, amount: 4}]}
      - given: {orders: [{region: b, amount: 5}]}
        budget: BUDGET
"""


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        ("{rows: 13}", None),
        ("{operator: {rows: 6}}", None),
        ("{rows: 12}", "p.yaml:16:24: error: step 2: budget.rows: the step took 13 rows, and the budget is 12 rows; most of it, 6 rows, "),
        ("{operator: {rows: 5}}", "p.yaml:16:35: error: step 2: budget.operator.rows: reduce of collections.most.apply[0].reduce took 6 rows"),
    ],
)  # fmt: skip
def test_rows_of_a_step(shop, budget, problem):
    """Of the group all rows are read, however small the change; the first step is another's."""
    shop.write("p.yaml", PIPELINE.replace("FUNCTION", "max").replace("BUDGET", budget))
    result = shop("test", "p.yaml")
    assert result.code == (1 if problem else 0), result
    if problem:
        assert problem in result.out
        assert "p.yaml:9:9" in result.out


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        ("{seconds: 5min, operator: {seconds: 1h}}", None),
        ("{seconds: 0.0000001}", "p.yaml:16:27: error: step 2: budget.seconds: the step took "),
        ("{operator: {seconds: 0.0000001}}", "p.yaml:16:38: error: step 2: budget.operator.seconds: "),
    ],
)
def test_seconds_of_a_step(shop, budget, problem):
    shop.write("p.yaml", PIPELINE.replace("FUNCTION", "max").replace("BUDGET", budget))
    result = shop("test", "p.yaml")
    assert result.code == (1 if problem else 0), result
    assert (problem or "1 passed") in result.out


WRITING = """\
dd: 1
name: p
inputs:
  orders: {path: in/, columns: {region: int64, amount: int64}, time: time}
collections:
  found:
    from: orders
    apply: [OPERATOR]
outputs: {found: out/}
tests:
  - name: what a commit writes
    steps:
      - {given: {orders: [{region: 1, amount: 2}, {region: 1, amount: 3}]}, expect: {collection: found, non_negative: true}, budget: {bytes: FIRST}}
      - {given: {orders: [{region: 1, amount: 4}]}, budget: {bytes: SECOND}}
      - {given: {orders: [{region: 1, amount: 5}]}, budget: {bytes: SECOND}}
"""


OPERATORS = [
    "filter: amount > 0",
    "reduce: {by: [region], most: max(amount)}",
    "reduce: {by: [region], n: count(*)}",
    "join: {with: orders, on: [region, amount], as: other}",
    "distinct",
    "top_k: {by: [region], order_by: [amount desc], k: 1}",
    "window: {by: [region], order_by: [amount], columns: {before: lag(amount)}}",
    "temporal_filter: {from: amount - 1000000, until: amount + 1000000}",
]


@pytest.mark.parametrize("operator", [*some(OPERATORS)])
def test_bytes_are_those_of_the_files_of_a_run(shop, operator):
    """A step of a test and a run that begins write the same files. A later step's are its own, however much the first gave."""

    def test(first, second="1MB", more=""):
        text = WRITING.replace("OPERATOR", operator).replace("FIRST", str(first)).replace("SECOND", str(second))
        text = text.replace("amount: 3}]", f"amount: 3}}{more}]")
        shop.write("p.yaml", text)
        return shop("test", "p.yaml")

    test("1MB")
    shop.log(
        "in/0.parquet", [(1, 2, 0, 1), (1, 3, 0, 1)], region=pl.Int64, amount=pl.Int64, time=pl.Int64, diff=pl.Int64
    )
    assert shop("run", "p.yaml").code == 0
    manifest = read_newest(shop.folder / ".dd/p")
    files = [file for entry in manifest.arrangements.values() for shard in entry.shards for file in shard]
    written = sum(file.size for file in files) + sum(
        file.size for one in manifest.outputs.values() for file in one.files
    )
    assert test(written).code == 0, test(written).out
    result = test(written - 1)
    assert result.code == 1
    assert "error: step 1: budget.bytes: the step took " in result.out
    assert "step 2: budget.bytes" in test("1MB", 0).out
    many = "".join(f", {{region: {at}, amount: {at * at * 7919 % 1000003}}}" for at in range(2, 300))
    first, second, third = re.findall(r"took ([\d.]+) kB", test(1, 1, many).out)
    assert float(first) > 1.2 * float(second)
    assert float(third) < 1.2 * float(second)


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        ("{work: groups}", "unknown key 'work'"),
        ("{seconds: 5kB}", "must be a number of seconds"),
        ("{}", "found an empty one"),
        ("{rows: many}", "must be a number of rows"),
    ],
)
def test_what_is_no_budget_of_a_step(shop, budget, problem):
    shop.write("p.yaml", PIPELINE.replace("FUNCTION", "max").replace("BUDGET", budget))
    result = shop("test", "p.yaml")
    assert result.code == 2
    assert problem in result.err


def test_what_is_always_expected_has_no_budget(shop):
    text = PIPELINE.replace("FUNCTION", "max").replace("BUDGET", "{rows: 99}")
    shop.write("p.yaml", text + "  - {expect: {collection: most, unique: [region]}, budget: {rows: 1}}\n")
    result = shop("check", "p.yaml")
    assert result.code == 2
    assert "has a budget, but no `given`" in result.err


@cases("""
expected → problem → hint
{most: [{region: a}]} → p.yaml:18:14: error: tests[1].expect: unknown key 'most' → `{collection: most, contents: [...]}`
[{most: []}] → p.yaml:18:15: error: tests[1].expect[0]: unknown key 'most' → `{collection: most, contents: [...]}`
{collection: most} → p.yaml:18:13: error: tests[1].expect: nothing is expected of the collection → add one of contents,
{collection: most, at: 1} → nothing is expected of the collection → add one of contents,
{collection: most, non_negative: false} → nothing is expected of the collection → add one of contents,
{collection: most, unique: [region], at: 1} → `at` is about contents, and there is none → add `contents`, or remove `at`
{collection: most, unique: [region], tolerance: 1} → `tolerance` is about contents or changes, and there is none → remove `tolerance`
{} → must be what is expected, found an empty one → for example `{collection:
{unique: [region]} → the key 'collection' is missing → for example `{collection:
""")
def test_what_expects_nothing(shop, expected, problem, hint):
    text = PIPELINE.replace("FUNCTION", "max").replace("BUDGET", "{rows: 99}")
    shop.write("p.yaml", text + f"  - name: one\n    expect: {expected}\n    given: {{orders: []}}\n")
    result = shop("test", "p.yaml")
    assert result.code == 2
    assert problem in result.err
    assert hint in result.err
