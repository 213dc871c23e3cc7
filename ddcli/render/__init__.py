"""Views for people: tables, plans, pictures, progress. Nothing here writes to a state.

* drawing: a plan as SVG and as Mermaid
* layout: the places of boxes, groups and lines of a graph, in layers with few crossings
* lineage: column lineage as text, Mermaid and HTML
* live: progress on a terminal
* page: a plan as one HTML page, with its operators in plain words
* rows: rows as a table, JSON, CSV, Parquet
* text: a plan on a terminal, with its operators in order; the operators by their time
* units: numbers in few letters, widths of text
* view: the plan with its counts, for all drawings
"""
