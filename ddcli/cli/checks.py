"""`dd checks`: the present verdicts of a pipeline's checks."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import NOW, ONLY_PIPELINE, REPORT, SHOW, STATE, VAR
from ddcli.screen import json_text, say


@click.command("checks", short_help="Show the verdicts of a pipeline's checks.")
@ONLY_PIPELINE
@STATE
@NOW
@click.option(
    "--junit", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write JUnit's XML to FILE."
)
@REPORT
@SHOW
@VAR
def command(pipeline: Path, state: str | None, now: str | None, junit: Path | None, output: str) -> None:
    """Show the verdict of each check of PIPELINE at the last commit, without a run, and the commits that were accepted with a failing one.

    The age that `fresh` bounds is that of now. The violations of a check are a collection of its name:
    `dd sql --from PIPELINE 'select * from NAME'` reads them, `dd log` reads their past in the log that is named here, and
    `dd why PIPELINE NAME` shows the rows that they come from.

    Exits with 7 if a check fails for which a run would commit nothing.

    \b
    JSON: {pipeline, upper, checks: {NAME: {title, place, kind, of, otherwise, passed, violations, problems: [TEXT], accepted, log,
          new, first} or null if no run has judged it}, accepted: [{check, at, by, found}]}

    \b
    Examples:
      dd checks pipelines/airborne.yaml
      dd checks pipelines/airborne.yaml --junit checks.xml
    """
    from ddcli.commands.checks import checks
    from ddcli.errors import CheckError
    from ddcli.store.files.objects import locate

    found = checks(pipeline, None if state is None else locate(Path.cwd(), state), now)
    if junit is not None:
        junit.write_bytes(found.junit())
    if output == "json":
        say(json_text(found.to_json()))
    else:
        for line in found.lines():
            say(line)
        if not found.checks:
            say(f"{found.pipeline}: no checks", err=True)
    if found.failed:
        raise click.exceptions.Exit(CheckError.exit_code)
