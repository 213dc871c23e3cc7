"""Change logs: read by interval, written as a file for each commit.

* joint_files: files put together: of the parts of a commit, of several commits (they grow), of older files that they stand for
* log_files: the columns in the footers of the files, checked, and the times of their rows; a log as a lazy frame
* pieces: the times of rows in files; rows that are to be read: pieces of files, and slices of an interval; the newest of the tables that arrive together; the order in which rows arrived
* reader: the rows of an interval, checked, in slices
* rows: rows as updates; a condition over rows, as a person states it
* schema: the columns of a log
* unparsed_rows: rows of text that can't be read
* writer: an output log's files, and the fingerprint of its records
"""
