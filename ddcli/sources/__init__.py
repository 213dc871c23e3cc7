"""The inputs of a run: files as slices of updates, and arrangements of other pipelines.

* arrangement_input: arrangements of other pipelines, read in place, and claims on their logs
* change_log: a log read for people: its collection, its changes, a record's history
* inference: columns as files have them: of the first run (`infer`), or so far (`grow`)
* readers: readers of new updates
* slices: updates in files, a slice at a time; diagnostics for key violations
"""
