"""Data-diff: the changes that turn one collection into another. Each may be a change log as of a time, a table in files, or a frame.

The definition, which the tests recompute in plain Python: let A and B be multisets of records over the columns that both sides have
(a multiplicity may be negative), and D = B - A, record by record.

* Without a key, the records where D is negative are *removed*, those where it is positive *added*, |D| of each.
* With a key, the removed and the added records of each key are put in order (null last, NaN before it) and paired one by
  one: a pair is a *changed* row, or no change if all its cells are the same within their tolerances; unpaired records are
  removed or added. Duplicate keys are thus compared as a multiset, and reported.

Values are compared by their meaning, in a type to which both sides' types widen; a difference of types is reported apart.
NaN equals NaN, -0.0 equals 0.0, null equals null.

* columns: common columns, their types, and the settings of a comparison
* diff: the comparison: both sides are read once, divided by key, and compared bucket by bucket
* output: a comparison in the chosen format
* page: values and counts as text, and a comparison as one HTML page
* pairs: open sides, and the differences between their rows
* against: a pipeline file and a state: the effect of an edit, computed above what the state keeps
* scenarios: the effects of several sets of files on a pipeline's outputs
* pipelines: the comparison of two pipeline files, also of a git revision
* sides: the sides that arguments name: files, a log or a table, and their types
"""
