"""The commands, imported when one is called.

* arguments: pipeline files and names as arguments, with shell completion
* branch: `dd branch`
* coreutils: the entry point of the scripts, and the hand-over to the system's `dd`
* diff: `dd diff`
* doctor: `dd doctor`
* explain: `dd explain`
* init: `dd init` and `dd import`
* log: `dd log`, `dd log compact` and `dd convert`
* main: the group of all commands, and the exit code of each error
* messages: the messages of a run, for people, programs and GitHub
* notebooks: results as notebooks show them
* openlineage: the events of `dd run --openlineage`
* telemetry: the traces and metrics of `dd run` for OpenTelemetry; the file of `dd run --metrics`
* plan: `dd check`, `dd checks`, `dd plan`, `dd lineage`, `dd inputs` and `dd wait`
* query: `dd query`, `dd sql` and `dd feed`
* reference: `dd completion`, `dd functions` and `dd schema`; functions and aggregates, for people; expressions with other values in DuckDB or Spark
* run: `dd run`
* run_several: `dd run` with several pipelines
* startup: the start and end of a command's process, and its memory; parts of libraries that are imported only when they are needed
* state: `dd state ls`, `show`, `verify`, `export`; the commands that correct a state: `dd retract`, `dd forget` and `dd state reopen`
* state_changes: the commands on a state that change it, and `dd reset`
* test: `dd test`, and its results as text, JSON, workflow commands, JUnit
* why: `dd why`, `dd bisect` and `dd verify`
"""
