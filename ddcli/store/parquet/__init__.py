"""Parquet's own bytes: footers, row groups, pages.

* pages: large row groups, page by page; files written chunk by chunk
* row_groups: footers in Thrift's compact protocol; one file of several files' row groups
"""
