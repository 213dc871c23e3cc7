"""Tables of other programs as inputs: what a pipeline makes of a table's history, against what the table's own package reads."""
