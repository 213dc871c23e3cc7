"""Feeds: what changed in an output since a consumer last acknowledged.

* changes: the changes of an output from one position to another
* database_target: a table of a database
* delivery: what consumers are offered, what they acknowledge, and what is delivered to targets
* parquet_target: a directory of Parquet
* target: where changes are delivered exactly once, each with its position
* targets: the target that a name means
"""
