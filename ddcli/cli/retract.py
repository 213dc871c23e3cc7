"""`dd retract`: withdraw files that were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ddcli.cli.arguments import NOW, PIPELINE
from ddcli.cli.correction import correct, corrects


@click.command("retract", short_help="Withdraw files that were read.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option("--missing", is_flag=True, help="Withdraw all files that were read and are gone.")
@click.option("--strict", is_flag=True, help="Withdraw nothing if no run has read one of the files.")
@NOW
@corrects
def command(
    pipeline: Path, files: tuple[str, ...], *, missing: bool, strict: bool, now: str | None, **options: Any
) -> None:
    """Withdraw files of inputs from PIPELINE, as if it had never read them.

    The outputs get the difference: under `clock: arrival` at the time of the run, which also reads new files, else at the first open time,
    and no time is closed. A key then has the record of the other files again, and a table their rows. The command does not read the file, which may be changed or gone. It reads all
    other files of the same inputs again, so they must exist.

    If the file still exists unchanged, later runs ignore it. If a file of that name has other content, it is read in the same commit, so
    outputs get the difference between its old and its new rows; if it can't be read, nothing has changed. Rows of the file in logs of late or failed rows are retracted, too.

    A FILE that no run has read is reported and skipped if there are others.

    JSON: as `dd run -o json`; `withdrawn` lists the files of each input, `replaced` those that were read again.

    \b
    Examples:
      dd retract pipelines/airborne.yaml fixtures/flights/flights/from-minute-000000.parquet --dry-run
    """
    from ddcli.store.files.objects import locate

    if not (files or missing):
        raise click.UsageError("Name files to withdraw, or state --missing.")
    withdraw = [locate(Path.cwd(), text) for text in files]
    correct(pipeline, now=now, withdraw=withdraw, withdraw_missing=missing, strict=strict, **options)
