"""`dd wait`: the end of a wait for the times of a log."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import QUIET
from ddcli.screen import say

LATE = 1
"""The exit code if the times are not closed in time."""


@click.command("wait", short_help="Wait until a log is complete up to a time.")
@click.argument("log")
@click.option(
    "--complete", metavar="T", help="Wait until the times before T are closed; `today` or `-2h` also are times."
)
@click.option(
    "--newer-than",
    metavar="AGE",
    help="Wait until all times that are older than AGE are closed: 90s, 30m, 2h, 1d. Under the clock of arrivals: until a run has committed within AGE.",
)
@click.option(
    "--timeout", metavar="SECONDS", type=click.FloatRange(0), help="Exit with 1 after SECONDS. [default: never]"
)
@QUIET
def command(log: str, complete: str | None, newer_than: str | None, timeout: float | None, quiet: bool) -> None:
    """Wait until the times of the change log LOG, an output of a pipeline, are closed: a directory, also s3://.

    Exits with 0 as soon as that is so: for the job that reads the log next. `--timeout 0` is a check of health. A log that no run has
    written yet is waited for.

    \b
    Examples:
      dd wait out/airborne/ --complete 600 --timeout 0
      dd wait out/sales/ --newer-than 2h --timeout 600   # for the next job
    """
    from ddcli.commands.wait import wait

    def tell(line: str) -> None:
        if not quiet:
            say(line, err=True)

    if not wait(log, Path.cwd(), complete, newer_than, timeout, tell):
        raise click.exceptions.Exit(LATE)
