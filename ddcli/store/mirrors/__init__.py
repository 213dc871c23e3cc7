"""Tables of other programs, mirrored in a state: what each of their versions changed, as a change log that a run reads like any other.

* database: what a query of a database returns now and did not before
* delta: what the versions of a table of Delta Lake changed
* delta_commits: the commits in the log of a table of Delta Lake
* duckdb_types: how the columns of a query of DuckDB are read
* iceberg: what the snapshots of a table of Iceberg changed
* mirror: the files of a mirror, and how far it goes
* source: what all tables of other programs share
"""
