"""Views for people: tables, plans, pictures, progress. Nothing here writes to a state.

* drawing: a plan as SVG
* folded: a plan with one box for each collection
* glossary: the operators in plain words
* layers: the boxes of one scope in layers, with few crossings
* layout: the places of the boxes of a plan
* lineage: column lineage as text, Mermaid and HTML
* live: progress on a terminal
* mermaid: a plan as Mermaid
* order: the order of operators in text
* page: a plan as one HTML page
* profile: the operators by their time
* rows: rows as a table, JSON, CSV, Parquet
* shapes: boxes, groups, lines
* text: a plan on a terminal
* units: numbers in few letters, widths of text
* view: the plan with its counts, for all drawings
"""
