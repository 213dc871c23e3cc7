"""The operators of pipeline files and programs: one table, from which their reader, the schema and the methods of collections come.

* collections: sums and joins
* functions: Python functions as arguments
* groups: aggregates, counts, orders and windows
* records: operators on each record by itself
* row: a row of the table
* table: all rows, and their application
* times: operators on times, loops and indexes; the times at which a record exists
"""
