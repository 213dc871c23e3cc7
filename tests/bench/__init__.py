"""The benchmarks: `python -m tests.bench` measures, side by side with polars and DuckDB, and prints one table.

Each case is a small description in `files` (whole processes, Parquet in, Parquet out), or in `engine` or `loops` (in memory,
in one process). The peers' programs stand by themselves in `peers/`: a reader can check that each does the same work as we do
in the way that its makers advise.
"""
