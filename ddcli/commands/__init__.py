"""The work of `check`, `convert`, `plan` and `explain`, without click. `dbt`, `sdp` and `projects` are that of `import`.

* arrangements: the arrangements of a state, described
* check: the errors and warnings of a pipeline, without reading a row
* convert: any input to a change log, and a log as of a time to a table
* explain: the view of plan, state and run records that `dd explain` draws
* operators: a pipeline file with operators in place of SQL
* pipelines: several pipelines, in the order in which they read from each other
* files_found: files in a directory, as inputs of a new pipeline
* first_pipeline: pipeline files over these inputs
* plan: the changes that a run would make
"""
