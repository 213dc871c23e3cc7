"""Arrangements: immutable batches, the spine that keeps them few, and the trace that operators read.

* policy: the choice of batches to merge; pure
* spine: logarithmically many batches, merged a little with each insertion; readers' claims on them
* trace_import: one dataflow's trace read in another; a trace read near some places of its keys
"""
