"""`dd explain`: the operator plan, with what the last run counted."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from ddcli.cli.arguments import PIPELINE
from ddcli.screen import json_text, say

if TYPE_CHECKING:
    from ddcli.render.view import View

LEAST_COLUMNS, MOST_COLUMNS = 80, 120
"""Of the drawing on a terminal."""


@click.command("explain", short_help="Show the operators that a pipeline becomes, and what the last run counted.")
@click.argument("pipeline", type=PIPELINE)
@click.option(
    "--state",
    type=click.Path(path_type=str, file_okay=False),
    help="The state's directory. [default: the file's `state`, else .dd/NAME/ beside it]",
)
@click.option(
    "-o",
    "--format",
    "--output",
    "form",
    type=click.Choice(["text", "json", "mermaid", "svg", "html"]),
    default="text",
    show_default=True,
    help="A drawing of characters, plain values, a Mermaid flowchart, a picture, or a page with all of it.",
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to FILE instead of stdout; by its ending it is the format, where that is not said.",
)
@click.pass_context
def command(context: click.Context, pipeline: Path, state: str | None, form: str, out: Path | None) -> None:
    """Show the operators that PIPELINE becomes: linear steps fused into one, arrangements and who shares them, loops as
    boxes. After runs, with what the last one counted: rows in and out, how many of these insert (+) and retract (-), the
    time of all threads together, and the rows and bytes that the state holds.

    No data are read: of inputs only what their footers say of columns, and nothing where `columns` are declared.

    JSON: {name, operators: [{id, kind, names, says, columns: {NAME: TYPE}, inputs: [ID], readers: [ID], loop, keeps,
    held: {rows, bytes, files}, shared, counts: {rows_in, rows_out, inserted, retracted, seconds, turns, rounds}}],
    loops: [{id, variables, parent, bound, feedback: [[ID, ID]], counts}], outputs: {NAME: ID}, runs: [{number, began,
    upper, seconds, rows_read, rows_written, state_bytes}]}; `held`, `counts` and `loop` are null where there is none,
    `rounds` are the rows that a loop's body gave in each round, summed over the times around it.

    \b
    Examples:
      dd explain pipelines/airborne.yaml
      dd explain pipelines/scc.yaml --format svg --out scc.svg
      dd explain pipelines/airborne.yaml --out airborne.html
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.commands.explain import explain
    from ddcli.store.files.objects import locate

    said = context.get_parameter_source("form") is click.core.ParameterSource.COMMANDLINE
    if out is not None and not said:
        form = _form_of(out)
    view = explain(pipeline, None if state is None else locate(Path.cwd(), state))
    if out is None:
        for line in _lines(view, form, terminal=sys.stdout):
            say(*line.split("\n"), styled=form == "text")
        return
    from ddcli.errors import EngineError

    try:
        out.write_text("".join(f"{click.unstyle(line)}\n" for line in _lines(view, form)), encoding="utf-8")
    except OSError as error:
        raise EngineError(f"the file can't be written: {error.strerror or error}", place=str(out)) from error


FORMS = {
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
    ".json": "json",
    ".mmd": "mermaid",
    ".md": "mermaid",
    ".txt": "text",
}


def _form_of(out: Path) -> str:
    """Return the format that a file's ending says."""
    from ddcli.errors import UsageError

    if out.suffix.lower() not in FORMS:
        raise UsageError(
            f"'{out}' does not say by its ending which format it is to have",
            hint=f"name it with --format, or {', '.join(FORMS)}",
        )
    return FORMS[out.suffix.lower()]


def _lines(view: View, form: str, terminal: TextIO | None = None) -> list[str]:
    """Return a view in a format; text for the terminal that it goes to, if it is one."""
    if form == "json":
        return [json_text(view.to_json())]
    if form == "mermaid":
        from ddcli.render.mermaid import mermaid

        return mermaid(view)
    if form == "text":
        from ddcli.render.text import text

        columns = shutil.get_terminal_size((LEAST_COLUMNS, 0)).columns if terminal and terminal.isatty() else 100
        plain = terminal is not None and not _can_draw(terminal)
        return text(view, min(max(columns, LEAST_COLUMNS), MOST_COLUMNS), ascii_only=plain)
    from ddcli.render.drawing import draw, svg

    if form == "svg":
        return [svg(draw(view))]
    from ddcli.render.page import page

    return [page(draw(view))]


def _can_draw(stream: TextIO) -> bool:
    """Say whether a stream's encoding has the characters of the drawing."""
    try:
        "╭○→…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
