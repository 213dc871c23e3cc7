"""Pipelines as assets of Dagster, run by Dagster itself: a run, a failure, a retry, checks that fail, and what its pages would show."""

import dagster
import pytest

from ddcli.dagster import assets
from ddcli.driver.run import run
from ddcli.errors import SpecErrors
from ddcli.store.files.gate import Files
from ddcli.store.files.lock import Lock

ORDERS = """\
dd: 1
name: orders
inputs:
  orders: {path: in/, format: append, columns: {id: int64, region: string, amount: int64}}
collections:
  sales: {from: orders, apply: [{reduce: {by: [region], amount: sum(amount)}}]}
outputs:
  orders: out/orders/
  sales: out/sales/
checks:
  - row: amount >= 0
    of: orders
  - row: amount < 100
    of: sales
    name: small sums
    otherwise: warn
"""
MONTH = """\
dd: 1
name: total-sales
inputs: {sales: {path: out/sales/}}
outputs: {sales: {from: total, path: out/total/}}
collections: {total: {from: sales, apply: [{map: {region: region, amount: amount * 2}}]}}
"""


@pytest.fixture
def shop(shop):
    shop.write("p/orders.yaml", ORDERS.replace(": in/", ": ../in/").replace(": out/", ": ../out/"))
    shop.write("p/total.yaml", MONTH.replace(": out/", ": ../out/"))
    shop.write("in/1.csv", "id,region,amount\n1,east,5\n2,west,7\n")
    return shop


def executed(shop, **options):
    """Have Dagster make all assets of the folder; return its result."""
    return dagster.materialize(assets(shop.folder / "p", **options), raise_on_error=False)


def metadata(result):
    """Return the metadata of each asset that was made."""
    found = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    return {each.asset_key.to_user_string(): each.metadata for each in found}


def updates(result):
    return {name: each["updates"].value for name, each in metadata(result).items()}


def retried(result):
    return [event.step_key for event in result.all_node_events if event.is_step_up_for_retry]


def evaluated(result):
    return {
        each.check_name: (each.passed, each.severity.value, each.metadata["violations"].value)
        for each in result.get_asset_check_evaluations()
    }


def test_a_run_makes_the_assets_of_all_pipelines_after_those_that_they_read(shop):
    result = executed(shop)
    assert result.success
    assert updates(result) == {"orders/orders": 2, "orders/sales": 2, "total-sales/sales": 2}
    assert evaluated(result) == {"orders_row_amount_0": (True, "ERROR", 0), "small_sums": (True, "WARN", 0)}
    shop.write("in/2.csv", "id,region,amount\n3,east,1\n")
    assert updates(executed(shop)) == {"orders/orders": 1, "orders/sales": 2, "total-sales/sales": 2}
    assert updates(executed(shop)) == {"orders/orders": 0, "orders/sales": 0, "total-sales/sales": 0}
    log = shop("log", "out/total", "--as-of", "latest", "-o", "csv").out
    assert log == "region,amount,diff\neast,12,1\nwest,14,1\n"


def test_assets_have_their_columns_their_lineage_and_the_assets_that_they_come_from(shop):
    graph = dagster.Definitions(assets=assets(shop.folder / "p")).resolve_asset_graph()
    landing = dagster.AssetKey(["file", *(shop.folder / "in").parts[1:]])
    sales, total = dagster.AssetKey(["orders", "sales"]), dagster.AssetKey(["total-sales", "sales"])
    assert graph.get(sales).parent_keys == {landing}
    assert graph.get(total).parent_keys == {sales}
    found = metadata(executed(shop))["total-sales/sales"]
    assert [(each.name, each.type) for each in found["dagster/column_schema"].schema.columns] == [
        ("region", "string?"),
        ("amount", "int64?"),
    ]
    by_column = found["dagster/column_lineage"].column_lineage.deps_by_column
    assert by_column["amount"] == [dagster.TableColumnDep(sales, "amount")]


def test_a_check_that_fails_stops_its_pipeline_and_those_that_read_it(shop):
    assert executed(shop).success
    shop.write("in/2.csv", "id,region,amount\n3,east,-1\n4,east,200\n")
    result = executed(shop, retry_policy=dagster.RetryPolicy(max_retries=3))
    assert not result.success
    assert updates(result) == {}
    assert evaluated(result) == {"orders_row_amount_0": (False, "ERROR", 1)}
    (failed,) = [event for event in result.all_node_events if event.is_step_failure]
    assert "nothing is committed" in failed.step_failure_data.error_display_string
    assert retried(result) == []
    shop.write("in/2.csv", "id,region,amount\n4,east,200\n")
    result = executed(shop)
    assert result.success
    assert evaluated(result)["small_sums"] == (False, "WARN", 1)


def test_a_check_of_a_commit_that_a_person_accepts_is_a_warning(shop):
    shop.write("in/2.csv", "id,region,amount\n3,east,-1\n")
    result = dagster.materialize(
        assets("p/orders.yaml", accept=["orders_row_amount_0"], reason="known"), raise_on_error=False
    )
    assert result.success
    assert evaluated(result)["orders_row_amount_0"] == (False, "WARN", 1)


def test_a_run_is_retried_where_another_attempt_may_succeed(shop, monkeypatch):
    """The first attempt finds the state locked; a refused input is no reason to try again."""
    attempts = []

    def busy_once(path, **options):
        attempts.append(path.name)
        if len(attempts) == 1:
            (path.parent / ".dd/orders").mkdir(parents=True)
            lock = Lock(path.parent / ".dd/orders", Files())
            try:
                return run(path, **options)
            finally:
                lock.release()
        return run(path, **options)

    monkeypatch.setattr("ddcli.dagster.run", busy_once)
    policy = dagster.RetryPolicy(max_retries=2)
    result = executed(shop, retry_policy=policy)
    assert result.success
    assert retried(result) == ["orders"]
    assert attempts == ["orders.yaml", "orders.yaml", "total.yaml"]
    shop.write("in/2.csv", "id,region,amount\nx,east,1\n")
    result = executed(shop, retry_policy=policy)
    assert (result.success, retried(result)) == (False, [])
    (failed,) = [event for event in result.all_node_events if event.is_step_failure]
    assert "in/2.csv" in failed.step_failure_data.error_display_string


def test_a_file_with_errors_is_refused_when_dagster_loads_it(shop):
    shop.write("p/wrong.yaml", ORDERS.replace("outputs:", "output:"))
    with pytest.raises(SpecErrors, match=r"wrong\.yaml"):
        assets(shop.folder / "p/wrong.yaml")
