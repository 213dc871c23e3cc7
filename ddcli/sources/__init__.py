"""The inputs of a run: files as slices of updates, and arrangements of other pipelines.

* arrangement_input: arrangements of other pipelines, read in place
* change_log: a log read for people: its collection, its changes, a record's history
* grown_columns: `columns: grow`: columns as an input's files have had them so far
* inference: `columns: infer`: columns as the first run found them
* input_format: the format of an input, and diagnostics for its key violations
* log_claims: the claims of a pipeline on the logs that it reads
* readers: readers of new updates, and the time that the inputs share
* slices: updates in files, a slice at a time
"""
