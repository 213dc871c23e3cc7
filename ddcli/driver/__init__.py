"""A run from its request to its commit.

* execute: a run that has something to do: its attempts, and a changed plan
* forget: rows of inputs are forgotten
* keep: logs of which only the latest is kept
* libraries: native libraries mapped while Python imports
* meter: inputs whose progress is measured as they are read
* migration: the state of a changed pipeline: what is new is built and committed
* prepare: inputs found and opened, and the file bound to their columns
* rebuild: what is built anew, and as of when
* rebuild_outputs: the differences that outputs and side logs get
* rebuild_sources: what it is built from: rows before the frontier, kept contents, earlier contents of outputs
* requested_changes: what changes, and what is refused before anything is built anew
* run: one run: is there anything to do, then do it and record it
* run_plan: the plan of a run: the one that an earlier run kept, or a new one
* single_run: the run proper: one step, one commit
* step: the step: slices of inputs through the dataflow to files of outputs and state
* tables: requests whose tables are mirrored as they are now
* watch: `--watch`: a run whenever inputs change
* whole_inputs: the inputs from their beginning, whatever a state has taken of them
"""
