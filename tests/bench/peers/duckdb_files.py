"""DuckDB: Parquet in, Parquet out.

    python duckdb_files.py TASK OUT IN

Arguments as in polars_files.py.
"""

import sys

import duckdb

task, out, given = sys.argv[1:]
data = "manager, employee" if task == "skip_level" else "key, value"
if given.startswith("log:"):
    files = given.removeprefix("log:").split(",")
    table = f"(select {data}, sum(diff) as diff from read_parquet({files}) group by all having sum(diff) <> 0)"
    count = "sum(diff)::bigint"
else:
    table = f"read_parquet('{given}')"
    count = "count(*)"

query = {
    "skip_level": """
        select a.employee, a.manager, b.manager as skip_manager
        from given a join given b on a.manager = b.employee""",
    "least_and_count": f"select key, min(value) as lo, {count} as n from given group by key",
    "least": "select key, min(value) as lo from given group by key",
    "count": f"select key, {count} as n from given group by key",
}[task]

# No order of rows is asked for; without this DuckDB keeps one, at some cost.
duckdb.execute("set preserve_insertion_order = false")
duckdb.execute(f"copy (with given as (from {table}) {query}) to '{out}' (format parquet)")
