"""The commands, imported when one is called.

* arguments: pipeline files and names as arguments, with shell completion
* bisect: `dd bisect`
* branch: `dd branch`
* check: `dd check` and `dd checks`
* convert: `dd convert`
* coreutils: the entry point of the scripts, and the hand-over to the system's `dd`
* correction: `dd retract`, `dd forget` and `dd state reopen`
* diff: `dd diff`
* doctor: `dd doctor`
* explain: `dd explain`
* feed: `dd feed`
* import_: `dd import`
* init: `dd init`
* inputs: `dd inputs` and `dd wait`
* log: `dd log` and `dd log compact`
* main: the group of all commands, and the exit code of each error
* messages: the messages of a run, for people, programs and GitHub
* metrics: the file of `dd run --metrics`
* notebooks: results as notebooks show them
* openlineage: the events of `dd run --openlineage`
* telemetry: the traces and metrics of `dd run` for OpenTelemetry
* plan: `dd plan` and `dd lineage`
* query: `dd query`
* reference: `dd completion`, `dd functions` and `dd schema`
* reset: `dd reset`
* run: `dd run`
* run_several: `dd run` with several pipelines
* sql: `dd sql`
* state: `dd state ls`, `show`, `verify`, `export`
* state_changes: the commands on a state that change it
* test: `dd test`
* verify: `dd verify`
* why: `dd why`
"""
