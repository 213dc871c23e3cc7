"""SQL statements as collections: from a syntax tree to logical nodes, the same that operators of a file are bound to.

A query becomes a product of its tables with conditions, then groups, a list, an order with a limit. A subquery is a function of the columns around that it
reads: see `block`. Nothing of sqlglot's tree may be left unread: see `ddcli.expressions.sql`.

* block: a relation while it is built, and the subqueries that attach to it
* calls: calls of aggregates, as syntax
* context: what the parts of a statement know of each other
* decorrelation: subqueries that need no rows around them
* entries: the list of a `select`, and what `*` stands for
* groups: `group by`, aggregates, grouping sets
* items: the entries of a `from`, and what is joined so far
* joins: the joins of a `from`
* names: the names in scope, and the columns that they mean
* nodes: joins on expressions, null-safe ones, and what is padded with nulls
* operator_writer: a query's nodes as operators of a pipeline file
* outer_aggregates: aggregates in subqueries that are of the rows around
* outer_join: outer joins on any condition
* product: items joined by the conditions on them
* reader: expressions with names, aggregates and subqueries
* recursion: `with recursive` as a loop
* select: a `select`
* sets: `union`, `intersect`, `except`
* shared_sums: sums over a join, of sums that are kept anyway
* statement: a statement bound to what it names
* table_functions: functions that return rows
* tables: the `from` of a query with its `where`
* top: `order by`, `limit`, `offset`
* values: rows that depend on no table
* windows: window functions and `qualify`
"""
