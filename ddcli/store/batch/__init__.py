"""Stored batches: the sorted updates of an arrangement over an interval of times.

* checked_files: files checked against their entries in the manifest; the bundles and objects whose batches a run reads
* compaction: the choice of batches to merge, and the merges; the writer of a file, by its columns' types
* correction: updates added to batches of times that an arrangement has already
* file: the columns and their lanes; the bytes: Parquet with an index, every byte checked before it is read
* writers: the writers of a file: of any columns by pyarrow, of integers by kernels
* open_batches: batches that stay open, or in memory, from one run to the next
* page_index: the places of pages, and the key with which each begins
* paged_rows: rows of files, whole or of certain keys
* row_group_file: a file of one row group, written without a library of Parquet; some pages of a column as a Parquet file in memory
* stored_batch: a batch in a file, as traces read it; small files of integers, read whole without their index
"""
