"""The case of a shop: CSV files of orders and of their items, of which 1 000 orders change, beside DuckDB from the same files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import duckdb

from tests.bench import checksums
from tests.bench.data import CHANGED
from tests.bench.files import Program, Session, figure, same, side_by_side, size
from tests.bench.processes import ROOT, python
from tests.bench.table import Asked, Figure
from tests.bench.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

PEER = ROOT / "tests" / "bench" / "peers" / "duckdb_shop.py"
DAYS = 100
"""Files of each input: one a day."""
COLUMNS = ("store", "day", "orders", "items", "amount")
PIPELINE = """\
dd: 1
name: shop
inputs:
  orders:
    path: orders/
    format: upsert
    key: [id]
    columns: {id: int64, store: int64, status: string, day: int64}
  items:
    path: items/
    format: append
    columns: {order_id: int64, sku: int64, amount: "decimal(9, 2)"}
collections:
  sales:
    sql: |
      select store, day, count(distinct id) as orders, count(*) as items, sum(amount) as amount
      from orders join items on order_id = id
      where status <> 'returned'
      group by store, day
outputs: {sales: out}
"""
ORDERS = "select i as id, hash(i) % 40 as store, if(hash(i, {seed}) % 20 = 0, 'returned', 'paid') as status, i * {days} // {rows} as day"


def files(folder: Path, orders: int) -> Path:
    """Make `orders/`, one file a day, `items/` with three for every two orders, and `next.csv`, orders of any day as they are corrected."""
    place = folder / f"shop-{orders}"
    if (place / "next.csv").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    with duckdb.connect() as connection:
        for name in ("orders", "items"):
            (place / name).mkdir(parents=True)
        for day in range(DAYS):
            first, end = day * orders // DAYS, (day + 1) * orders // DAYS
            rows = f"{ORDERS.format(seed=1, days=DAYS, rows=orders)} from range({first}, {end}) r(i)"
            connection.execute(f"copy ({rows}) to '{place}/orders/{day:03d}.csv' (header)")
            items = (
                f"select i * 2 // 3 as order_id, hash(i) % 500 as sku, (hash(i, 2) % 10000 / 100)::decimal(9, 2) as amount "
                f"from range({first * 3 // 2}, {end * 3 // 2}) r(i)"
            )
            connection.execute(f"copy ({items}) to '{place}/items/{day:03d}.csv' (header)")
        some = f"select distinct hash(i, 3) % {orders} as i from range({min(CHANGED, orders // 2)}) r(i)"
        rows = f"{ORDERS.format(seed=4, days=DAYS, rows=orders)} from ({some}) order by id"
        connection.execute(f"copy ({rows}) to '{place}/half.csv' (header)")
    (place / "half.csv").rename(place / "next.csv")
    return place


def shop(session: Session) -> list[Figure]:
    """Load a shop, then take in a file with changed orders; DuckDB computes the same from all files each time."""
    orders = session.rows * 17 // 100
    source = files(session.folder, orders)
    workspace = Workspace(session.place("shop"), PIPELINE)
    for name in ("orders", "items"):
        shutil.copytree(source / name, workspace.folder / name)
    out = session.place("shop-duckdb.parquet")
    peer = Program(python(PEER, out, workspace.folder))

    def compare() -> None:
        same("duckdb", checksums.of_log(workspace.output, COLUMNS), checksums.of_table(out, COLUMNS))

    loads = side_by_side({"dd": Program(workspace.command, workspace.clear), "duckdb": peer}, min(session.runs, 3))
    compare()
    workspace.save()
    # The name is the last one: of two rows of an order the one that arrived last is the newest.
    shutil.copy(source / "next.csv", workspace.folder / "orders" / f"{DAYS:03d}.csv")
    changes = side_by_side({"dd": Program(workspace.command, workspace.restore), "duckdb": peer}, session.runs)
    compare()
    what = f"a shop of {orders / 1e6:.2g} M orders and {orders * 1.5 / 1e6:.2g} M items in {2 * DAYS} CSV files"
    return [
        figure(f"{what}, load", loads, Asked(), {"duckdb": "duckdb"}, full=session.full),
        figure(
            f"{what}, then {size(CHANGED)} changed orders",
            changes,
            Asked(times=1, peer="duckdb"),
            {"duckdb": "duckdb"},
            full=session.full,
        ),
    ]
