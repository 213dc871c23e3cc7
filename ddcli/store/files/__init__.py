"""Access to files and objects: relative to opened directories, through one gate.

* access: opens files without following links
* changes: waits until files change
* fetched: a local stand-in for an object
* gate: every write, so that a test can fail, cut or record it
* lock: one run at a time
* lock_holder: the holder of a lock, as it signs it
* object_lock: the same in an object store
* move: a file's move to another directory
* objects: paths `s3://bucket/key`
* wholeness: whether a file is complete
"""
