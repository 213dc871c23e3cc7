"""`dd import`: projects of other programs as pipeline files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import REPORT
from ddcli.screen import json_text, near, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.commands.projects.takeover import ImportedProject

PROJECT = click.argument("project", type=click.Path(path_type=Path))
PIPELINE = click.argument("pipeline", type=click.Path(path_type=Path), required=False)
FORCE = click.option("--force", is_flag=True, help="Replace the file PIPELINE.")


@click.group("import", short_help="Make a pipeline file of another program's project.")
def command() -> None:
    """Make a pipeline file of another program's project.

    \b
    Example:
      dd import dbt fixtures/dbt out/shop.yaml
    """


@command.command("dbt", short_help="Make a pipeline file of a compiled dbt project.")
@PROJECT
@PIPELINE
@FORCE
@REPORT
def from_dbt(project: Path, pipeline: Path | None, force: bool, output: str) -> None:
    """Make a pipeline file of the dbt project in the folder PROJECT, as `dbt compile --full-refresh` with dbt-duckdb left it
    in target/manifest.json. PIPELINE is PROJECT/dd.yaml by default.

    Models become collections with their SQL, and tables also outputs. Seeds, sources and snapshots become inputs, data tests become checks: with severity `warn` they warn, others prevent a commit.
    The parts that can't be imported are listed by file and line, with all their readers; the file holds the rest.

    Exits with 1 if something is left out.

    \b
    JSON: {pipeline, inputs, models, tests, notes: [NOTE],
           left_out: [{file, line, column, length, problem, hint}]}

    \b
    Examples:
      dd import dbt fixtures/dbt out/shop.yaml
      dd import dbt fixtures/dbt out/shop.yaml --force
    """
    from ddcli.commands.dbt.project import import_project

    _import(import_project, project, pipeline or project / "dd.yaml", force=force, output=output)


@command.command("sdp", short_help="Make a pipeline file of a project of Spark's declarative pipelines.")
@PROJECT
@PIPELINE
@FORCE
@REPORT
def from_sdp(project: Path, pipeline: Path | None, force: bool, output: str) -> None:
    """Make a pipeline file of the project of Spark's declarative pipelines in the folder PROJECT: of the SQL files that its
    spark-pipeline.yml names. PIPELINE is PROJECT/dd.yaml by default.

    Materialized views and streaming tables become outputs, views collections, tables that the project does not define inputs.
    The parts that can't be imported are listed by file and line, with all their readers; the file holds the rest.

    Exits with 1 if something is left out.

    \b
    JSON: {pipeline, inputs, models, tests, notes: [NOTE],
           left_out: [{file, line, column, length, problem, hint}]}

    \b
    Examples:
      dd import sdp fixtures/sdp out/spark.yaml      # exit 1
    """
    from ddcli.commands.sdp.project import import_sdp

    folder = project if project.is_dir() else project.parent
    _import(import_sdp, project, pipeline or folder / "dd.yaml", force=force, output=output)


def _import(
    importing: Callable[[Path, Path], ImportedProject], project: Path, target: Path, *, force: bool, output: str
) -> None:
    """Write the pipeline file that a project becomes, and report the parts that are left out."""
    from dataclasses import asdict

    from ddcli.errors import UsageError
    from ddcli.job.summary import plural

    if target.exists() and not force:
        raise UsageError("this file exists already", place=str(target), hint="--force replaces it")
    found = importing(project, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(found.text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write there: {error.strerror}", place=str(target)) from None
    if output == "json":
        left = []
        for each in found.left_out:
            place = (
                asdict(each.span) if each.span else {"file": each.place, "line": None, "column": None, "length": None}
            )
            place.pop("source", None)
            left.append(place | {"problem": each.problem, "hint": each.hint})
        report = {"pipeline": str(target), "inputs": found.inputs, "models": found.models, "tests": found.tests}
        say(json_text(report | {"notes": found.notes, "left_out": left}))
    else:
        for note in found.notes:
            say(f"note: {note}", err=True)
        for each in found.left_out:
            say(*each.lines(), err=True)
        counts = ((found.inputs, "input"), (found.models, "model"), (found.tests, "test"))
        say(f"{near(str(target))}: {', '.join(f'{count} {plural(count, what)}' for count, what in counts)}")
    if found.left_out:
        raise click.exceptions.Exit(1)
