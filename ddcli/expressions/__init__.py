"""Expressions: SQL text to a checked, typed tree, and the tree to polars.

Importing this package imports neither sqlglot nor polars: callers import its modules.

* aggregates: the table of aggregates
* arithmetic: typing of arithmetic, on numbers and on times
* coerce: common types of expressions, and casts
* csv_dialect: the dialect of CSV files: delimiter, encoding, nulls, dates and numbers
* dialect: the SQL that is read: sqlglot's grammar without its functions; errors of syntax
* forms: forms of SQL with syntax of their own, and constants
* functions: the table of functions; of times in `time_functions`
* json_text: parts of JSON in a text
* lower: the tree to polars: values and checks; comparisons, conditionals, structs
* lower_cast: casts
* lower_json: parts of JSON texts
* lower_list: lists, and the sort keys of lists and structs
* lower_number: arithmetic; bits of integers
* lower_text: text functions
* lower_time: dates, times, intervals
* moments: the instants that the clocks of time zones show; years 1 to 9999; formats of dates and timestamps
* modules: Python modules that a pipeline names, found and imported; the text of a Python module: read, parsed
* nanoseconds: Python's timestamps, times and lengths of time with the nanoseconds that Python's own cut
* nested_values: the syntax of lists and structs
* operators: typing of operators and conditionals; the keys that rows are ordered by
* parse: text to a checked, typed tree; replacements for functions of other databases
* patterns: patterns of `like`, and regular expressions as RE2 has them
* python: Python functions that a pipeline names; a Python function's definition, read from its text
* python_values: Python values as columns of a type; Python functions in a stage
* ranges: ranges of integers and decimals, which prove that none overflows
* reductions: expressions over aggregate calls
* revisions: calls that an earlier version computed otherwise
* signatures: functions of the table, their signatures as text, and checks of constants
* stage: linear steps fused into one, and their run: values and checks in one query
* syntax_tree: a syntax tree with places, whose every part must be used; its checks; the tables of a statement
* time_functions: the table's functions of dates and times
* tree: the typed tree, and the linear steps made of it
* types: the types and names of columns, and the zone of their timestamps; the order in which rows are shown
* window_calls: window functions and frames, read from syntax
* windows: the table of window functions, frames
"""
