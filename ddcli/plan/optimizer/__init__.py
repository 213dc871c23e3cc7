"""The optimizer: rewritings of a graph to one with the same records that costs less. `passes` has the list.

* passes: the rewritings of a logical graph, in order
* join_order: joins in another order, by the sizes of inputs
* pushdown: filters moved as near to the inputs as possible; left joins that are inner ones, as a condition drops their padded records
* sharing: filters moved above joins whose sides are then one collection, which is kept once
* shared_sums: sums over a join, computed from sums that the statement keeps anyway
* prune: the columns that operators read; others are dropped; a rewritten graph, with the nodes that stand for those as written
* delta_joins: joins of several collections that keep no intermediate results
"""
