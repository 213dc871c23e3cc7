"""Formats: the meanings of the rows of an input's files. Each turns rows into updates, by one contract (see `base`).

* base: the base of formats; `updates` and `append`
* debezium: Debezium's events
* delta_cdf: the change data feed of a Delta table
* upsert: keyed rows, and whole tables by time
"""
