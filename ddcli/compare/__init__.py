"""Data-diff: what makes of one collection another. Either may be a change log as of a time, a table in files, or a frame.

The definition, which everything here computes and the tests recompute in plain Python. Let A and B be multisets of records
over the columns that both sides have (a multiplicity may be negative), and D = B - A, record by record.

* Without a key, the records where D is negative are *removed*, those where it is positive *added*, |D| of each.
* With a key, the removed and the added records of each key are put in order (null last, NaN before it) and paired one by
  one: a pair is a *changed* row, or none where all its cells are the same within their tolerances; what is left over is
  removed or added. A key that is there more than once is so compared as a multiset, and said.

Values are compared by what they mean, in a type that both sides' types widen to; that types differ is said by itself.
NaN equals NaN, -0.0 equals 0.0, null equals null.
"""
