"""Tables in files: the files of an input, their kinds, and their rows.

* avro: the rows of Avro files, by a schema that polars can read
* column_types: the look of text files: types of columns, options of CSV
* compression: gzip, bzip2, zstd
* csv_records: the records of CSV, with their lines
* endings: the kind of a file by its name
* files: the rows of tables; an error names file and row
* footers: columns of files, read without polars; the hint for a file that lacks a column
* iceberg_catalog: catalogs of Iceberg, and their tables with our own file IO
* inventory: the files of an input now, compared with those taken in, by size and time, else by fingerprint
* input_path: the files that the path of an input names; the names that columns have in a file
* json_kind: NDJSON and JSON as a kind of files; values in the encodings of Kafka Connect and Debezium
* json_values: JSON whose objects are not one for each line
* kinds: kinds of files, and the errors of files that are not whole; Parquet and Arrow IPC; values of Parquet and Arrow IPC that polars would alter
* listing: the files of an input: new ones, and those that are as they were; fingerprints
* sheets: the rows of Excel workbooks
* text_kind: the base of kinds of text, whose values are cast from text; CSV as a kind of files
* text_syntax: the check of text's syntax
* whole_files: ORC and Avro; Excel
* wider_types: types that hold every value of another
"""
