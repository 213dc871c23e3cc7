"""The engine: updates as matrices of 64-bit lanes, arrangements of them, and the operators that maintain results.

Nothing in here knows a file, a pipeline or a column's name; it is a library of its own.

* arrow: series to memory and back through the Arrow C data interface
* columns: columns to lanes and back, by type
* correction: differences at closed times, stated at open ones
* counts: rows, inserts and seconds of each operator
* heap: freed memory, returned to the system
* join_parts: the rows of a join, part by part, where they do not fit in memory
* lanes: layouts: frames and records to int64 matrices and back
* foreign_buffers: memory lent to polars, kept until it comes back
* loop: a scope whose times have one more coordinate, the round
* loop_tasks: a shard's work of a loop between rounds, in tasks
* out_of_core: a step stage by stage, shard by shard, on disk in between
* places: the places of operators in a scope, and their inputs
* pool: the value that each 64-bit hash stands for
* progress: the receiver of notifications while a run works
* records: Python records to lanes and back
* in_memory: a schedule executed in memory
* buffer_pool: the memory of matrices, kept for the next ones
* rounds: time lanes against frontiers; rounds of loops as time lanes
* schedule: the order in which operators step, stage by stage and round by round; pure
* scope: operators in the order of their data, stepped together
* scope_graph: the places of a scope, and its stages
* scope_tree: a scope and those within it, by path
* shards: updates exchanged by key, spread evenly, or put together
* stages: the operators that a shard passes between two exchanges
* times: times and frontiers: the lattice of updates
* spill_store: the updates between the stages of a step out of core
* workers: threads that step shards
"""
