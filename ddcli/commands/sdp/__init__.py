"""A project of Spark's declarative pipelines as a pipeline file.

* auto_cdc: the query of a flow of changes
* definitions: the tables, views and flows that its SQL files define
* differences: typed expressions whose values are others in Spark
* functions: functions that mean the same in Spark, and those that are rewritten
* specification: a project's specification, and the files that it names
* project: the imported parts of a project, and the reasons why others are left out
* translation: a query of Spark's as dd's SQL
"""
