"""Feeds: what changed in an output since a consumer last acknowledged.

* delivery: the changes of an output from one position to another, and the consumers' positions
"""
