"""Data-diff: the changes that turn one collection into another. Either may be a change log as of a time, a table in files, or a frame.

The definition, which all modules here compute and the tests recompute in plain Python: let A and B be multisets of records
over the columns that both sides have (a multiplicity may be negative), and D = B - A, record by record.

* Without a key, the records where D is negative are *removed*, those where it is positive *added*, |D| of each.
* With a key, the removed and the added records of each key are put in order (null last, NaN before it) and paired one by
  one: a pair is a *changed* row, or none if all its cells are the same within their tolerances; records without a partner are
  removed or added. Duplicate keys are thus compared as a multiset, and reported.

Values are compared by their meaning, in a type to which both sides' types widen; a difference of types is reported apart.
NaN equals NaN, -0.0 equals 0.0, null equals null.

* buckets: rows divided by a hash of their key, in memory or in scratch files
* cells: changed values as text and as plain values, exactly
* columns: the columns that two sides share, and the type in which each is compared
* diff: the comparison: both sides read once, divided by key, compared a bucket at a time
* difference: the result: counts, columns that differ, changed rows
* markdown: a comparison as Markdown
* output: a comparison in the requested format
* page: a comparison as one HTML page
* pairs: the definition of a difference, on frames
* pipelines: two pipeline files compared by their outputs
* plain_values: a comparison as plain values, for JSON
* sentences: the lines that text, Markdown and HTML share
* settings: tolerances and other settings, as options write them
* side: one open side: rows with multiplicities
* sides: the side that an argument names: files, a log or a table, and its types
* text: a comparison as text
* text_types: the types of columns of text
* tolerance: the test whether unequal values are within the tolerance
* updates: a comparison as a change log
"""
