"""`dd verify`: outputs against their inputs, from the command line."""

import json

import polars as pl
import pytest

from tests.harness import ORDER_COLUMNS, ORDERS

TEXT = ORDERS.replace(
    "outputs:\n", "  all:\n    from: orders\n    apply: [{reduce: {n: count(*)}}]\noutputs:\n  all: out/all/\n"
)


@pytest.fixture
def ran(orders):
    orders.write("orders.yaml", TEXT)
    assert orders("run", "orders.yaml").code == 0
    return orders


def verified(ran, *options):
    result = ran("verify", "orders.yaml", "-o", "json", *options)
    return result.code, json.loads(result.out)


def test_a_clean_state(ran):
    """Rows that came since are no fault of it."""
    ran.log("orders/9.parquet", [("west", 9, 9, 1)], **ORDER_COLUMNS)
    code, tree = verified(ran, "--slice", "100%")
    assert (code, tree["same"], tree["slice"]) == (0, True, {"number": 1, "parts": 1})
    assert tree["unproven"] == {"all": "no column's values decide which rows of the inputs matter to it"}
    assert tree["outputs"]["totals"]["column"] == "region"
    code, tree = verified(ran, "--all")
    assert (code, tree["same"], [*tree["outputs"]], tree["unproven"]) == (0, True, ["all", "totals"], {})


def test_records_that_are_missing_too_many_and_others(ran):
    (log,) = (ran.folder / "out/totals").glob("*.parquet")
    before = pl.read_parquet(log)
    frame = before.with_columns(
        region=pl.when(pl.col("region") == "south").then(pl.lit("east")).otherwise("region"),
    )
    frame.write_parquet(log)
    code, tree = verified(ran, "--slice", "1/1", "--select", "totals")
    differ = tree["outputs"]["totals"]["first"]
    assert (code, {(each["diff"], each["record"]["region"]) for each in differ}) == (1, {(1, "south"), (-1, "east")})
    text = ran("verify", "orders.yaml", "--slice", "1/1").out
    assert "by the inputs, not in the log" in text
    assert "all: not verified: no column's values decide" in text


def test_a_file_that_has_changed_since(ran):
    ran.write("orders.yaml", TEXT.replace("sum(amount)", "max(amount)"))
    result = ran("verify", "orders.yaml")
    assert (result.code, "the pipeline has changed since its state was made" in result.err) == (4, True)


def test_an_input_file_that_has_changed_since(ran):
    ran.log("orders/1.parquet", [("west", 9, 0, 1)], **ORDER_COLUMNS)
    assert ran("verify", "orders.yaml", "--slice", "1/1").code == 3
    assert ran("verify", "orders.yaml", "--all").code == 3


@pytest.mark.parametrize("part", ["0/3", "4/3", "0%", "101%", "some"])
def test_slices_that_there_are_not(ran, part):
    result = ran("verify", "orders.yaml", "--slice", part)
    assert (result.code, "there is no such slice" in result.err) == (2, True)


def test_no_state(orders):
    result = orders("verify", "orders.yaml")
    assert (result.code, "there is no state to verify" in result.err) == (4, True)
