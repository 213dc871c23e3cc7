"""Tables in files: which files, of which kind, and whether they are whole.

* arrow_footer: types in Arrow IPC files that polars doesn't read
* column_types: types of text as its values look
* compression: gzip, bzip2, zstd
* csv_records: the records of CSV, with their lines
* csv_kind: CSV as a kind of files
* encodings: the encodings of text files
* endings: the kind of a file by its name
* erasure: files without some of their rows
* file_identity: whether a file is the one that was taken in
* files: reads tables; an error names file and row
* first_rows: the first rows of a file, as texts
* guess: likely types of text columns, for messages
* input_path: the files that the path of an input names
* json_kind: NDJSON and JSON as a kind of files
* json_numbers: numbers of NDJSON with all their digits
* json_values: objects that are not one a line
* kinds: kinds of files; Parquet and Arrow IPC
* lakes: Delta Lake, Iceberg and Hudi directories, refused
* listing: which files of an input are new, and which are as they were
* partitions: columns in paths
* sheets: the rows of Excel workbooks
* summed_logs: files of a log that have summed up older ones
* text_kind: what kinds of text share: values are cast from text
* text_syntax: whether text is whole
* whole_files: ORC and Avro
* wider_types: types that hold every value of another
* workbooks: Excel
"""
