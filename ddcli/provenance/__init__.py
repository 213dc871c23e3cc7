"""`dd why`: the updates of inputs that explain a record, traced back through the operators, and checked by a run over them alone.

* bisection: the run and the rows of inputs that made a condition on outputs fail
* changes: the reasons why a record changed at a time
* evaluated_plan: the contents of each collection at one time, searched by values
* explanation: the answer to a question, each explanation checked
* file_history: the files of inputs as they were before runs replaced or withdrew them
* first_failure: the first time at which a condition on outputs fails
* inputs: the input rows on which a record can depend, as of a time
* question: a question, its evaluated plan, its checked explanations; the reasons why a record is missing
* sentences: the tree from a record to updates of inputs, the walk that finds it, and operators in words
* slices: a column's values by their hash, and the rows of inputs and arrangements that can matter to them
* trace: from a record to the records that it is made of
* trees: explanations as trees and plain values
* verification: outputs as they are committed against what their inputs say
"""
