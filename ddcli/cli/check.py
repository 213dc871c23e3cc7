"""`dd check`: what is wrong with pipeline files, without reading data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import PIPELINE

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
    declared needs no file, so a pipeline can be checked where its data are not.

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
    from ddcli.checking import check
    from ddcli.summary import plural

    found = [check(path) for path in pipelines]
    errors = [error for each in found for error in each.errors]
    if output == "json":
        import json

        click.echo(json.dumps({"ok": not errors, "pipelines": [each.to_json() for each in found]}))
    for each in found if output != "json" else ():
        for error in each.errors:
            if output == "github":
                from ddcli.cli.annotations import annotation

                click.echo(annotation(error))
            else:
                click.echo(error.render(), err=True)
        if not each.errors:
            inputs = f"{len(each.inputs)} {plural(len(each.inputs), 'input')}"
            click.echo(f"{each.file}: ok, {inputs}")
            for name in each.supposed:
                click.echo(
                    f"{each.file}: note: inputs.{name}: no files are here; its columns are as declared", err=True
                )
            for name, schema in each.outputs.items():
                click.echo(f"  {name}: {', '.join(f'{column} {kind}' for column, kind in schema.items())}")
    if errors:
        wrong = sum(bool(each.errors) for each in found)
        told = f"{len(errors)} {plural(len(errors), 'error')} in {wrong} of {len(found)} {plural(len(found), 'file')}"
        click.echo(told, err=True)
        raise click.exceptions.Exit(min(error.exit_code for error in errors))
