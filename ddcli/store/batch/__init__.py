"""Stored batches: the sorted updates of an arrangement over an interval of times.

* compaction: which batches to merge when, and the merging
* file: the bytes: Parquet, every byte checked before it is read
* layout: the columns, and their lanes
* resharding: batches dealt to another number of shards
"""
