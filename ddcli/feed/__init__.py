"""Feeds: the changes of an output since a consumer last acknowledged.

* delivery: the feed of an output: its consumers, their acknowledgements, and deliveries to targets
* targets: the target of a name; the target in a table of a database
"""
