"""The optimizer: rewritings of a graph to one with the same records that costs less. `plan/generations.py` has the list.

* pushdown: filters moved as near to the inputs as possible, and left joins that are inner ones, as a condition drops their padded records
* sharing: filters moved above joins whose sides are then one collection, which is kept once; sums over a join, computed from sums that the statement keeps anyway
* delta_joins: joins of several collections that keep no intermediate results; joins in another order, by the sizes of inputs
"""
