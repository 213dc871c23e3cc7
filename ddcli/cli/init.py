"""`dd init` and `dd import`: a pipeline to start from, found in files or in a project of another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import REPORT
from ddcli.errors import UsageError
from ddcli.screen import json_text, near, plural, say, shell
from ddcli.version import install_command, local_path, origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.commands.projects import ImportedProject


STARTER = Path(__file__).parent / "starter"
IGNORED = ".gitignore"
WORKFLOW = ".github/workflows/dd.yml"
INSTALLATION = "      - run: pip install ddcli\n"
"""The step of the starter's workflow that installs this program."""


@click.command("init", short_help="Make a sample pipeline.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option(
    "--from",
    "data",
    metavar="DATA",
    type=click.Path(path_type=Path),
    help="Write a pipeline over the files in the folder DATA.",
)
@REPORT
def init_command(directory: Path, data: Path | None, output: str) -> None:
    """Make a small pipeline over CSV files in DIRECTORY, with a test, a GitHub workflow that checks it, and a
    .gitignore. DIRECTORY is created if it does not exist; the default is the current one.

    Overwrites nothing: if one of the files exists, none is written. An existing .gitignore is left alone.

    With --from, write a pipeline over the files in DATA instead: inputs with their paths, formats, columns and keys
    found in the first rows of the files, and an output for each. A comment with a question mark marks a guess.
    Rows have the time of the run that reads them. Debezium events have their own times, so their inputs get a separate pipeline file.

    JSON: {directory, files: [FILE]}: the files that were made.

    \b
    Examples:
      dd init sales
      dd init exports --from fixtures/exports/european
    """
    if directory.suffix in {".yaml", ".yml"} and not directory.is_dir():
        hint = f"for example `{shell('dd', 'init', directory.with_suffix(''))}`"
        raise UsageError("this is the name of a pipeline file, not of a directory", place=str(directory), hint=hint)
    if data is not None:
        _begin(data, directory, output)
        return
    found = sorted(path for path in STARTER.rglob("*") if path.is_file())
    names = {_name(path.relative_to(STARTER)): path for path in found}
    there = {IGNORED} & {name for name in names if (directory / name).exists()}
    texts = {name: path.read_text(encoding="utf-8") for name, path in names.items() if name not in there}
    made = {name: text.replace(INSTALLATION, _installation()) for name, text in texts.items()}
    _write(made, directory, "name a directory that is empty or new: `dd init DIRECTORY`", output)
    if output == "json":
        return
    if IGNORED in there:
        say(f"{directory / IGNORED} exists already: it should ignore out/ and .dd/", err=True)
    if WORKFLOW in made and (root := _repository(directory)) not in {None, directory.resolve()}:
        say(
            f"note: GitHub runs workflows only from the root of a repository: move {directory / WORKFLOW} to "
            f"{near(str(root / WORKFLOW))}, with `defaults: {{run: {{working-directory: {directory.resolve().relative_to(root)}}}}}`",
            err=True,
        )
    (pipeline,) = (directory / name for name in names if name.endswith(".yaml"))
    say(f"next: {shell('dd', 'run', pipeline)}", err=True)


def _begin(data: Path, directory: Path, output: str) -> None:
    """Write pipeline files over the files in a folder."""
    from ddcli.commands.first_pipeline import begin

    notes: list[str] = []
    made = begin(data, directory, notes)
    _write(made, directory, "name another directory: `dd init DIRECTORY --from DATA`", output)
    if output == "json":
        return
    for note in notes:
        say(f"note: {note}", err=True)
    say(
        f"next: check the comments with a question mark, then {shell('dd', 'run', directory / next(iter(made)))}",
        err=True,
    )


def _write(made: dict[str, str], directory: Path, hint: str, output: str) -> None:
    """Write texts into new files of a directory, by name, and report these. Raises UsageError, and writes none, if one exists."""
    if met := [name for name in made if (directory / name).exists()]:
        raise UsageError(f"these files exist already: {', '.join(met)}", place=str(directory), hint=hint)
    try:
        for name, text in made.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write there: {error.strerror}", place=str(error.filename or directory)) from None
    files = [str(directory / name) for name in made]
    say(*([json_text({"directory": str(directory), "files": list(made)})] if output == "json" else files))


def _installation() -> str:
    """Return the steps that install this program on a machine of GitHub's: from where it came, if GitHub can read that."""
    source = origin()
    if source is None or local_path(source) is not None or source["url"].startswith("file:"):
        return (
            "      # ? from where? name a git URL, or a wheel in this repository\n"
            "      - run: pip install 'ddcli @ git+https://git.example.com/dd.git'\n"
        )
    return f"      - run: {install_command()}\n"


def _repository(directory: Path) -> Path | None:
    """Return the root of the git repository that a directory is in."""
    whole = directory.resolve()
    return next((each for each in (whole, *whole.parents) if (each / ".git").exists()), None)


def _name(path: Path) -> str:
    """Return the name of a starter's file: hidden files are stored under `dot-NAME`."""
    return "/".join(part.replace("dot-", ".", 1) if part.startswith("dot-") else part for part in path.parts)


PROJECT = click.argument("project", type=click.Path(path_type=Path))
PIPELINE = click.argument("pipeline", type=click.Path(path_type=Path), required=False)
FORCE = click.option("--force", is_flag=True, help="Replace the file PIPELINE.")


@click.group("import", short_help="Make a pipeline file of another program's project.")
def import_command() -> None:
    """Make a pipeline file of another program's project.

    \b
    Example:
      dd import dbt fixtures/dbt out/shop.yaml
    """


@import_command.command("dbt", short_help="Make a pipeline file from a compiled dbt project.")
@PROJECT
@PIPELINE
@FORCE
@REPORT
def from_dbt(project: Path, pipeline: Path | None, force: bool, output: str) -> None:
    """Make a pipeline file from the dbt project in the folder PROJECT, as `dbt compile --full-refresh` with dbt-duckdb left it
    in target/manifest.json. PIPELINE is PROJECT/dd.yaml by default.

    Models become collections with their SQL, and tables also outputs. Seeds, sources and snapshots that models read become inputs; other snapshots become
    histories. Data tests become checks: with severity `warn` they warn, others prevent a commit.
    Parts that can't be imported are listed by file and line, with everything that reads them; the file has the rest.

    Exits with 1 if something is left out.

    \b
    JSON: {pipeline, inputs, models, tests, notes: [NOTE],
           left_out: [{file, line, column, length, problem, hint}]}

    \b
    Examples:
      dd import dbt fixtures/dbt out/shop.yaml
      dd import dbt fixtures/dbt out/shop.yaml --force
    """
    from ddcli.commands.dbt import import_project

    _import(import_project, project, pipeline or project / "dd.yaml", force=force, output=output)


@import_command.command("sdp", short_help="Make a pipeline file from a project of Spark's declarative pipelines.")
@PROJECT
@PIPELINE
@FORCE
@REPORT
def from_sdp(project: Path, pipeline: Path | None, force: bool, output: str) -> None:
    """Make a pipeline file from the project of Spark's declarative pipelines in the folder PROJECT: from the SQL files that its
    spark-pipeline.yml names. PIPELINE is PROJECT/dd.yaml by default.

    Materialized views and streaming tables become outputs, views collections. Tables that the project does not define become inputs.
    Parts that can't be imported are listed by file and line, with everything that reads them; the file has the rest.

    Exits with 1 if something is left out.

    \b
    JSON: {pipeline, inputs, models, tests, notes: [NOTE],
           left_out: [{file, line, column, length, problem, hint}]}

    \b
    Examples:
      dd import sdp fixtures/sdp out/spark.yaml      # exit 1
    """
    from ddcli.commands.sdp_project import import_sdp

    folder = project if project.is_dir() else project.parent
    _import(import_sdp, project, pipeline or folder / "dd.yaml", force=force, output=output)


def _import(
    importing: Callable[[Path, Path], ImportedProject], project: Path, target: Path, *, force: bool, output: str
) -> None:
    """Write the pipeline file that a project becomes, and report the parts that are left out."""
    if target.exists() and not force:
        raise UsageError("this file exists already", place=str(target), hint="--force replaces it")
    found = importing(project, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(found.text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write there: {error.strerror}", place=str(target)) from None
    if output == "json":
        from ddcli.commands.check import facts_of

        left = [facts_of(each) for each in found.left_out]
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
