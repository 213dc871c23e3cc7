"""Arrangements: immutable batches, the spine that keeps them few, and the trace that operators read.

* batch: immutable, sorted, consolidated updates over an interval
* filtered: a trace less what a predicate drops
* imported: one dataflow's trace read in another
* nearby: a trace read near some places of its keys
* policy: which batches to merge when; pure
* spine: logarithmically many batches, merged a little with each insertion; readers' claims on them
* united: the traces of all shards of an arrangement as one
"""
