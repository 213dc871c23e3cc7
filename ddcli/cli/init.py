"""`dd init`: a pipeline to start from."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import REPORT
from ddcli.screen import json_text, near, say, shell

STARTER = Path(__file__).parent / "starter"
IGNORED = ".gitignore"
WORKFLOW = ".github/workflows/dd.yml"
INSTALLATION = "      - run: pip install ddcli\n"
"""The step of the starter's workflow that installs this program."""


@click.command("init", short_help="Make a pipeline to start from.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option(
    "--from",
    "data",
    metavar="DATA",
    type=click.Path(path_type=Path),
    help="Write a pipeline over the files in the folder DATA.",
)
@REPORT
def command(directory: Path, data: Path | None, output: str) -> None:
    """Make a small pipeline over CSV files in DIRECTORY, with a test, a GitHub workflow that checks it, and a
    .gitignore. DIRECTORY is made if it does not exist; the default is the current one.

    Overwrites nothing: if one of the files exists, none is made. An existing .gitignore stays as it is.

    With --from, write a pipeline over the files in DATA instead: inputs with their paths, formats, columns and keys
    found in the first rows of the files, and an output for each. A comment with a question mark marks a guess.
    Rows have the time of the run that reads them. Debezium's events have their own times, so their inputs get a pipeline file of their own.

    JSON: {directory, files: [FILE]}: the files that were made.

    \b
    Examples:
      dd init sales
      dd init exports --from fixtures/exports/european
    """
    from ddcli.errors import UsageError

    if directory.suffix in {".yaml", ".yml"} and not directory.is_dir():
        hint = f"for example `{shell('dd', 'init', directory.with_suffix(''))}`"
        raise UsageError("this is the name of a pipeline file, not of a directory", place=str(directory), hint=hint)
    if data is not None:
        _begin(data, directory, output)
        return
    found = sorted(path for path in STARTER.rglob("*") if path.is_file())
    names = {_name(path.relative_to(STARTER)): path for path in found}
    there = [name for name in names if (directory / name).exists()]
    if met := [name for name in there if name != IGNORED]:
        raise UsageError(
            f"these files exist already: {', '.join(met)}",
            place=str(directory),
            hint="name a directory that is empty or new: `dd init DIRECTORY`",
        )
    made = [name for name in names if name not in there]
    try:
        for name in made:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            text = names[name].read_text(encoding="utf-8")
            (directory / name).write_text(text.replace(INSTALLATION, _installation()), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write there: {error.strerror}", place=str(error.filename or directory)) from None
    if output == "json":
        say(json_text({"directory": str(directory), "files": made}))
        return
    for name in made:
        say(str(directory / name))
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
    from ddcli.errors import UsageError

    notes: list[str] = []
    made = begin(data, directory, notes)
    if met := [name for name in made if (directory / name).exists()]:
        hint = "name another directory: `dd init DIRECTORY --from DATA`"
        raise UsageError(f"these files exist already: {', '.join(met)}", place=str(directory), hint=hint)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write there: {error.strerror}", place=str(error.filename or directory)) from None
    if output == "json":
        say(json_text({"directory": str(directory), "files": list(made)}))
        return
    for name in made:
        say(str(directory / name))
    for note in notes:
        say(f"note: {note}", err=True)
    say(
        f"next: check the comments with a question mark, then {shell('dd', 'run', directory / next(iter(made)))}",
        err=True,
    )


def _installation() -> str:
    """Return the steps that install this program on a machine of GitHub's: from where it came, if GitHub can read that."""
    from ddcli.version import install_command, local_path, origin

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
