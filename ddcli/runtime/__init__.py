"""The places where a run is computed: this process, others of this machine, Spark.

* chain: stages on Spark, one after the other, through its shuffle
* placement: the engine of each stage; the Spark of a request; tasks in threads of this process
* scheduler: a step as tasks: they are cut, and their results collected
* table_load: data files of large tables, written by tasks on Spark
* task: a shard or some slices through a stage, in any process
"""
