"""Tasks on Spark, classic or Connect.

* classic: a driver in this process's Java; the Java that Spark runs on
* connect: a driver behind an address
* doctor: `dd doctor --spark`
* plans: a Spark that runs plans of DataFrames, the base of both
* session: memory of tasks, errors
"""
