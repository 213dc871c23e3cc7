"""`dd lineage`: the columns of inputs that a column comes from, and the columns of outputs that one reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import COLLECTION, ONLY_PIPELINE, VAR, formats
from ddcli.screen import json_text, say

if TYPE_CHECKING:
    from pathlib import Path


@click.command("lineage", short_help="Show which columns of inputs a column comes from, and what it reaches.")
@ONLY_PIPELINE
@click.argument("columns", metavar="[COLUMN...]", nargs=-1, type=COLLECTION)
@formats("text", "json", "mermaid", "html", about="Format: lines, JSON, a Mermaid flowchart, or a page.")
@VAR
def command(pipeline: Path, columns: tuple[str, ...], output: str) -> None:
    """Show where the columns of PIPELINE's outputs come from. PIPELINE may be a directory: then inputs that other pipelines in it write are followed through these.

    COLUMN is the name of an output or a collection, or of one of its columns, `sales.amount`. If it is an input's, the columns of outputs that it reaches are shown.
    Without COLUMN, all columns of outputs are. Where several pipelines have a name, put the pipeline's before it: `month/sales.amount`.

    A column comes `from` the columns that its values are made of. It is `decided by` those that decide which value a record has, or which
    records there are: conditions, keys of joins, groups, orders. Changing any other column of an input changes nothing in it, as long as no multiplicity is negative.
    A Python function is taken to use all columns for all of its own. Time and diff columns are not shown.

    Reads no rows: only the columns in the footers of inputs, and no file of an input with declared `columns`.

    JSON: {columns: [{pipeline, name, column, type, sources | influences: [{pipeline, name, column}]}]}.

    \b
    Examples:
      dd lineage pipelines/airborne.yaml airborne.flights
      dd lineage pipelines/airborne.yaml flights.status
      dd lineage pipelines/ -o html > lineage.html
    """
    from ddcli.commands.lineage import find_lineage
    from ddcli.render import lineage as render

    report = find_lineage([pipeline], columns)
    if output == "json":
        say(json_text(report.to_json()))
    elif output == "html":
        say(*render.page(report).split("\n"))
    else:
        for line in render.mermaid(report) if output == "mermaid" else render.text(report):
            say(line)
