"""A folder in which the tests of commands write pipelines and run them."""

import polars as pl
import pytest

ORDERS = """\
dd: 1
name: orders
inputs:
  orders: orders/
collections:
  totals:
    from: orders
    apply:
      - reduce: {by: [region], orders: count(*), amount: sum(amount)}
outputs:
  totals: out/totals/
"""


@pytest.fixture
def orders(shop):
    """Return a shop with a pipeline `orders.yaml` over a log of one file, not yet run."""
    shop.write("orders.yaml", ORDERS)
    shop.log(
        "orders/1.parquet",
        [("north", 10, 0, 1), ("north", 5, 1, 1), ("south", 7, 1, 1), ("north", 10, 2, -1)],
        region=pl.String,
        amount=pl.Int64,
        time=pl.Int64,
        diff=pl.Int64,
    )
    return shop
