"""A project of Spark's declarative pipelines as a pipeline file.

* definitions: the tables, views and flows that its SQL files define
* project: what of a project can be taken over, and why the rest can't
* translation: a query of Spark's as SQL of ours, with the place of each character
"""
