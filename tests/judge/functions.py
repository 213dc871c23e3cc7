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


def later(record):
    """Give a record now, and up to two others at times that it says itself: one that comes later, one that is taken back."""
    return [
        ({"k": record["k"], "n": n}, None if time is None else time[0], diff) for n, time, diff in steps(record["k"], 1)
    ]


def later_of_2(record):
    """Do the same as `later` where times have two coordinates."""
    return [({"k": record["k"], "n": n}, time, diff) for n, time, diff in steps(record["k"], 2)]


def later_of_3(record):
    """Do the same as `later` where times have three coordinates."""
    return [({"k": record["k"], "n": n}, time, diff) for n, time, diff in steps(record["k"], 3)]


def later_in_batches(frame):
    """Do the same as `later` for many records at once."""
    return in_batch(frame, 1)


def later_in_batches_of_2(frame):
    """Do the same as `later_of_2` for many records at once."""
    return in_batch(frame, 2)


def later_in_batches_of_3(frame):
    """Do the same as `later_of_3` for many records at once."""
    return in_batch(frame, 3)


def steps(k, nt):
    """Give numbers, times and diffs: at once; at a time around `k`, of products a near one; then gone."""
    k = 0 if k is None else k if nt == 1 else k % 2
    time = tuple(k - at for at in range(nt))
    after = tuple(x + 1 for x in time)
    return [(0, None, 1), (1, time, 2), (1, after, -2), *([(2, after[::-1], -1)] if k % 2 else [])]


def in_batch(frame, nt):
    """Give the rows of all records as a frame; a null time is no delay."""
    names = ["time"] if nt == 1 else [f"time{at}" for at in range(nt)]
    rows = [
        (k, n, row, *(time or [None] * nt), diff)
        for k, row in frame.select("k", "row").rows()
        for n, time, diff in steps(k, nt)
    ]
    integers = dict.fromkeys(["k", "n", "row", *names, "diff"], pl.Int64)
    return pl.DataFrame(rows, schema=integers, orient="row")
