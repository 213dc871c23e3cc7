"""Access to files and objects: relative to opened directories, through one gate.

* access: paths as texts; the operations on a path in its file system; files opened without following links
* buckets: buckets of object stores, their addresses and credentials
* changes: waits until files change
* foreign: the files of tables of other programs, below their folders alone
* gate: all writes, so that a test can fail, cut or record each
* lock: the lock of a state, on this machine and in an object store
* objects: paths `s3://bucket/key`, `gs://`, `az://`
"""
