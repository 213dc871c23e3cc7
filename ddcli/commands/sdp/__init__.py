"""A project of Spark's declarative pipelines as a pipeline file.

* definitions: the tables, views and flows that its SQL files define
* specification: a project's specification, and the files that it names
* project: what of a project can be taken over, and why the rest can't
* translation: a query of Spark's as SQL of ours, names and texts in our quotes
"""
