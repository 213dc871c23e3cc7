"""`dd test`: the tests of a pipeline file, run in memory, compared with their expectations, and replayed in other cuts.

* expectation: the comparison of expected and actual records
* rows: a pipeline under test, the rows of a test as updates of its inputs, and runs of these in other cuts
* run: tests one by one, with the cost of their steps
"""
