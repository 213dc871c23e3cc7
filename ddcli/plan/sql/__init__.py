"""SQL statements as collections: from a syntax tree to the logical nodes to which operators of a file are bound, too.

A query becomes a product of its tables with conditions, then groups, a list, an order with a limit. A subquery is a function of the outer query's columns
that it reads: see `block`. Each part of sqlglot's tree must be read: see `ddcli.expressions.syntax_tree`.

* block: a relation while it is built, and the subqueries that attach to it; subqueries computed without the outer query's rows
* calls: calls of aggregates, also of outer queries, of functions that return rows, and names of the present time
* context: the names in scope, the columns that they mean, and the result of a query
* groups: the list of a `select`, `group by`, aggregates, grouping sets
* items: the items of a `from`, joined by the conditions on them
* joins: a `from` and its joins
* nodes: constructors of logical nodes: joins on expressions, null-safe joins, padding with nulls
* present: comparisons with the present time, as bounds of time
* reader: expressions with names, aggregates and subqueries
* recursion: `union`, `intersect`, `except`, and `with recursive` as a loop
* select: a `select`, its window functions, `qualify`, `order by`, `limit` and `offset`
* statement: a statement bound to the relations that it names; rows that depend on no table
"""
