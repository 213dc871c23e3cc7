"""Tasks on Spark, classic or Connect.

* classic: a driver in this process's Java
* connect: a driver behind an address
* doctor: `dd doctor --spark`
* java: which Java Spark runs on
* session: what both have in common
* start: the Spark that is asked for
"""
