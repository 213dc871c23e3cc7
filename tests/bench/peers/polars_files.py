"""polars' streaming engine: Parquet in, Parquet out.

    python polars_files.py TASK OUT IN

TASK is `skip_level`, `least_and_count`, `least` or `count`. IN is a table; or, after `log:`, files of a change log separated by commas,
whose updates are summed first.
"""

import sys

import polars as pl

task, out, given = sys.argv[1:]
if given.startswith("log:"):
    log = pl.scan_parquet(given.removeprefix("log:").split(","))
    data = [name for name in log.collect_schema().names() if name not in {"time", "diff"}]
    # A record may be there more than once; the tables that are compared hold no such record of people.
    table = log.group_by(data).agg(pl.col("diff").sum()).filter(pl.col("diff") != 0)
    count = pl.col("diff").sum()
else:
    table = pl.scan_parquet(given)
    count = pl.len().cast(pl.Int64)

if task == "skip_level":
    manages = table.select("manager", "employee")
    above = manages.select(manager="employee", skip_manager="manager")
    result = manages.join(above, on="manager").select("employee", "manager", "skip_manager")
else:
    aggregates = {"least_and_count": {"lo": pl.col("value").min(), "n": count}}
    aggregates["least"] = {"lo": pl.col("value").min()}
    aggregates["count"] = {"n": count}
    result = table.group_by("key").agg(**aggregates[task])

result.sink_parquet(out, engine="streaming")
