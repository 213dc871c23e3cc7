"""Tasks on Spark, classic or Connect.

* classic: a driver in this process's Java
* connect: a driver behind an address
* doctor: `dd doctor --spark`
* java: the Java that Spark runs on
* session: the common part of both
* start: the Spark of a request
"""
