"""polars' streaming engine on TPC-H: Parquet in, Parquet out.

    python polars_tpch.py QUERY OUT FOLDER

QUERY is one of those below; FOLDER has a file for each table.
"""

import sys
from datetime import date

import polars as pl
from polars import col

query, out, folder = sys.argv[1:]


def table(name: str) -> pl.LazyFrame:
    """Return a table, of which nothing is read yet, without the time and the multiplicity that it has as a log."""
    return pl.scan_parquet(f"{folder}/{name}.parquet").drop("time", "diff", strict=False)


def q01() -> pl.LazyFrame:
    """Return the summary of prices."""
    by = ["l_returnflag", "l_linestatus"]
    return (
        table("lineitem")
        .filter(col("l_shipdate") <= date(1998, 9, 2))
        .group_by(by)
        .agg(
            col("l_quantity").sum().alias("sum_qty"),
            col("l_extendedprice").sum().alias("sum_base_price"),
            reduced.sum().alias("sum_disc_price"),
            (reduced * (1 + col("l_tax"))).sum().alias("sum_charge"),
            col("l_quantity").mean().alias("avg_qty"),
            col("l_extendedprice").mean().alias("avg_price"),
            col("l_discount").mean().alias("avg_disc"),
            pl.len().cast(pl.Int64).alias("count_order"),
        )
    )


def q03() -> pl.LazyFrame:
    """Return the orders not yet shipped with the highest revenue."""
    day = date(1995, 3, 15)
    return (
        table("customer")
        .filter(col("c_mktsegment") == "BUILDING")
        .join(table("orders").filter(col("o_orderdate") < day), left_on="c_custkey", right_on="o_custkey")
        .join(table("lineitem").filter(col("l_shipdate") > day), left_on="o_orderkey", right_on="l_orderkey")
        .group_by("o_orderkey", "o_orderdate", "o_shippriority")
        .agg(reduced.sum().alias("revenue"))
        .sort("revenue", "o_orderdate", descending=[True, False])
        .head(10)
        .select(col("o_orderkey").alias("l_orderkey"), "revenue", "o_orderdate", "o_shippriority")
    )


def q05() -> pl.LazyFrame:
    """Return what the nations of Asia bought of their own suppliers in a year."""
    ordered = col("o_orderdate")
    nations = table("nation").join(
        table("region").filter(col("r_name") == "ASIA"), left_on="n_regionkey", right_on="r_regionkey"
    )
    return (
        table("customer")
        .join(nations, left_on="c_nationkey", right_on="n_nationkey")
        .join(
            table("orders").filter((ordered >= date(1994, 1, 1)) & (ordered < date(1995, 1, 1))),
            left_on="c_custkey",
            right_on="o_custkey",
        )
        .join(table("lineitem"), left_on="o_orderkey", right_on="l_orderkey")
        .join(table("supplier"), left_on=["l_suppkey", "c_nationkey"], right_on=["s_suppkey", "s_nationkey"])
        .group_by("n_name")
        .agg(reduced.sum().alias("revenue"))
    )


def q06() -> pl.LazyFrame:
    """Return what lower discounts would have brought."""
    shipped = col("l_shipdate")
    asked = (shipped >= date(1994, 1, 1)) & (shipped < date(1995, 1, 1)) & (col("l_quantity") < 24)
    asked &= col("l_discount").is_between(pl.lit("0.05").cast(MONEY), pl.lit("0.07").cast(MONEY))
    return table("lineitem").filter(asked).select((price * discount).sum().alias("revenue"))


def q13() -> pl.LazyFrame:
    """Return how many customers have how many orders."""
    orders = table("orders").filter(~col("o_comment").str.contains("special.*requests"))
    return (
        table("customer")
        .join(orders, left_on="c_custkey", right_on="o_custkey", how="left")
        .group_by("c_custkey")
        .agg(col("o_orderkey").count().cast(pl.Int64).alias("c_count"))
        .group_by("c_count")
        .agg(pl.len().cast(pl.Int64).alias("custdist"))
    )


def q14() -> pl.LazyFrame:
    """Return the share of promoted parts in a month's revenue."""
    shipped = col("l_shipdate")
    lines = table("lineitem").filter((shipped >= date(1995, 9, 1)) & (shipped < date(1995, 10, 1)))
    promoted = pl.when(col("p_type").str.starts_with("PROMO")).then(reduced)
    return (
        lines.join(table("part"), left_on="l_partkey", right_on="p_partkey")
        .select(promoted.sum().alias("promoted"), reduced.sum().alias("all"))
        .select((100.0 * col("promoted").cast(pl.Float64) / col("all").cast(pl.Float64)).alias("promo_revenue"))
    )


def q18() -> pl.LazyFrame:
    """Return the customers with the largest orders."""
    large = table("lineitem").group_by("l_orderkey").agg(col("l_quantity").sum().alias("sum_qty"))
    return (
        table("orders")
        .join(large.filter(col("sum_qty") > 300), left_on="o_orderkey", right_on="l_orderkey")
        .join(table("customer"), left_on="o_custkey", right_on="c_custkey")
        .sort("o_totalprice", "o_orderdate", descending=[True, False])
        .head(100)
        .select("c_name", col("o_custkey").alias("c_custkey"), "o_orderkey", "o_orderdate", "o_totalprice", "sum_qty")
    )


MONEY = pl.Decimal(15, 2)
# A product has as many digits behind the point as its factors: polars rounds what goes beyond.
price, discount = (col(name).cast(pl.Decimal(38, 6)) for name in ("l_extendedprice", "l_discount"))
reduced = price * (1 - discount)
{"q01": q01, "q03": q03, "q05": q05, "q06": q06, "q13": q13, "q14": q14, "q18": q18}[query]().sink_parquet(
    out, engine="streaming"
)
