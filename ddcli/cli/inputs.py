"""`dd inputs`: the files of inputs; `dd wait`: until one is complete."""

from __future__ import annotations

from pathlib import Path

import click

from ddcli.cli.arguments import ONLY_PIPELINE, QUIET, REPORT, STATE, VAR, Seconds
from ddcli.commands.inputs import STATES, input_files
from ddcli.screen import in_columns, json_text, say, visible


@click.command("inputs", short_help="List the files of inputs: read, new, changed, withdrawn.")
@ONLY_PIPELINE
@STATE
@click.option(
    "--select",
    type=click.Choice(STATES),
    multiple=True,
    help="List only files in this state; repeatable.",
)
@REPORT
@VAR
def inputs_command(pipeline: Path, state: str | None, select: tuple[str, ...], output: str) -> None:
    """List the files of the inputs of PIPELINE, each with its state: `read` (and unchanged since), `new`, `waiting` (it has rows at times that are not
    closed yet), `grown` (a log with further rows), `changed` or `missing` (a run refuses it), `withdrawn`, `repaired` (withdrawn, and changed since), `archived`,
    `forgotten` (read, and may be gone) or `skipped`. Tables and imported arrangements have no files here.

    Reads no rows, changes nothing and takes no lock.

    JSON: {inputs: {NAME: [{file, state, bytes, modified, read_at, why}]}}. `read_at` is the time of the run that read the file, under `clock: arrival`; `why`
    the problem of a changed file, or the reason why one is skipped.

    \b
    Examples:
      dd inputs pipelines/airborne.yaml
      dd inputs pipelines/airborne.yaml --select changed --select missing -o json
    """
    from ddcli.job.summary import plural, size_of
    from ddcli.store.files.objects import locate

    found = input_files(pipeline, None if state is None else locate(Path.cwd(), state))
    if select:
        found = {name: [file for file in files if file.state in select] for name, files in found.items()}
    if output == "json":
        say(json_text({"inputs": {name: [file.to_json() for file in files] for name, files in found.items()}}))
        return
    for name, files in found.items():
        say(f"{name}: {len(files):,} {plural(len(files), 'file')}")
        rows = [
            (
                file.state,
                visible(file.file),
                "" if file.bytes is None else size_of(file.bytes),
                file.read_at or "",
                visible(file.why or ""),
            )
            for file in files
        ]
        for line in in_columns(rows, right={2}):
            say(f"  {line}")


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
@click.option("--timeout", metavar="SECONDS", type=Seconds(), help="Exit with 1 after SECONDS. [default: never]")
@QUIET
def wait_command(log: str, complete: str | None, newer_than: str | None, timeout: float | None, quiet: bool) -> None:
    """Wait until the times of the change log LOG, an output of a pipeline, are closed: a directory, also s3://.

    Exits with 0 as soon as that is so: for the job that reads the log next. `--timeout 0` is a check of health. A log that no run has
    written yet is waited for.

    \b
    Examples:
      dd wait out/airborne/ --complete 600 --timeout 0
      dd wait out/sales/ --newer-than 2h --timeout 600   # for the next job
    """
    from ddcli.commands.inputs import wait

    def tell(line: str) -> None:
        if not quiet:
            say(line, err=True)

    if not wait(log, Path.cwd(), complete, newer_than, timeout, tell):
        raise click.exceptions.Exit(LATE)
