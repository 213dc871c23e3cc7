"""Feeds: the changes of an output since a consumer last acknowledged.

* database_target: the target in a table of a database
* delivery: the feed of an output: its consumers, their acknowledgements, and deliveries to targets
* targets: the target of a name
"""
