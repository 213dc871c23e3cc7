"""Parquet's own bytes: footers, row groups, pages.

* footers: columns of files, read without polars; the hint for a file that lacks a column
* pages: large row groups, page by page; files written chunk by chunk
* row_groups: footers in Thrift's compact protocol; one file of several files' row groups
"""
