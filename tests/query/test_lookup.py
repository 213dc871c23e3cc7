"""A lookup that is asked several times in one process."""

from __future__ import annotations

import polars as pl

from ddcli.driver.run import run
from ddcli.query import Lookup

PIPELINE = """
dd: 1
name: shop
history: all
inputs:
  sales: {path: in/}
collections:
  best:
    from: sales
    apply:
      - reduce: {by: [item], price: max(price)}
outputs: {best: out/}
"""


def test_what_was_asked_for_before_changes_no_answer(tmp_path):
    """A small batch stays in memory as it was read: the times in it are those of the state, whatever was asked."""
    path = tmp_path / "shop.yaml"
    path.write_text(PIPELINE)
    (tmp_path / "in").mkdir()
    sales = {"item": [1, 1, 1], "price": [3, 5, 7], "time": [0, 1, 2], "diff": [1, 1, 1]}
    pl.DataFrame(sales).write_parquet(tmp_path / "in" / "sales.parquet")
    run(path)
    lookup = Lookup.open(path, "best")
    asked = [lookup.rows({"item": 1}, as_of=as_of)["price"].to_list() for as_of in (0, None, 0, 1)]
    assert asked == [[3], [7], [3], [5]]
