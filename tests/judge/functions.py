"""Python functions that generated pipelines call: by record and by group. Their answers hang on no order of rows."""

import polars as pl


def twice(record):
    """Give a record once as it is and once with its first column doubled; none when that is null or 3."""
    k = record["k"]
    return [] if k is None or k == 3 else [{"k": k, "n": 1}, {"k": 2 * k, "n": 0}]


def twice_in_batches(frame):
    """Do the same as `twice` for many records at once."""
    given = frame.filter(pl.col("k").is_not_null() & (pl.col("k") != 3)).select(pl.col("k").cast(pl.Int64), "row")
    doubled = given.with_columns(pl.col("k") * 2, pl.lit(0, pl.Int64).alias("n"))
    return pl.concat([given.with_columns(pl.lit(1, pl.Int64).alias("n")).select(doubled.columns), doubled])


def spread(key, rows):
    """Give the number of values of a group that are there, once for each more copy of the most frequent one."""
    positive = [count for _, count in rows if count > 0]
    return [((len(positive),), max(positive))] if positive else []


def least_and_balance(key, rows):
    """Give two records a group: how many distinct values it has, and the sum of their counts."""
    return [((len(rows),), 1), ((sum(count for _, count in rows),), 2)]
