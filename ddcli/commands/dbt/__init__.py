"""A compiled dbt project as a pipeline file.

* inputs: seeds, sources and snapshots as inputs
* manifest: the compiled project, read from `target/manifest.json`
* project: the parts of a project that are taken over, and the reasons why others are left out
* translation: a compiled query as dd's SQL
"""
