"""Formats: the meanings of the rows of an input's files. Each turns rows into updates, by one contract (see `base`).

* base: the base of formats; `updates` and `append`; keyed rows, and whole tables by time
* debezium: Debezium's events
* delta_cdf: the change data feed of a Delta table
"""
