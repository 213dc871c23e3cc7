"""Access to files and objects: relative to opened directories, through one gate.

* access: opens files without following links
* changes: waits until files change
* gate: every write, so that a test can fail, cut or record it
* lock: one run at a time
* lock_holder: the holder of a lock, as it signs it
* move: a file's move to another directory
* object_lock: the same in an object store
* objects: paths `s3://bucket/key`
* partial_copy: a local stand-in for an object
* wholeness: whether a file is complete
"""
