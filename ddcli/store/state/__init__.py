"""The state directory and its commits.

* directory: opened under the lock; a dead run finished, the next manifest committed
* export: a copy, made while runs go on
* holds: what readers in other pipelines claim
* manifest: everything a state consists of
* names: which names a state's files may have
* outputs: the directories of outputs: whose they are, what is in them
* register: the lists of files, in append-only segments
* runs: records of the last runs
* sharing: arrangements of other states
* strangers: files in a state that are none of its own
* upkeep: look at, compact, reshard, rekey, tidy
* verify: whether files are what the manifest states
"""
