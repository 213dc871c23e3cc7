"""Plans: the logical graph of a pipeline, its rewriting to a physical one, fingerprints. Plans read no data.

* build: from a spec to the logical graph, with every error at once; time columns that are data, too
* changes: the consequences of a changed pipeline for its state; the outputs that an edit of a file may change
* checks: inputs without the rows that checks put aside, and the collections of violations; the names and columns that the tables of other programs can have
* choices: the choices of a plan with their reasons, for people
* conditions: the parts of a condition that `and` connects, and those that fail on no record
* node: nodes, and graphs of them
* generations: the optimizer's passes in order; lowering in generations, and the choices that a state remembers
* lineage: the columns of inputs that a column comes from, and tags; the columns that keep the records of a graph apart; the columns that an edit computes in another way, and the outputs that they reach
* loops: loop variables and the node that binds them
* pipeline_file: pipeline files read with the table of operators, which is in `operators/`; a pipeline file with the columns of its inputs; the places of its operators, and the work of its collections
* relation: a collection while it is built; several in one schema; the operands of operators
* shape: columns renamed, dropped, computed in few nodes; the columns in which the engine computes aggregate and window calls
* test_steps: a file's tests with types
* asof: as-of joins
* groupings: operators over groups of records: reductions, the first of a group, multiplicities
* joins: joins and semijoins
* windows: windows
* memo: functions that remember their results
* logical: the other operators as they are written: the columns that each reads, and those that identify its records
* physical: the other nodes of the engine's work, and the physical graph
* physical_joins: the lookups that delta joins are made of
* temporal: temporal filters and join functions, whose updates are at later times
* lower: from the logical to the physical graph, with the columns that are read; the engines that the file chooses, by node
* estimates: the rows that operators are expected to emit, by the rows of earlier runs
* words: expressions and columns in the words of the file; errors with the path of their subject
"""
