"""`dd retract`: withdraw files that were taken in."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ddcli.cli.arguments import IF_LOCKED, NO_CODE, NOW, PIPELINE, REPORT, STATE, VAR
from ddcli.screen import json_text, say


@click.command("retract", short_help="Withdraw files that were taken in.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@NOW
@STATE
@click.option("-n", "--dry-run", is_flag=True, help="Compute and show the summary, but commit nothing.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@IF_LOCKED
@NO_CODE
@REPORT
@VAR
def command(
    pipeline: Path,
    files: tuple[str, ...],
    now: str | None,
    state: str | None,
    dry_run: bool,
    quiet: bool,
    if_locked: str,
    no_code: bool,
    output: str,
) -> None:
    """Take back what PIPELINE has from some files of its inputs, as if it had never taken them in.

    The outputs get the difference: under `clock: arrival` at the time of the run, which also takes in what is new, else at the first open time,
    and no time is closed. A key, or a table, has again what the other files say. A file may be changed or gone by now: nothing of it is read. All other files of its
    inputs are read again, so they must be there.

    A file that lies there as it was taken in is passed over from then on. One of that name with other content is taken in by the same run: under
    `clock: event` with the times that its rows have. Rows of the file in logs of late or failed rows are taken back too.

    JSON: as `dd run -o json`; `withdrawn` has the files by input.

    \b
    Examples:
      dd retract pipelines/airborne.yaml fixtures/flights/flights/from-minute-000000.parquet --dry-run
    """  # noqa: D301 - click wants the character itself, to leave the lines after it as they are
    from ddcli.cli.memory import keep_freed_memory
    from ddcli.driver.run import run
    from ddcli.store.files.objects import locate

    keep_freed_memory()
    summary = run(
        pipeline,
        state=None if state is None else locate(Path.cwd(), state),
        dry_run=dry_run,
        if_locked=if_locked,  # type: ignore[arg-type]
        no_code=no_code,
        now=now,
        withdraw=[locate(Path.cwd(), text) for text in files],
        say=None if quiet else partial(say, err=True),
    )
    if output == "json":
        say(json_text(summary.to_json()))
    else:
        for line in [] if quiet else summary.lines():
            say(line, err=True)
