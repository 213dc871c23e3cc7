"""Tables of other programs, mirrored in a state: the changes of each of their versions, as a change log that a run reads like any other.

* cancellation: the difference between a table's former files and those that replace them
* delta: the changes of the versions of a table of Delta Lake
* delta_commits: the commits in the log of a table of Delta Lake
* ducklake: the changes of the snapshots of a table of DuckLake
* ducklake_columns: the columns of tables of DuckLake: lists and structs in the catalogue's texts and in files
* equal_parts: parts of files that are equal in their rewritten versions: their order, columns equal by their bytes, equal rows
* file_databases: the rows of a query of DuckDB or SQLite
* iceberg: the changes of the snapshots of a table of Iceberg; null lists of structs in tables of Iceberg
* mirror: the files of a mirror, and the version that it has reached
* query_reader: the base of the readers of queries, and their connections to servers
* server_databases: the rows of a query of Postgres or MySQL
* source: the base of all tables of other programs; the difference between a query's rows now and before
* spark_table: the difference between the rows of a table of Spark now and before
"""
