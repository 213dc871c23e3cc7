"""`dd explain`: the operator plan, with the counts of the last run."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, TextIO

import click

from ddcli.cli.arguments import ONLY_PIPELINE, STATE, VAR, Renamed, file_option
from ddcli.errors import EngineError, UsageError
from ddcli.screen import columns, json_text, say

if TYPE_CHECKING:
    from pathlib import Path

    from ddcli.render.view import View

COLUMNS = 100
"""The columns of the drawing without a terminal."""


@click.command("explain", short_help="Show a pipeline's operators, with the counts of the last run.")
@ONLY_PIPELINE
@STATE
@click.option(
    "-o",
    "--output",
    "form",
    cls=Renamed,
    old=["--format"],
    type=click.Choice(["text", "json", "mermaid", "svg", "html", "yaml"]),
    default="text",
    show_default=True,
    help="Format: a drawing in characters, plain values, a Mermaid flowchart, a picture, a page with all of it, or the file "
    "with operators instead of SQL.",
)
@file_option("--out", help="Write to FILE instead of stdout. Without -o its ending selects the format.")
@click.pass_context
@VAR
def command(context: click.Context, pipeline: Path, state: Path | None, form: str, out: Path | None) -> None:
    """Show the operators that PIPELINE becomes: linear steps fused into one, arrangements and their readers, loops as
    boxes.

    After a run each operator has counts: rows in and out, the expected number, inserts (+) and retractions (-), the stored rows that it read, the time of all
    threads together, and the rows and bytes in the state. An arrangement also shows how many keys the lookups of its readers scanned in large batches.

    `work` bounds an operator's work for a change: the change itself (not shown), the output, the groups, the partition, or everything.

    With -o yaml it prints the pipeline file with operators in place of the SQL collections. `dd check` accepts that file, and
    its results are the same.

    Reads no rows, only the columns in the footers of inputs; an input with declared `columns` needs no file.

    JSON: {name, operators: [{id, kind, names, says, columns: {NAME: TYPE}, inputs: [ID], readers: [ID], loop, keeps,
    held: {rows, bytes, files}, work, estimated, shared, counts: {rows_in, rows_out, inserted, retracted, seconds, turns, rounds, rows_read, rows_scanned}}],
    loops: [{id, variables, parent, bound, feedback: [[ID, ID]], counts}], outputs: {NAME: ID}, runs: [{number, began,
    upper, seconds, rows_read, rows_written, state_bytes}]}; `held`, `estimated`, `counts` and `loop` are null where there is none,
    `rounds` are the rows that a loop's body emitted in each round, summed over the times outside the loop.

    \b
    Examples:
      dd explain pipelines/airborne.yaml
      dd explain pipelines/scc.yaml -o svg --out scc.svg
      dd explain pipelines/airborne.yaml --out airborne.html
      dd explain pipelines/airborne.yaml -o yaml
    """
    from ddcli.commands.explain import explain

    chosen = context.get_parameter_source("form") is click.core.ParameterSource.COMMANDLINE
    if out is not None and not chosen:
        form = _form_of(out)
    lines = partial(_written, pipeline) if form == "yaml" else None
    if lines is None:
        view = explain(pipeline, state)
        lines = partial(_lines, pipeline, view, form)
    if out is None:
        for line in lines(terminal=sys.stdout):
            say(*line.split("\n"), styled=form == "text")
        return
    try:
        out.write_text("".join(f"{click.unstyle(line)}\n" for line in lines()), encoding="utf-8")
    except OSError as error:
        raise EngineError(f"cannot write the file: {error.strerror or error}", place=str(out)) from error


FORMS = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
    ".json": "json",
    ".mmd": "mermaid",
    ".md": "mermaid",
    ".txt": "text",
}


def _form_of(out: Path) -> str:
    """Return the format that a file's ending selects."""
    if out.suffix.lower() not in FORMS:
        raise UsageError(
            f"the ending of '{out}' selects no format",
            hint=f"choose one with -o, or end the name with {', '.join(FORMS)}",
        )
    return FORMS[out.suffix.lower()]


def _written(pipeline: Path, terminal: TextIO | None = None) -> list[str]:  # noqa: ARG001 - it is the same on all
    """Return a pipeline file with operators in place of SQL, and print a note on each collection that stays SQL."""
    from ddcli.commands.explain import written_pipeline

    text, left = written_pipeline(pipeline)
    for name, reason in left.items():
        say(f"note: {name} stays SQL, as no operators are written for {reason}", err=True)
    return text.rstrip("\n").split("\n")


def _lines(pipeline: Path, view: View, form: str, terminal: TextIO | None = None) -> list[str]:
    """Return a view in a format; text is fitted to the `terminal`, if there is one."""
    if form == "json":
        return [json_text(view.to_json())]
    if form == "mermaid":
        from ddcli.render.drawing import mermaid

        return mermaid(view)
    if form == "text":
        from ddcli.render.text import text

        plain = terminal is not None and not _can_draw(terminal)
        return text(view, (terminal and columns(terminal)) or COLUMNS, ascii_only=plain)
    from ddcli.render.drawing import draw, svg

    if form == "svg":
        return [svg(draw(view))]
    from ddcli.commands.pipelines import find_lineage
    from ddcli.render.page import page

    return [page(draw(view), find_lineage([pipeline]))]


def _can_draw(stream: TextIO) -> bool:
    """Return whether a stream's encoding has the characters of the drawing."""
    try:
        "╭○→…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
