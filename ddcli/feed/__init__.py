"""Feeds: what changed in an output since a consumer last acknowledged.

* database_target: a table of DuckDB or SQLite
* delivery: the changes of an output from one position to another, and the consumers' positions
* parquet_target: a directory of Parquet
* target: where changes are delivered exactly once, each with its position
"""
