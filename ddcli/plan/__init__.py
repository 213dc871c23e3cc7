"""Plans: the logical graph of a pipeline, its rewriting to a physical one, fingerprints. No data here.

* asof: as-of joins as nodes, and how they are lowered
* bound: a pipeline file with the columns of its inputs
* build: from a spec to the logical graph, with every error at once
* changes: what a changed pipeline means for its state
* choices: what a plan has chosen, and why, for people
* conditions: those that `and` connects, and which of them fail on no record
* delta: joins of a collection with itself that keep no intermediate results
* descriptions: names and short descriptions of physical nodes
* node: nodes, and graphs of them
* engines: the engine that the file asks for, by node
* error_path: errors with the path of what they are about
* estimates: how many rows operators are expected to put out
* generation: how outputs were lowered together, as a state remembers it
* generations: lowering that keeps the nodes of a state
* groupings: the operators that look at groups of records
* iteration: closing a loop: types, body, identity
* join: the columns that a join pairs and returns
* kept_sides: filters asked of what joins return, where their sides are then one collection, which is kept once
* literals: values of the file in the types of columns
* logical: the operators of a logical graph: what each reads, and which columns identify its records
* loops: loop variables and the node that binds them
* lower: from the logical to the physical graph
* presence: a record that stays, from the first of some inputs
* named_times: time columns that are data, too
* operators: the operators over relations, and their errors
* outline: a graph in words, for people
* padded_joins: left joins that are inner ones, as a condition drops what they pad
* physical: the physical graph
* physical_joins: joins as physical nodes: their arranged sides, rows with and without a partner
* places: where in the file operators are written, and the work of its collections
* prune: the columns that nothing reads
* pushdown: filters asked as near to the inputs as they may be
* reductions: how a reduction is lowered
* relation: a collection while it is built
* join_order: joins in another order, by the sizes of inputs
* shape: columns renamed, dropped, computed in few nodes
* targets: which names and columns the tables of other programs can have
* temporal: when a record exists, in units of time
* test_steps: a file's tests with types
* union: collections in one schema
* windows: window calls as nodes, and how they are lowered
* work: what bounds the work of physical nodes
"""
