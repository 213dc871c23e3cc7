"""Updates that wait within a run.

* attempt: the files of one attempt at a task
* exchange: updates on their way from task to task
* spill: updates in scratch files until they are needed
"""
