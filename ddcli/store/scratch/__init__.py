"""Updates that wait within a run.

* attempt: the files of one attempt at a task
* buckets: rows divided by a hash of their key, in memory or in scratch files
* spill: updates in scratch files until they are needed; updates on their way from task to task
"""
