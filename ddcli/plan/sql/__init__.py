"""SQL statements as collections: from a syntax tree to logical nodes, the same that operators of a file are bound to.

A query becomes a product of its tables with conditions, then groups, a list, an order with a limit. A subquery is a function of the columns around it that it
reads: see `block`. No part of sqlglot's tree may be left unread: see `ddcli.expressions.sql`.

* block: a relation while it is built, and the subqueries that attach to it
* calls: calls of aggregates, as syntax
* context: the context that the parts of a statement share
* decorrelation: subqueries that need no rows around them
* entries: the list of a `select`, and the columns that `*` stands for
* groups: `group by`, aggregates, grouping sets
* items: the entries of a `from`, and the chains that are joined so far
* joins: the joins of a `from`
* names: the names in scope, and the columns that they mean
* nodes: joins on expressions, null-safe ones, and rows padded with nulls
* operator_writer: a query's nodes as operators of a pipeline file
* outer_aggregates: aggregates in subqueries over the rows of a query around
* outer_join: outer joins on any condition
* product: items joined by the conditions on them
* reader: expressions with names, aggregates and subqueries
* recursion: `with recursive` as a loop
* select: a `select`
* sets: `union`, `intersect`, `except`
* shared_sums: sums over a join, computed of sums that are kept anyway
* statement: a statement bound to the relations that it names
* table_functions: functions that return rows
* tables: the `from` of a query with its `where`
* top: `order by`, `limit`, `offset`
* values: rows that depend on no table
* windows: window functions and `qualify`
"""
