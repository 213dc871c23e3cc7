"""A run from its request to its commit.

* changed_rows: rows of inputs with other values, and their updates in a dry run
* check_gate: the checks before a commit
* erasure: forgotten rows, where only the files that hold something of them are written anew
* execute: a run that has something to do: its attempts, and a changed plan
* forgotten_parts: a graph over the partitions of forgotten rows, computed with them and without
* forget: `dd forget`: rows of inputs are removed from state, outputs and side logs
* ledgers: copies of inputs' files in the next manifest, for files that come again
* migration: the state of a changed pipeline: its new parts are built and committed
* prepare: inputs found and opened, also from their beginning; the file bound and planned
* rebuild: the sources and outputs of a rebuild
* replacement: files that come again or are withdrawn, and their updates
* requested_changes: the changes that a request makes, and the refusals before anything is built anew
* run: a run from request to commit
* single_run: the run proper: one step, one commit; inputs whose progress is measured as they are read
* step: the skeleton of a run and of a rebuild: one step, from slices of inputs through the dataflow to files of outputs and state; one commit
* tables: tables of other programs around a run: inputs are mirrored, outputs follow
* watch: `--watch`: a run whenever inputs change
"""
