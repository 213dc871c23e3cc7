"""Feeds: the changes of an output since a consumer last acknowledged.

* changes: the changes of an output from one position to another
* database_target: a table of a database
* delivery: deliveries to consumers, their acknowledgements, and deliveries to targets
* parquet_target: a directory of Parquet
* target: the protocol of targets to which changes are delivered exactly once
* targets: the target that a name means
"""
