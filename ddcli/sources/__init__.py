"""The inputs of a run: files as slices of updates, and arrangements of other pipelines.

* arrangement_input: arrangements of other pipelines, read in place, and claims on their logs
* change_log: a log read for people: its collection, its changes, a record's history
* inference: columns as files have them: of the first run (`infer`), or so far (`grow`)
* input_format: the format of an input, and diagnostics for its key violations
* readers: readers of new updates, and the time that the inputs share; updates in files, a slice at a time
"""
