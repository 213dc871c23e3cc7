"""Change logs: read by interval, written as a file for each commit.

* joint_file: the one file of a commit, put together from parts
* key_hashes: the hashes of the keys in files
* lineage: files of a log that grow, and those that stand for older ones
* log_files: the columns in the footers of the files, checked, and the times of their rows; a log as a lazy frame
* pieces: rows that are to be read: pieces of files, and slices of an interval; the newest of the tables that arrive together; the order in which rows arrived
* progress: `_progress.json`: times that no later file touches; tags of columns, there or in files
* reader: the rows of an interval, checked, in slices
* rows: rows as updates; a condition over rows, as a person states it
* schema: the columns of a log
* times: the times in a log's files
* unparsed_rows: rows of text that can't be read
* writer: an output log's files and progress
"""
