"""A project of another program as a pipeline file: the common part of `dbt` and `sdp`.

* takeover: the parts of a project that become a pipeline, and those that are left out; the tables, queries and tests of a project
* translation: a query as dd's SQL, with the place of each character
"""
