"""The state directory and its commits.

* bundles: the small batches of a commit in one file, and when what is left of one moves on
* commits: waits for commits
* claimants: who claims the log of an output
* consumers: how far those who are fed from outputs have acknowledged what they got
* contents: where files lie, which of them a manifest names, and which go
* directory: opened under the lock; what a dead run left is finished
* entries: what a manifest names: inputs, arrangements, outputs, and their files
* export: a copy, made while runs go on
* holds: what readers in other pipelines claim
* locked_directory: a directory under its lock, and what goes as no manifest names it
* manifest: everything a state consists of
* names: which names a state's files may have
* outputs: the directories of outputs: whose they are, what is in them
* pipeline_file: which pipeline file a state belongs to
* register: the lists of files, in append-only segments
* removal: what a state and its outputs consist of, removed
* runs: records of the last runs
* shared_arrangements: arrangements of other states
* strangers: files in a state that are its own, and those that are none of it
* transaction: a commit: files and the next manifest, wholly or not at all
* upkeep: look at, compact, reshard, rekey, tidy
* verify: whether files are what the manifest states
"""
