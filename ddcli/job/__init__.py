"""The request of a run, its size and its summary.

* budget: what a run may take, held against what it took
* clock: the time of a run
* consumed_files: what becomes of files that were taken in
* forgotten_rows: the rows that are forgotten, and what became of files
* frontier: up to which times a run closes them
* functions: the Python functions of a pipeline: forbidden, or loaded
* idle: whether there is anything to do at all
* input_files: what there is of an input
* inputs: what there is of each input of a run: which files are new, which changed
* kept_plan: what a pipeline file means, kept from one run to the next
* object_table: immutable objects as a table of JSON
* options: where a run is computed
* paths: the paths that a pipeline file names, and what is wrong with them
* reopened_times: a state that is taken back to a time
* request: what a run is asked for
* sizes: how a run is cut into shards and passes; pure
* standby: what a watch keeps from one round to the next
* summary: what a run did
* tables: inputs that are tables of other programs, and their mirrors
* tables_out: outputs that are tables of other programs: whether they are up to their logs
* withdrawal: the files that a request withdraws
"""
