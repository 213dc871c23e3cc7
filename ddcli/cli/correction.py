"""Commands that correct a state: `dd retract`, `dd forget` and `dd state reopen`, their options, and the call that all make."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ddcli.cli.arguments import (
    ACCEPT,
    DRY_RUN,
    IF_LOCKED,
    NO_CODE,
    NOW,
    PIPELINE,
    QUIET,
    REASON,
    REPORT,
    STATE,
    VAR,
    NameIn,
)
from ddcli.errors import UsageError
from ddcli.screen import json_text, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddcli.job.corrections import ForgettingSummary
    from ddcli.job.summary import RunSummary
    from ddcli.store.files.lock import IfLocked


F = TypeVar("F", bound="Callable[..., Any]")


def corrects(command: F) -> F:
    """Return a command with the options that `correct` takes."""
    for option in (VAR, REPORT, NO_CODE, IF_LOCKED, QUIET, DRY_RUN, STATE):
        command = option(command)
    return command


def correct(
    pipeline: Path,
    *arguments: Any,
    by: Callable[..., RunSummary | ForgettingSummary] | None = None,
    state: Path | None,
    dry_run: bool,
    quiet: bool,
    if_locked: IfLocked,
    no_code: bool,
    output: str,
    **asked: Any,
) -> None:
    """Correct a state `by` a function of the driver (default: `ddcli.driver.run.run`) with the arguments `asked`, and print the result."""
    from ddcli.cli.startup import keep_freed_memory
    from ddcli.driver.run import run

    keep_freed_memory()
    summary = (by or run)(
        pipeline,
        *arguments,
        state=state,
        dry_run=dry_run,
        if_locked=if_locked,
        no_code=no_code,
        say=None if quiet else partial(say, err=True),
        **asked,
    )
    if output == "json":
        say(json_text(summary.to_json()))
    else:
        for line in [] if quiet else summary.lines():
            say(line, err=True)


@click.command("reopen", short_help="Open closed times again.")
@click.argument("pipeline", type=PIPELINE, required=False)
@click.option("--from", "start", required=True, metavar="T", help="The first time that is open again; a product: X,Y.")
@click.option(
    "--rewrite",
    multiple=True,
    metavar="NAME",
    help="Rewrite the output NAME as one file with its contents; repeatable.",
)
@corrects
def reopen(pipeline: Path | None, start: str, rewrite: tuple[str, ...], **options: Any) -> None:
    """Take the state of PIPELINE back to the time T: T and later times are open again, and rows at them are not late.

    The command rebuilds the state from the rows before T of the files that it has read, which must be unchanged. Rows at T or
    later wait in their files, and the next run reads them with new rows, even if they were put aside as late. The outputs keep their files, and each
    gets one more file that retracts its updates from T on. A pipeline that reads an output and has closed these times gets late rows: reopen it, too. --rewrite NAME rewrites an
    output instead.

    Under `clock: arrival` this takes back the runs from T on, for example if the clock was ahead: the next run reads their files again, at its own time.

    If a row with a wrong time has closed too many times, withdraw its file first (`dd retract PIPELINE FILE`); otherwise the next run closes them again.

    JSON: {name, lower, upper, reopened: T, rebuilt: {NAME: {rows, inserted, retracted, file}}, ...}: all keys of `dd run -o json`.

    \b
    Example:
      dd state reopen pipelines/airborne.yaml --from 480
    """
    if pipeline is None:
        raise UsageError("no pipeline is named", hint="name the pipeline file: dd state reopen PIPELINE --from T")
    correct(pipeline, rewrite=frozenset(rewrite), reopen=start, **options)


@click.command("forget", short_help="Remove rows of inputs from state, outputs and logs.")
@click.argument("pipeline", type=PIPELINE)
@click.option(
    "--where", required=True, metavar="CONDITION", help="The condition of the rows to remove, over an input's columns."
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    type=NameIn("inputs"),
    metavar="NAME",
    help="The input of the rows; repeatable. [default: the only one that has these columns]",
)
@corrects
def forget_command(pipeline: Path, where: str, inputs: tuple[str, ...], **options: Any) -> None:
    """Remove the rows of an input for which CONDITION holds from the state of PIPELINE, its outputs, and its logs of late and failed rows, as if
    they had never existed.

    No file keeps a row that was computed from them, not even in the past of outputs and state. No time is closed. The command reads the files of
    the inputs again, does not change them, and lists those that contain such rows. Remove the rows from these files, too. If you do that afterwards,
    repeat the command: until then no command reads these files again.

    If the command is killed, repeat it: it has changed everything or nothing, except for files that it still has to remove.

    JSON: {name, seconds, dry, inputs: {NAME: {rows, undecided}}, rewritten: [{was: FILE or null, file: FILE or null, bytes_before, bytes}],
    kept_files, kept_bytes, state_bytes_before, state_bytes, still_in: [FILE], versions_in: [OUTPUT], readers: [NAME]}.

    \b
    Examples:
      dd forget pipelines/airborne.yaml --input flights --where "carrier = 'HA'" --dry-run
    """
    from ddcli.driver.forget import forget

    correct(pipeline, where, inputs, by=forget, **options)


@click.command("retract", short_help="Withdraw files that were read.")
@click.argument("pipeline", type=PIPELINE)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option(
    "--missing",
    is_flag=True,
    help="Withdraw all files that were read and are gone; under `changed: replace` except renamed files.",
)
@click.option("--strict", is_flag=True, help="Withdraw nothing if no run has read one of the files.")
@click.option("--again", is_flag=True, help="Also withdraw a repaired file that a run has read since it was withdrawn.")
@NOW
@ACCEPT
@REASON
@corrects
def retract_command(
    pipeline: Path, files: tuple[str, ...], *, missing: bool, strict: bool, again: bool, now: str | None, **options: Any
) -> None:
    """Withdraw files of inputs from PIPELINE, as if it had never read them.

    The outputs get the difference. Under `clock: arrival` it is at the time of the run, which also reads new files; under `clock: event` at the first open time,
    and no time is closed. A key's record is then the one in the other files, and a table has their rows. The file may be changed or gone: under
    `changed: replace` the command reads the state's copy. Without copies it reads all other files of the same inputs again, so they must exist.

    If the file still exists unchanged, later runs ignore it. If it has changed, it is read in the same commit, so
    outputs get the difference between its old and new rows; if it is unreadable, nothing has changed. Rows of the file in logs of late or failed rows are retracted, too.

    A FILE that no run has read is reported and skipped if there are others. If it was withdrawn, repaired and read, and has not changed since, it is
    refused, as a repeated command would lose its rows: --again withdraws it.

    JSON: as `dd run -o json`; `withdrawn` lists the files of each input, `replaced` those that were read again.

    \b
    Examples:
      dd retract pipelines/airborne.yaml fixtures/flights/flights/from-minute-000000.parquet --dry-run
    """
    from ddcli.store.files.objects import locate

    if not (files or missing):
        raise click.UsageError("Name files to withdraw, or state --missing.")
    withdraw = [locate(Path.cwd(), text) for text in files]
    correct(pipeline, now=now, withdraw=withdraw, withdraw_missing=missing, strict=strict, again=again, **options)
