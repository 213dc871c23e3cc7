"""The engine: updates as matrices of 64-bit lanes, arrangements of them, and the operators that maintain results.

Nothing in here knows a file, a pipeline or a column's name; it is a library of its own.

* arrow: series to memory and back, without pyarrow; memory lent to polars
* counts: the counts of operators, and the receiver of a run's progress
* executor: takes shards through the stages of a schedule, loops through their rounds, and the rows of large joins, part by part, through the operators behind them
* lanes: columns and frames to matrices and back
* pool: the value that each 64-bit hash stands for
* heap: the memory of large matrices, reused; free memory, returned to the system
* records: Python records to matrices and back
* rounds: time lanes: compared with frontiers, corrected in the past; rounds of loops
* schedule: the order in which operators step, stage by stage and round by round; pure
* scope: operators in the order of their data, stepped together
* scope_tree: a scope and those within it, by path; a scope whose times have one more coordinate, the round
* stages: the places of operators in a scope, their inputs, and the stages in which they step
* times: times and frontiers: the lattice of updates
* memory_store: the updates between the stages of a step in memory, exchanged by key; operators live on
* spill_store: the updates and operators between the stages of a step out of core, and of tasks
* process: its processors, the threads that step shards, and the settings of its allocators
"""
