"""A compiled dbt project as a pipeline file.

* inputs: seeds, sources and snapshots as inputs
* manifest: what dbt compiled, read from `target/manifest.json`
* project: what of a project can be taken over, and why the rest can't
* translation: a compiled query as SQL of ours
"""
