"""Tables of other programs that follow the logs of outputs: each commit of theirs is ours, and is made once.

* change: what a table has to take in: some of a log's files, or all
* copy_on_write: contents in files of which a change rewrites those with rows that it touches
* database: kinds of databases, and how their SQL differs
* database_table: contents in a table of a database
* delta: tables of Delta Lake
* duckdb_database: databases of DuckDB
* file_table: tables whose rows lie in Parquet files that a commit adds and removes
* iceberg: tables of Iceberg
* mark: how far a table follows its log
* parquet_file: contents in one Parquet file
* postgres_database: databases of Postgres
* sqlite_database: databases of SQLite
* target: what all such tables have in common
"""
