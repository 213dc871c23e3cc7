"""Tables of other programs that follow the logs of outputs: each of their commits stands for one of ours, and is made once.

* change: the change that a table has to take in: some of a log's files, or all; the intervals in which the records of an output held
* database: databases of DuckDB, Postgres and SQLite, and the differences of their SQL
* database_table: contents in a table of a database
* delta: tables of Delta Lake
* ducklake: tables of DuckLake
* file_table: tables of Parquet files that a commit adds and removes; contents in one Parquet file
* iceberg: tables of Iceberg
* mark: the protocol of all such tables, and the progress of each along its log
* spark_table: contents in a table of Spark's catalogs
"""
