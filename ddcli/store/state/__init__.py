"""The state directory and its commits.

* batch_lists: the batches that a manifest names, for large states in immutable lists; the small batches of a commit in one file, and the moves of the live ones
* branches: states of their own that begin with the files of another; a copy of a state, made while runs go on
* consumers: the claimants of outputs' logs: consumers with their positions, and readers in other pipelines
* contents: the files in a state: those that a manifest names, those that wait, those to be removed
* document: the names and values in a state's files, checked; small JSON files, each a record that is replaced as a whole
* directory: a state opened under its lock; the work that a dead run left is finished; the holds of readers in other pipelines
* entries: the entries of a manifest: inputs, arrangements, outputs, and their files
* fingerprint: keyed multiset hashes of the records of outputs and arrangements
* ledger: copies of the files of inputs, for files that come again; hashes of the keys in files
* manifest: all that a state consists of
* outputs: the directories of a state's outputs, and the pipeline file that it belongs to; `_progress.json`: a log's owner, and times that no later file touches; tags of columns, there or in files
* register: the lists of files, in append-only segments
* removal: the removal of a state and its outputs, and the files in their directories that are ours
* shared_arrangements: arrangements of other states, found, and held while they are read
* transaction: a commit: files and the next manifest, wholly or not at all
* upkeep: a state listed, compacted, resharded, rekeyed, tidied; the check of all files
"""
