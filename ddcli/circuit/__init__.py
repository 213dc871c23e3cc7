"""Circuits: the physical plan as operators over lanes, with the traces that they read.

* graph: a physical graph as a scope of operators, each loop a scope within; the places of sources
* groups: reductions that are no sums: aggregate calls as functions of gathered rows
* linear: linear chains and sums: computed columns, and lanes of the input; aggregate calls as descriptions of lanes
* operators: the operator of each physical node, and its context: traces, pools, facts about inputs
* python_calls: functions in Python that return times, and those whose results are remembered, with their budget of calls
* retention: the length of the past that arrangements and logs keep
* traces: arrangements read from the state's batches and written back; batches as one pass sees them: those rows, or keys, of its shards
* trial: a graph run in memory over given updates
* windows: window calls over gathered rows, or from row to row
"""
