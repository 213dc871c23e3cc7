"""The engine: updates as matrices of 64-bit lanes, arrangements of them, and the operators that maintain results.

Nothing in here knows a file, a pipeline or a column's name; it is a library of its own.
"""
