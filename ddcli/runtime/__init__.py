"""The places where a run is computed: this process, others of this machine, Spark.

* placement: which engine does which stage
* scheduler: a step as tasks: what each does, what it returned
* task: a shard or some slices through a stage, in any process
* threads: tasks in threads of this process
"""
