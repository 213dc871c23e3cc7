"""Operators: each turns the new updates of its inputs, over an interval of times, into the updates of its result.

* arrangement_filter: an arrangement less what a predicate drops
* arrangement_import: another dataflow's arrangement
* asof: each left row with the nearest right one
* base: delta in, delta out: what all operators share
* few_groups: a reduction of few groups in a loop, as one call
* frames: rows in order, frames of windows, aggregates over frames
* groups: operators over groups, as nodes
* join: arrange and join
* linear: map, filter, concat and others that keep nothing
* negative: watches for negative multiplicities
* neighbours: windows that look at few rows
* once: a record that stays
* ordered_upsert: values by key, the greatest of an order
* reduce: the reduction
* reduce_aggregates: which lanes an aggregate reads and writes
* reduce_difference: from what is wanted to the updates that lead there
* reduce_evaluate: values of aggregates; no times
* reduce_first: the first records of groups in an order
* reduce_instances: interesting times; no values
* reduce_replay: the rows of groups at each instance
* revisit: what a reduction in a loop reads, and when it looks again
* running_windows: windows that go on from row to row
* shift: moves updates to later times, and keeps them until then
* snapshots: whole tables, one a time
* sweep: groups in a loop held in working traces
* threshold: `threshold` and `distinct`
* upsert: values by key
* walk: groups in a loop read from their histories
"""
