"""Tables in files: which files, of which kind, and whether they are whole.

* files: reads tables; an error names file and row
* guess: likely types of text columns, for messages
* json_numbers: numbers of NDJSON with all their digits
* kinds: Parquet, Arrow IPC, CSV, NDJSON
* lakes: Delta Lake, Iceberg and Hudi directories, refused
* listing: the files of an input, and which are new
* partitions: columns in paths
* text_syntax: whether text is whole
* widening: types that hold every value of another
"""
