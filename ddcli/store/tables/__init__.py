"""Tables in files: which files, of which kind, and whether they are whole.

* csv_records: the records of CSV, with their lines
* dialect: how CSV is written
* files: reads tables; an error names file and row
* guess: likely types of text columns, for messages
* json_numbers: numbers of NDJSON with all their digits
* kinds: Parquet, Arrow IPC, CSV, NDJSON
* lakes: Delta Lake, Iceberg and Hudi directories, refused
* listing: the files of an input, and which are new
* packing: gzip, bzip2, zstd
* partitions: columns in paths
* text_syntax: whether text is whole
* widening: types that hold every value of another
"""
