"""Plans: the logical graph of a pipeline, its rewriting to a physical one, fingerprints. Plans read no data.

* asof: as-of joins as nodes, and their lowering
* bound: a pipeline file with the columns of its inputs
* build: from a spec to the logical graph, with every error at once
* changes: the consequences of a changed pipeline for its state
* choices: the choices of a plan with their reasons, for people
* conditions: the parts of a condition that `and` connects, and those that fail on no record
* delta: delta joins: joins of a collection with itself that keep no intermediate results
* descriptions: names and short descriptions of physical nodes
* node: nodes, and graphs of them
* edits: the edited collections behind a changed output
* engines: the engines that the file chooses, by node
* error_path: errors with the path of their subject
* estimates: the rows that operators are expected to emit
* generation: the choices by which outputs were lowered together, as a state remembers them
* generations: lowering that keeps the nodes of a state
* groupings: the operators over groups of records
* iteration: closing a loop: types, body, identity
* join: the columns that a join pairs and returns
* kept_sides: filters moved above joins whose sides are then one collection, which is kept once
* literals: values of the file in the types of columns
* logical: the operators of a logical graph: the columns that each reads, and those that identify its records
* loops: loop variables and the node that binds them
* lower: from the logical to the physical graph
* presence: a record that exists from the first row of some inputs on
* named_times: time columns that are data, too
* operators: the operators over relations, and their errors
* outline: a graph in words, for people
* padded_joins: left joins that are inner ones, as a condition drops their padded records
* physical: the nodes of the physical graph
* physical_graph: the physical graph
* physical_joins: joins as physical nodes: their arranged sides, rows with and without a partner
* places: the places of operators in the file, and the work of its collections
* prune: the columns that operators read; others are dropped
* pushdown: filters moved as near to the inputs as possible
* reductions: the lowering of a reduction
* relation: a collection while it is built
* join_order: joins in another order, by the sizes of inputs
* shape: columns renamed, dropped, computed in few nodes
* targets: the names and columns that the tables of other programs can have
* temporal: the times at which a record exists, in units of time
* test_steps: a file's tests with types
* union: collections in one schema
* windows: window calls as nodes, and their lowering
"""
