"""The work of `check`, `convert`, `plan` and `explain`, without click. `dbt`, `sdp` and `projects` are that of `import`.

* arrangements: what the arrangements of a state are of
* check: the errors and warnings of a pipeline, without reading a row
* convert: any input to a change log, and a log as of a time to a table
* explain: the plan, state and run records that `dd explain` draws
* operators: a pipeline file with operators in the place of SQL
* pipelines: several pipelines, in the order in which they read from each other
* files_found: the inputs that files look like
* first_pipeline: pipeline files over them
* plan: what a run would do, without doing it
"""
