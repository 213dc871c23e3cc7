"""Updates that wait within a run.

* attempt: what one attempt at a task writes
* exchange: updates on their way from task to task
* spill: updates put away until they are needed
"""
