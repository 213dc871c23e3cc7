"""`dd log compact`: sum up old updates in the logs of outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ddcli.cli.arguments import IF_LOCKED, REPORT, VAR
from ddcli.screen import json_text, near, say

if TYPE_CHECKING:
    from ddcli.store.files.lock import IfLocked


@click.command("compact", short_help="Sum up the old updates of an output's log.")
@click.argument("target", metavar="OUTPUT|PIPELINE")
@click.option("--before", metavar="T", help="Sum up the updates before T. [default: all updates at closed times]")
@click.option("-n", "--dry-run", is_flag=True, help="Show the result, but change nothing.")
@click.option(
    "--pass-claims",
    is_flag=True,
    help="Sum up updates that consumers and readers have not taken, too: they must begin anew.",
)
@IF_LOCKED
@REPORT
@VAR
def command(
    target: str, before: str | None, dry_run: bool, pass_claims: bool, if_locked: IfLocked, output: str
) -> None:
    """Sum up the older updates of OUTPUT, the directory of an output, or of all outputs of PIPELINE.

    One file takes the place of the oldest ones. It has the contents of the log as of the last of their times, the horizon. As of the horizon and later times
    the log has the same contents as before; `dd log --as-of` of an earlier time is refused. Only whole files are summed up: those with updates at T or later stay, and
    so do those that a consumer (`dd feed`) or a pipeline that reads the log has not taken yet. With --pass-claims these are summed up, too, and the command names the consumers and
    pipelines. The next time they read, a consumer ends with 4 and a pipeline with 3, and they must begin anew.
    Takes the lock, and commits like a run; with --dry-run it takes none and writes nothing.

    JSON: [{output, path, horizon, files, rows_before, bytes_before, rows, bytes,
    claims: [{output, kind, name, since, files, until, passed}]}]; the horizon of a log without updates that old is null.

    \b
    Examples:
      dd log compact out/airborne --before 540
      dd log compact pipelines/airborne.yaml --dry-run
    """
    from ddcli.job.summary import plural, size_of
    from ddcli.sinks.log_compaction import compact

    done = compact(target, Path.cwd(), before, pass_claims=pass_claims, if_locked=if_locked, dry=dry_run)
    if output == "json":
        say(json_text([each.to_json() for each in done]))
        return
    for each in done:
        if each.horizon is None:
            say(f"{each.output}: nothing to sum up", *(claim.line() for claim in each.claims))
            continue
        what = f"{each.files:,} {plural(each.files, 'file')} of {each.rows_before:,} {plural(each.rows_before, 'row')}, {size_of(each.bytes_before)}"
        became = f"one of {each.rows:,} {plural(each.rows, 'row')}, {size_of(each.bytes)}, as of {each.horizon}"
        say(
            f"{each.output}: {what} {'would become' if dry_run else 'are'} {became}: {near(each.path)}",
            *(claim.line() for claim in each.claims),
        )
