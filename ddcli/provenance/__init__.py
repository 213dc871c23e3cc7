"""`dd why`: the updates of inputs that explain a record, found backwards through the operators, and checked by running on them alone.

* absence: why a record is missing
* changes: why a record changed at a time
* contents: a collection at one time, by values
* depth: recursion as deep as a loop has rounds
* explanation: why a record is in a collection, checked
* inputs: the inputs as of a time
* question: a question, its world, its checked answers
* reasons: the tree from a record to updates of inputs
* restriction: which input rows a record can depend on
* sentences: operators and values in words
* trace: from a record to what it is made of
* trees: explanations as trees and plain values
* updates: updates of an input by record
* worlds: what each collection holds, in each round
"""
