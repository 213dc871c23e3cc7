"""The commands: one module each, imported when its command is called.

* arguments: pipeline files and names as arguments, with shell completion
* bisect: `dd bisect`
* branch: `dd branch`
* check: `dd check`
* checks: `dd checks`
* columns: columns and types in options
* completion: `dd completion`
* convert: `dd convert`
* coreutils: the entry point of the scripts, and the hand-over to the system's `dd`
* correction: the parts that `dd retract`, `dd state reopen` and `dd forget` share
* diff: `dd diff`
* doctor: `dd doctor`
* explain: `dd explain`
* feed: `dd feed`
* forget: `dd forget`
* functions: `dd functions`
* import_: `dd import`
* init: `dd init`
* inputs: `dd inputs`
* lineage: `dd lineage`
* log: `dd log`
* log_compact: `dd log compact`
* main: the group of all commands, and the exit code of each error
* messages: the messages of a run, for people, programs and GitHub
* metrics: the file of `dd run --metrics`
* notebooks: results as notebooks show them
* openlineage: the events of `dd run --openlineage`
* telemetry: the traces and metrics of `dd run` for OpenTelemetry
* plan: `dd plan`
* query: `dd query`
* reset: `dd reset`
* retract: `dd retract`
* run: `dd run`
* run_several: `dd run` with several pipelines
* schema: `dd schema`
* sql: `dd sql`
* state: `dd state ls`, `show`, `verify`, `export`
* state_changes: the commands on a state that change it
* test: `dd test`
* verify: `dd verify`
* wait: `dd wait`
* why: `dd why`
"""
