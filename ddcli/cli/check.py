"""`dd check`: what is wrong with pipeline files, without reading data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import PIPELINE
from ddcli.screen import json_text, say, say_own

if TYPE_CHECKING:
    from pathlib import Path


@click.command("check", short_help="Find what is wrong with pipeline files, without reading data.")
@click.argument("pipelines", metavar="PIPELINE...", nargs=-1, required=True, type=PIPELINE)
@click.option(
    "-o",
    "--format",
    "--output",
    "output",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Lines, JSON, or annotations that GitHub shows beside the lines of a pull request.",
)
def command(pipelines: tuple[Path, ...], output: str) -> None:
    """Check pipeline files: keys and names, expressions and types, functions in Python, paths, and that inputs have the
    columns that are used. All that is wrong is told at once, each thing at its place.

    No data are read: of files only what their footers and headers say of columns. An input whose `columns` are
    declared needs no file, so a pipeline can be checked where its data are not. No code is run: that a function is there, and
    how many arguments it takes, is read from the text of its module.

    Exits with 2 if a file is wrong, and with 3 if it is right but the columns of an input can't be told or don't fit.

    \b
    JSON: {ok, pipelines: [{file, name, ok,
           inputs: {NAME: {columns: {COLUMN: TYPE}, time: {COLUMN: TYPE}, files}}, outputs: {NAME: {COLUMN: TYPE}},
           errors: [{file, line, column, length, problem, hint, code}]}]}

    \b
    Examples:
      dd check pipelines/airborne.yaml
      dd check pipelines/*.yaml --format github
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.commands.check import check
    from ddcli.job.summary import plural

    found = [check(path) for path in pipelines]
    errors = [error for each in found for error in each.errors]
    if output == "json":
        say(json_text({"ok": not errors, "pipelines": [each.to_json() for each in found]}))
    for each in found if output != "json" else ():
        for error in each.errors:
            if output == "github":
                from ddcli.cli.annotations import annotation

                say_own(annotation(error))
            else:
                say(*error.lines(), err=True)
        if not each.errors:
            inputs = f"{len(each.inputs)} {plural(len(each.inputs), 'input')}"
            say(f"{each.file}: ok, {inputs}")
            for name in each.supposed:
                say(f"{each.file}: note: inputs.{name}: no files are here; its columns are as declared", err=True)
            for name, why in each.unseen.items():
                say(f"{each.file}: note: `{name}` is seen to fit when it is called: {why}", err=True)
            for name, schema in each.outputs.items():
                say(f"  {name}: {', '.join(f'{column} {kind}' for column, kind in schema.items())}")
    if errors:
        wrong = sum(bool(each.errors) for each in found)
        told = f"{len(errors)} {plural(len(errors), 'error')} in {wrong} of {len(found)} {plural(len(found), 'file')}"
        say(told, err=True)
        raise click.exceptions.Exit(min(error.exit_code for error in errors))
