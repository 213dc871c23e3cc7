"""The work of `check`, `convert`, `plan` and `explain`, without click. `dbt`, `projects` and the modules named `sdp` do the work of `import`.

* arrangements: the arrangements of a state, described
* branch: branches begun, listed, merged and dropped; the changes of a branch that conflict with main's
* check: the errors and warnings of a pipeline, without reading a row
* checks: the verdicts of a pipeline's checks
* convert: any input to a change log, and a log as of a time to a table
* dbt: a compiled dbt project as a pipeline file: the project as `target/manifest.json` has it, its parts, and the reasons why others are left out
* explain: the view of plan, state and run records that `dd explain` draws; a pipeline file with operators in place of SQL
* first_pipeline: the first pipeline file over the inputs that are found in a directory
* found_inputs: inputs that are guessed from the files in a directory
* inputs: the files of inputs with their states
* pipelines: several pipelines, in the order in which they read from each other; the columns of inputs that columns come from, by value, or because they decide about it, across pipelines
* plan: the changes that a run would make
* projects: the parts of a project of another program that become a pipeline, and those that are left out; its queries as dd's SQL
* sdp_definitions: a project of Spark's declarative pipelines: its specification, and the definitions in its SQL files
* sdp_project: the imported parts of such a project, and the reasons why others are left out
* sdp_translation: a query of Spark's as dd's SQL; functions of Spark with the same values here, and expressions whose values differ
"""
