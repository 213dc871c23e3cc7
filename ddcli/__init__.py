"""Differential dataflow over files: keep the results of data pipelines up to date as their inputs change.

Importing this package costs nothing: the libraries that do the work are imported where they are used.
"""

__version__ = "0.1.0"
