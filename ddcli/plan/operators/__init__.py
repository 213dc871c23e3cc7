"""The operators of pipeline files and programs: one table, from which their reader, the schema and the methods of collections come.

* groups: a row of the table; aggregates, counts, orders and windows; Python functions as arguments
* table: all rows, and their application: sums, joins, operators on each record, on times, loops and indexes; the times at which a record exists
"""
