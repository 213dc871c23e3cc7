"""The inputs of a run: files as slices of updates, and arrangements of other pipelines.

* arrangement_input: arrangements of other pipelines, read in place
* change_log: a log read for people: its collection, its changes, a record's history
* inference: columns that nobody declares
* input_format: how an input's format reads, and its key violations
* log_claims: what a pipeline holds of the logs that it reads
* readers: readers of what is new, and the time they share
* slices: updates that lie in files, a slice at a time
"""
