"""Circuits: the physical plan as operators over lanes, with the traces that they read.

* graph: a physical graph as a scope of operators, each loop a scope within; the places of sources
* groups: aggregate calls as descriptions of lanes or functions of rows
* linear: linear chains: computed columns, and lanes of the input; calls of functions that remember, and their budget
* operators: the operator of each physical node, and its context: traces, pools, facts about inputs
* retention: the length of the past that arrangements and logs keep
* traces: arrangements read from the state's batches and written back; batches as one pass sees them: those rows, or keys, of its shards
* trial: a graph run in memory over given updates
* windows: window calls over gathered rows, or from row to row
"""
