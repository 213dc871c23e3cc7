"""What polars takes to tell two tables apart: the rows that only one has, an anti-join each way. Rows that repeat are not counted.

    python polars_diff.py A B

Prints how many rows are only in A, and only in B.
"""

import sys

import polars as pl

a, b = map(pl.scan_parquet, sys.argv[1:])
columns = a.collect_schema().names()
removed = a.join(b, on=columns, how="anti", nulls_equal=True)
added = b.join(a, on=columns, how="anti", nulls_equal=True)
print(*(frame.height for frame in pl.collect_all([removed, added], engine="streaming")))
