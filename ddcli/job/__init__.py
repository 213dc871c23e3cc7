"""The request of a run, its size and its summary.

* budget: the bounds on a run's cost, held against its cost
* consumed_files: the fate of input files that were taken in; a file's move to another directory
* corrections: the files that a request withdraws, the rows that it forgets, and the time to which it takes a state back
* idle_check: the test whether there is anything to do at all
* inputs: the files, the format and the progress of each input of a run; the time that they share; the frontier up to which a run closes the times
* kept_plan: the meaning of a pipeline file, kept between runs as a table of JSON
* options: the options of a run, and the memory of a watch
* paths: the paths that a pipeline file names, and the errors in them
* request: the request of a run: what its caller asks, its clock, the pipeline as it was found, the decisions; the Python functions of a pipeline: forbidden, or loaded
* sizes: the resources of a run, and the numbers of its shards and passes
* summary: the summary of a run, and the records of the last runs
* tables: inputs that are tables of other programs, and their mirrors; outputs that are tables of other programs, and the test whether they are up to their logs
* verdict: the verdicts of checks
"""
