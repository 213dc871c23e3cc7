"""`dd test`: the tests of a pipeline file, run in memory, compared with their expectations, and replayed in other cuts.

* expectation: the comparison of expected and actual records
* replay: runs of the same updates in other cuts
* rows: a pipeline under test, and the rows of a test as updates of its inputs
* run: tests one by one, with the cost of their steps
"""
