"""Expressions: SQL text to a checked, typed tree, and the tree to polars.

Importing this package imports neither sqlglot nor polars; take what is needed from its modules: `types`, `tree`, `parse`
(parse_scalar, parse_table, Scope), `aggregates` (parse_reduction), `stage` (Stage and its steps), `functions` (the table).
"""
