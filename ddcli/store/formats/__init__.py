"""Formats: what the rows of an input's files mean. Each turns rows into updates, by one contract (see `base`).

* base: what formats share; `updates` and `append`
* debezium: Debezium's events
* delta_cdf: the change data feed of a Delta table
* snapshots: whole tables by time
* upsert: a row per key, the latest wins
"""
