"""A compiled dbt project as a pipeline file.

* inputs: seeds, sources and snapshots as inputs
* manifest: what dbt compiled, read from `target/manifest.json`
* pipeline: the text of the pipeline file, and where each of its lines comes from
* project: what of a project can be taken over, and why the rest can't
* translation: a compiled query as SQL of ours, with the place of each character
"""
