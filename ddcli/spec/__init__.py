"""Pipeline files: from YAML text to a checked model, with every error at its place. `ddcli/plan/pipeline_file.py` reads them with the planner's operators.

* budget: the most that a run and its operators may take
* checks: checks, and the collections of violations that they become
* csv_options: the key `csv` of an input
* document: the whole file
* file: the text of a pipeline file, variables in its values, and digests of its parts
* include: inputs and collections of other files
* inputs: inputs and their formats
* model: the content of a pipeline file as plain values
* names: names across a file
* shapes: places, errors, and reading that continues after an error; lists, mappings, alternatives
* tables: outputs, and inputs and outputs that are tables of other programs
* tests: the tests of a pipeline
* tree: YAML text as nodes with their places, and where punctuation cuts an expression
* values: texts, expressions, numbers, types, references, columns and orders; the operators under `apply`, by a table of them
"""
