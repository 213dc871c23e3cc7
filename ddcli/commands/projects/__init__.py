"""A project of another program as a pipeline file: what `dbt` and `sdp` share.

* pipeline: the text of the pipeline file, and where each of its lines comes from
* project: the tables, queries and tests of a project
* takeover: what of a project becomes a pipeline, and what is left out
* translation: a query as SQL of ours, with the place of each character
"""
