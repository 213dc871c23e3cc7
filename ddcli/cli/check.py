"""`dd check`: errors of pipelines, without running them; `dd checks`: the verdicts of their checks."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import NOW, PIPELINES, REPORT, SHOW, STATE, VAR, budget, formats
from ddcli.screen import json_text, near, say, say_own


@click.command("check", short_help="Report the errors of pipeline files, without reading data.")
@PIPELINES
@formats(
    "text", "json", "github", about="Format: lines, JSON, or GitHub annotations for a pull request.", old=["--format"]
)
@budget(
    "The worst class of work that an operator may have, overriding the files' bound: work=groups. See `dd explain`."
)
@VAR
def check_command(pipelines: tuple[Path, ...], output: str, budget: dict[str, str]) -> None:
    """Check pipeline files: keys and names, expressions and types, Python functions, paths, and the columns of inputs.
    Reports every error at once, each at its place.

    Reads no rows, only the columns in the footers and headers of files. An input with declared `columns` needs no file, so a
    pipeline can be checked without its data. Runs no code: it reads from the text of a module whether a function exists, and
    how many arguments it takes.

    Exits with 2 if a pipeline file has errors, with 3 if only the columns of an input are unknown or don't fit, and with 6 if only
    operators have a worse class of work than the file's `budget` allows.

    \b
    JSON: {ok, pipelines: [{file, name, ok,
           inputs: {NAME: {columns: {COLUMN: TYPE}, time: {COLUMN: TYPE}, files, passed: {PATH: WHY},
           inferred: {columns, file, known} or null}}, outputs: {NAME: {COLUMN: TYPE}},
           errors: [{file, line, column, length, problem, hint, code}]}]}

    \b
    Examples:
      dd check pipelines/airborne.yaml
      dd check pipelines/*.yaml -o github
    """
    from ddcli.commands.check import check
    from ddcli.job.summary import SHOWN, plural
    from ddcli.spec.file import check_used

    found = [check(path, budget) for path in pipelines]
    errors = [error for each in found for error in each.errors]
    if not errors:
        check_used()
    if output == "json":
        say(json_text({"ok": not errors, "pipelines": [each.to_json() for each in found]}))
    for each in found if output != "json" else ():
        for error in each.errors:
            if output == "github":
                from ddcli.cli.messages import annotation

                say_own(annotation(error))
            else:
                say(*error.lines(), err=True)
        if not each.errors:
            inputs = f"{len(each.inputs)} {plural(len(each.inputs), 'input')}"
            say(f"{each.file}: ok, {inputs}")
            for remark in each.remarks:
                say(f"{each.file}: note: {remark}", err=True)
            for name, given in each.inputs.items():
                for path, why in list(given.passed.items())[:SHOWN]:
                    say(f"{each.file}: note: inputs.{name}: {near(path)} is skipped: {why}", err=True)
                if len(given.passed) > SHOWN:
                    say(f"{each.file}: note: inputs.{name}: and {len(given.passed) - SHOWN:,} more", err=True)
            for span, text in each.bound.graph.notes if each.bound is not None else ():
                say(f"{span}: note: {text}", err=True)
            for name, why in each.unseen.items():
                say(f"{each.file}: note: `{name}` is checked when it is called: {why}", err=True)
            for name, schema in each.outputs.items():
                say(f"  {name}: {', '.join(f'{column} {kind}' for column, kind in schema.items())}")
    if errors:
        wrong = sum(bool(each.errors) for each in found)
        total = f"{len(errors)} {plural(len(errors), 'error')} in {wrong} of {len(found)} {plural(len(found), 'file')}"
        say(total, err=True)
        raise click.exceptions.Exit(min(error.exit_code for error in errors))


@click.command("checks", short_help="Show the verdicts of the checks of pipelines.")
@PIPELINES
@STATE
@NOW
@click.option(
    "--junit",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write JUnit XML to FILE, a suite for each pipeline.",
)
@REPORT
@SHOW
@VAR
def checks_command(
    pipelines: tuple[Path, ...], state: Path | None, now: str | None, junit: Path | None, output: str
) -> None:
    """Show the verdict of each check of PIPELINE at the last commit, without a run, and the commits that were accepted although a check failed.
    A directory means the pipeline files in it.

    `fresh` is tested as of now. The violations of a check are a collection with its name:
    `dd sql --from PIPELINE 'select * from NAME'` reads them, `dd log` shows their past in the log that is named here, and
    `dd why PIPELINE NAME` shows the rows that they come from.

    Exits with 7 if a check fails that would prevent a commit.

    \b
    JSON: {pipeline, upper, checks: {NAME: {title, place, kind, of, otherwise, passed, violations, problems: [TEXT], accepted, log,
          new, first} or null if no run has judged it}, accepted: [{check, at, by, found}]}
    For several pipelines, and for a directory: {pipelines: [such an object for each]}.

    \b
    Examples:
      dd checks pipelines/airborne.yaml
      dd checks pipelines/ --junit checks.xml
    """
    from ddcli.commands.checks import checks
    from ddcli.commands.checks import junit as junit_of
    from ddcli.commands.pipelines import find_pipelines
    from ddcli.errors import CheckError, UsageError

    several = len(pipelines) > 1 or pipelines[0].is_dir()
    if several and state is not None:
        raise UsageError("--state is for one pipeline", hint="name one pipeline file")
    paths = [each.path for each in find_pipelines(pipelines)[0]] if several else pipelines
    found = [checks(path, state, now) for path in paths]
    if junit is not None:
        junit.write_bytes(junit_of(each.suite() for each in found))
    if output == "json":
        reports = [each.to_json() for each in found]
        say(json_text({"pipelines": reports} if several else reports[0]))
    for each in found if output != "json" else ():
        if not each.checks:
            say(f"{each.pipeline}: no checks", err=True)
        elif several:
            say(f"{each.pipeline}:")
        for line in each.lines():
            say(f"  {line}" if several else line)
    if any(each.failed for each in found):
        raise click.exceptions.Exit(CheckError.exit_code)
