"""Views for people: tables, plans, pictures, progress. Nothing here changes anything.

* drawing: a plan as SVG
* layers: boxes in layers, few crossings
* layout: the places of a plan's boxes
* live: progress on a terminal
* mermaid: a plan as Mermaid
* order: the order in which operators are read
* page: a plan as one HTML page
* profile: the operators by their time
* rows: rows as a table, JSON, CSV, Parquet
* shapes: boxes, groups, lines
* text: a plan on a terminal
* units: numbers in few letters, widths of text
* view: the plan as people see it
"""
