"""`dd import dbt` beside dbt itself: each model of a project is equal to what dbt builds, after each of three steps, or it is left out."""

# ruff: noqa: DTZ001 - the timestamps of the projects have no zone

import csv
import datetime as dt
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from tests.draws import chance
from tests.imports.judge import DBT, Judged

PROJECTS = Path(__file__).parent / "projects"
STEPS = 3
pytestmark = [
    pytest.mark.slow,
    pytest.mark.in_turn,
    pytest.mark.skipif(not DBT.exists(), reason="there is no dbt: `make tools` installs it beside the environment"),
]
SCHEMAS = {
    "raw.customers": {"id": pl.Int64, "name": pl.String, "email": pl.String, "country": pl.String, "joined": pl.Date},
    "raw.orders": {"id": pl.Int64, "customer": pl.Int64, "status": pl.String, "placed": pl.Datetime, "discount": pl.Float64},
    "raw.payments": {"id": pl.Int64, "order_id": pl.Int64, "method": pl.String, "cents": pl.Int64},
    "app.events": {"id": pl.Int64, "person": pl.String, "moment": pl.Datetime, "kind": pl.String, "value": pl.Float64},
    "app.plans": {"id": pl.Int64, "person": pl.String, "month": pl.Date, "amount": pl.Decimal(12, 2)},
    "crm.accounts": {"id": pl.Int64, "owner": pl.String, "tier": pl.String, "changed": pl.Datetime},
    "crm.invoices": {"id": pl.Int64, "account": pl.Int64, "moment": pl.Datetime, "amount": pl.Decimal(12, 2)},
}  # fmt: skip
FIRST = dt.datetime(2024, 1, 1)


def moment(rng, days):
    """Return a time at a full minute, now and then one that others have, too."""
    return FIRST + dt.timedelta(days=rng.randrange(days), minutes=rng.choice([0, 1, 17, 29, 30, 31, 600, 1439]))


def row(rng, name, key):
    """Return a random row of a table."""
    rows = {
        "raw.customers": lambda: [
            *(rng.choice([" Ann Ash", "Bob", "Cid Ö Ek ", None, ""]), rng.choice(["a@x.org", "B@Y.ORG", "none", None])),
            *(rng.choice(["de", "fr", "nl", "DE", None]), FIRST.date() - dt.timedelta(days=rng.randrange(99))),
        ],
        "raw.orders": lambda: [
            *(rng.randrange(14), rng.choice(["placed", "paid", "shipped", "returned", None]), moment(rng, 80)),
            rng.choice([0.0, 0.125, 0.335, 0.5, None]),
        ],
        "raw.payments": lambda: [
            *(rng.randrange(40), rng.choice(["card", "cash", "voucher", "wire"])),
            rng.choice([1, 250, 999, 12_345, -100, None, rng.randrange(20_000)]),
        ],
        "app.events": lambda: [
            *(rng.choice(["ann", "bob", "cid", None]), rng.choice([None, moment(rng, 4), moment(rng, 4)])),
            *(rng.choice(["view", "click", "buy"]), rng.choice([0.0, 0.1, 0.5, -1.25, 1e9, None])),
        ],
        "app.plans": lambda: [
            *(rng.choice(["ann", "bob", "cid"]), dt.date(2024, rng.randrange(1, 7), 1)),
            rng.choice([Decimal("0.00"), Decimal("9.99"), Decimal("20.00"), None]),
        ],
        "crm.accounts": lambda: [rng.choice(["ann", "bob", None]), rng.choice(["free", "pro"]), moment(rng, 3)],
        "crm.invoices": lambda: [rng.randrange(8), moment(rng, 60), rng.choice([Decimal("10.00"), Decimal("-0.05"), None])],
    }  # fmt: skip
    return [key, *rows[name]()]


def tables(rng, sizes):
    """Return the tables of each step as frames: rows come, change and go."""
    held = {name: {} for name in sizes}
    found = []
    for at in range(STEPS):
        for name, rows in held.items():
            for key in list(rows):
                fate = rng.random()
                if fate < 0.1:
                    del rows[key]
                elif fate < 0.3:
                    rows[key] = row(rng, name, key)
                    if name == "crm.accounts":  # dbt's snapshots see only what is marked as changed
                        rows[key][-1] = FIRST + dt.timedelta(days=10 * at, minutes=rng.randrange(1000))
            new = sizes[name] if not at else sizes[name] // 4
            rows |= {key: row(rng, name, key) for key in range(at * 1000, at * 1000 + new)}
        found.append(
            {name: pl.DataFrame(list(rows.values()), schema=SCHEMAS[name], orient="row") for name, rows in held.items()}
        )
    return found


def judge(judged):
    """Compare each step, and return the report of the import."""
    for at in range(STEPS):
        judged.land(at)
        if not at:
            report = judged.imported()
        ran = judged.shop("run", "project/p.yaml")
        assert ran.code == 0, ran.err
        wrong = judged.compare(at)
        assert not wrong, "\n".join(map(str, wrong))
    return report


def left(report):
    return [each["problem"] for each in report["left_out"]]


def test_a_shop(shop):
    """Sources, one of them a seed of the project that grows, staging and marts, macros, an ephemeral and an incremental model, generic and singular tests, metrics."""
    sizes = {"raw.customers": 16, "raw.orders": 40, "raw.payments": 70}
    lines = (PROJECTS / "orders/seeds/countries.csv").read_text().splitlines()
    seeds = [{"countries": list(csv.reader(lines[:count]))} for count in (3, 4, 5)]
    judged = Judged(shop, PROJECTS / "orders", tables(chance("dbt orders"), sizes), seeds)
    report = judge(judged)
    assert left(report) == [
        "model `left_out`: `median`: of decimals it is a float here, and in DuckDB a decimal of as many digits",
        "model `after_left_out`: it reads `left_out`, which is left out",
    ]
    assert "not imported, as they produce no data: 1 metric, 1 semantic model, 1 saved query" in report["notes"]
    assert judged.compared == {
        *("countries_by_month", "daily_sales", "days", "dim_customers", "fct_orders", "never_ordered", "settled"),
        *("time_spine", "paid_once", "unique_fct_orders_order_id", "at_least_fct_orders_amount__0"),
        "relationships_fct_orders_customer_id__customer_id__ref_dim_customers_",
        *("not_null_dim_customers_email", "not_null_fct_orders_order_id"),
        "accepted_values_fct_orders_status__placed__paid__shipped__returned",
    }


def test_windows(shop):
    judged = Judged(shop, PROJECTS / "usage", tables(chance("dbt usage"), {"app.events": 80, "app.plans": 20}))
    assert left(judge(judged)) == []
    assert judged.compared == {
        *("clean_events", "ranked", "revenue_by_month", "revenue_changes", "running", "sessions", "top_kinds"),
        *("unique_ranked_id", "not_null_ranked_id"),
        "accepted_values_revenue_changes_category__new__churn__back__up__down",
    }


def test_snapshots(shop):
    judged = Judged(shop, PROJECTS / "history", tables(chance("dbt history"), {"crm.accounts": 9, "crm.invoices": 40}))
    assert left(judge(judged)) == []
    assert judged.compared == {"current_accounts", "invoices_with_tier", "owners_per_account", "tier_changes"}


def accounts(rng, steps):
    """Return the table of accounts after each step: they come, change, go, and come back."""
    held, found = {}, []
    for at in range(steps):
        for key in range(9):
            fate = rng.random()
            if key in held and fate < 0.25:
                del held[key]
            elif (key in held and fate < 0.6) or (key not in held and fate < 0.5):
                held[key] = row(rng, "crm.accounts", key)
                held[key][-1] = FIRST + dt.timedelta(days=at, minutes=rng.randrange(1000))
        schema = SCHEMAS["crm.accounts"]
        found.append({"crm.accounts": pl.DataFrame(list(held.values()), schema=schema, orient="row")})
    return found


def test_a_snapshot_that_both_continue(shop):
    """A history begins from dbt's table after some steps, and then both have the same rows after each step; times after it are those of the runs."""
    first, steps = 2, 7
    judged = Judged(shop, PROJECTS / "continued", accounts(chance("dbt continued"), steps))
    snapshots = {"all_columns": ["id", "owner", "tier", "changed"], "owners": ["id", "owner"]}
    snapshots |= {"by_time": ["id", "owner", "tier", "changed"]}
    (judged.project / "before").mkdir()
    for name in snapshots:
        begin = judged.project / f"before/{name}.parquet"
        pl.read_parquet(judged.steps / str(first) / "built" / f"{name}.parquet").write_parquet(begin)
    judged.tables = judged.tables[first:]
    times = {name: {} for name in snapshots}
    began = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    for at in range(steps):
        now = began + dt.timedelta(minutes=at)
        if at >= first:
            judged.land(at - first)
            if at == first:
                assert left(judged.imported()) == []
            ran = shop("run", "project/p.yaml", "--now", str(now))
            assert ran.code == 0, ran.err
        for name, columns in snapshots.items():
            built = pl.read_parquet(judged.steps / str(at) / "built" / f"{name}.parquet")
            wanted = built.select(*columns, "dbt_valid_from", "dbt_valid_to").rows()
            known = times[name]
            for time in {time for row in wanted for time in row[-2:]} - {None}:
                known.setdefault(time, time if at <= first or name == "by_time" else now)
            if at < first:
                continue
            rows = pl.read_parquet(judged.project / f"out/{name}.parquet")
            found = rows.select(*columns, "valid_from", "valid_to").rows()
            assert rows["is_current"].to_list() == rows["valid_to"].is_null().to_list()
            wanted = [(*each, known[since], until and known[until]) for *each, since, until in wanted]
            if name == "by_time":  # dbt's are the times in the data, ours those of runs
                found, wanted = ([(*each[:-2], each[-1] is None) for each in rows] for rows in (found, wanted))
            assert sorted(found, key=repr) == sorted(wanted, key=repr), (name, at)
    assert len(wanted) > len({each[0] for each in wanted})
