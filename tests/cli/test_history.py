"""How much of the past arrangements keep."""

import polars as pl
import pytest

from ddcli.store.state.manifest import read_newest
from tests.harness import ORDER_COLUMNS


def since(shop):
    """Return since when each arrangement of the state tells times apart."""
    return {entry.since for entry in read_newest(shop.folder / ".dd/orders").arrangements.values()}


def say(shop, history, output=""):
    text = (
        (shop.folder / "orders.yaml")
        .read_text()
        .replace("name: orders\n", f"name: orders\nhistory: {history}\n" if history else "name: orders\n")
    )
    shop.write(
        "orders.yaml",
        text.replace("totals: out/totals/", f"totals: {{path: out/totals/, history: {output}}}") if output else text,
    )


def run(shop):
    result = shop("run", "orders.yaml")
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("whole", "output", "wanted"),
    [("", "", (8,)), ("3", "", (5,)), ("0", "", (8,)), ("", "2", (6,)), ("3", "5", (3,)), ("5", "3", (3,)), ("2", "all", None)],
)  # fmt: skip
def test_times_stay_apart_as_far_back_as_is_asked_for(orders, whole, output, wanted):
    say(orders, whole, output)
    run(orders)
    orders.log("orders/2.parquet", [("south", 1, 7, 1)], **ORDER_COLUMNS)
    run(orders)
    assert since(orders) == ({(wanted,)} if wanted else {((-(2**63),),)})


def test_what_is_gone_does_not_come_back(orders):
    say(orders, "1")
    run(orders)
    text = (orders.folder / "orders.yaml").read_text()
    orders.write("orders.yaml", text.replace("history: 1", "history: 100"))
    orders.log("orders/2.parquet", [("south", 1, 7, 1)], **ORDER_COLUMNS)
    run(orders)
    assert since(orders) == {((2,),)}


def test_durations_are_of_the_times_type(orders):
    say(orders, "36 hours")
    result = orders("run", "orders.yaml")
    assert result.code == 2
    assert "a `history` in hours means nothing" in result.err
    frame = pl.DataFrame({"region": ["n"], "amount": [1], "time": ["2013-01-10 06:00"]})
    (orders.folder / "orders/1.parquet").unlink()
    times = pl.col("time").str.to_datetime("%Y-%m-%d %H:%M")
    frame.with_columns(times.cast(pl.Date)).write_parquet(orders.folder / "orders/1.parquet")
    run(orders)
    upper = read_newest(orders.folder / ".dd/orders").upper
    assert since(orders) == {((upper[0][0] - 2,),)}


def test_a_length_that_is_none_is_refused_at_its_place(orders):
    say(orders, "soon")
    result = orders("run", "orders.yaml")
    assert result.code == 2
    assert result.err.startswith("orders.yaml:3:10: error: history: 'soon' can't be a length of time")
