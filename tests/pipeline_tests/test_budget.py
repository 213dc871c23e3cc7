"""Budgets of a test's steps: a step that takes more rows fails, at its bound, with the operator that took most."""

import pytest

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
        ("{seconds: 5}", "unknown key 'seconds'"),
        ("{}", "found an empty one"),
        ("{rows: many}", "wants a number of rows"),
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
