"""Operators: each turns the new updates of its inputs, over an interval of times, into the updates of its result.

* asof: each left row with the nearest right one
* base: delta in, delta out: the interface of all operators
* frames: rows in order, frames of windows, aggregates over frames
* groups: reductions, `threshold` and `distinct`, and the check for negative multiplicities
* join: arrange and join
* linear: map, filter, concat and other stateless operators; one record that is inserted once
* memo: calls of functions whose results are kept
* reduce: the reduction
* reduce_aggregates: descriptions of aggregates: the lanes that they read and write; exact sums, added up from updates
* reduce_instances: interesting times, and from the wanted output to updates
* reduce_replay: the rows of groups at each instance: all, or the first in an order; the values of aggregates but sums over them
* revisit: reductions in loops: their input, and the rounds in which they are evaluated again
* running_windows: windows that continue from row to row
* shift: moves updates to later times, and keeps them until then
* sweep: groups in a loop held in working traces
* upsert: values by key
"""
