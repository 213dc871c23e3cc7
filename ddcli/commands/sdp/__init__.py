"""A project of Spark's declarative pipelines as a pipeline file.

* definitions: a project's specification, and the definitions in its SQL files
* project: the imported parts of a project, and the reasons why others are left out
* translation: a query of Spark's as dd's SQL; functions of Spark with the same values here, and expressions whose values differ
"""
