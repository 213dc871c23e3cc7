"""Tables of other programs, mirrored in a state: what each of their versions changed, as a change log that a run reads like any other.

* cancellation: what differs between files that a table had and those that it has instead
* column_chunks: columns of Parquet files that are equal by their bytes
* connections: connections to servers of databases
* database: what a query of a database returns now and did not before
* delta: what the versions of a table of Delta Lake changed
* delta_commits: the commits in the log of a table of Delta Lake
* duckdb_reader: what a query of DuckDB returns
* duckdb_types: how the columns of a query of DuckDB are read
* file_order: the order in which files are compared
* file_stamp: what changes with a database in a file, or with a file that is put in place whole
* iceberg: what the snapshots of a table of Iceberg changed
* joint_updates: small files of a mirror that become one
* mirror: the files of a mirror, and how far it goes
* mysql_reader: what a query of MySQL returns
* null_lists: null lists of structs in tables of Iceberg
* partition: rows in parts that are compared one by one
* postgres_reader: what a query of Postgres returns
* postgres_types: how the columns of a query of Postgres are read
* query_reader: what reads a query of a database
* row_pairs: rows of two frames that are equal
* selection: the rows of a mirror, or of its table, for which a condition holds
* sqlite_reader: what a query of SQLite returns
* source: what all tables of other programs share
"""
