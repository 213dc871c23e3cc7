"""A folder in which the tests of commands write pipelines and run them."""

import os

import polars as pl
import pytest

from tests.cli.support import Shop

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
def shop(tmp_path, monkeypatch, capfd):
    """Return an empty shop, which is not on GitHub, where commands say more."""
    for name in [name for name in os.environ if name.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return Shop(tmp_path, capfd)


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
